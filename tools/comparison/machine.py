"""machine.py: on what it was measured."""
import os
import re
import subprocess
import tempfile
import time


def first(pattern, text, otherwise):
    found = re.search(pattern, text, re.M)
    return (found.group(1) if found.groups() else found.group(0)) if found else otherwise


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def version_of(command, pattern):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return first(pattern, done.stdout, "unknown")


def fsync_us(folder):
    """The median of what the disk takes to write one small record for good."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as f:
        for _ in range(31):
            os.write(f.fileno(), b"x" * 512)
            begin = time.monotonic_ns()
            os.fdatasync(f.fileno())
            took.append((time.monotonic_ns() - begin) / 1e3)
    return round(sorted(took)[15], 1)


def ticks():
    """Of all processors, and of that the idle ones."""
    fields = [int(n) for n in read("/proc/stat").splitlines()[0].split()[1:9]]
    return sum(fields), fields[3] + fields[4]


def busy_percent():
    """How much of the processors others use, just now."""
    (all1, idle1), _, (all2, idle2) = ticks(), time.sleep(1), ticks()
    return round(100 - 100 * (idle2 - idle1) / max(all2 - all1, 1))


def about(build):
    cpu = read("/proc/cpuinfo")
    name = first(r"^PRETTY_NAME=\"?([^\"\n]*)", read("/etc/os-release"), "unknown")
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "system": name, "kernel": os.uname().release,
            "machine": os.uname().machine, "processor": first(r"^model name\s*: (.*)", cpu, "unknown"),
            "processors": len(os.sched_getaffinity(0)), "fsync_us": fsync_us(os.getcwd()), "busy_percent": busy_percent(), "nice": os.nice(0),
            "holdfast": version_of([os.path.join(build, "cli/holdfast"), "--version"], r"[\d.]+\S*")}
