"""servers.py: a started store with its processes, and the clients that act on it.

Servers are set up by tests/lib (with-store --serve) in private folders on free ports, and end with this program. Their
data are in memory where there is room: how fast a disk is would else be most of every figure, and is a figure of its own.
"""
import json
import os
import select
import subprocess
import tempfile
import time

ANSWER_S = 120  # for what must happen at last
MEMORY = "/dev/shm"
TICKS = os.sysconf("SC_CLK_TCK")


class Trouble(Exception):
    pass


def now_ns():
    """The clock of compare-client."""
    return time.monotonic_ns()


class Process:
    """A child that is talked to in lines."""

    def __init__(self, args, env=None):
        self.args = args
        self.rest = b""
        self.said = tempfile.TemporaryFile()
        self.p = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, env=env)
        self.pid = self.p.pid

    def send(self, line):
        self.p.stdin.write(line.encode() + b"\n")
        self.p.stdin.flush()

    def line(self, limit=ANSWER_S):
        """The next one; None: none came in this time."""
        end = time.monotonic() + limit
        while b"\n" not in self.rest:
            if not select.select([self.p.stdout], [], [], max(end - time.monotonic(), 0))[0]:
                return None
            got = os.read(self.p.stdout.fileno(), 65536)
            if not got:
                self.said.seek(0)
                raise Trouble(f"{' '.join(self.args[:3])} has ended:\n{self.said.read().decode(errors='replace')}")
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def answer(self):
        line = self.line()
        if line is None:
            raise Trouble(f"{' '.join(self.args[:3])} did not answer within {ANSWER_S} s")
        return line

    def end(self):
        self.p.stdin.close()
        try:
            self.p.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
        self.p.stdout.close()
        self.said.close()

    def kill(self):
        self.p.kill()
        self.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


class Store(Process):
    """One row's store; `build` is a build folder with tests."""

    def __init__(self, row, build):
        env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        env.update(row.env)
        self.row, self.build = row, build
        folder = env.get("HF_TEST_MEMORY") or (MEMORY if os.access(MEMORY, os.W_OK) else tempfile.gettempdir())
        env.update(HF_TEST_MEMORY=folder, TMPDIR=folder)
        super().__init__([os.path.join(build, "tests/lib/with-store"), "--serve", row.setup], env)
        self.url = self.answer()
        if row.query:
            self.url += ("&" if "?" in self.url else "?") + row.query
        self.names = 0

    def do(self, what):
        self.send(what)
        return int(self.answer())

    def client(self, verb, ttl_ms, *args):
        """A compare-client on a name that nobody has used."""
        self.names += 1
        return self.other(verb, f"compare/{self.names}", ttl_ms, *args)

    def other(self, verb, name, ttl_ms, *args):
        program = os.path.join(self.build, "tests/compare/compare-client")
        return Process([program, verb, self.url, name, str(ttl_ms), *map(str, args)])

    def bench(self, seconds, *cases):
        """The rows of holdfast bench."""
        args = [os.path.join(self.build, "cli/holdfast"), "-u", self.url, "bench", "--json", "--time", f"{int(seconds * 1000)}ms"]
        done = subprocess.run([*args, *cases], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise Trouble(f"holdfast bench ended with {done.returncode}: {done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def servers(self):
        """The first process of each."""
        return sorted(pid for pid in self.processes() if int(stat_of(pid)[1]) == self.pid)

    def processes(self):
        """The servers, and whatever they have started."""
        parents = {}
        for name in os.listdir("/proc"):
            fields = name.isdigit() and stat_of(name)
            if fields:
                parents.setdefault(int(fields[1]), []).append(int(name))
        found, left = [], [self.pid]
        while left:
            children = parents.get(left.pop(), [])
            found += children
            left += children
        return found

    def cpu_us(self):
        """Processor time of the servers so far; None: there is none."""
        if not self.row.server:
            return None
        ticks = 0
        for pid in self.processes():
            fields = stat_of(pid)
            ticks += sum(map(int, fields[11:15])) if fields else 0  # own, and that of children which have ended
        return ticks * 1e6 / TICKS

    def memory_bytes(self):
        if not self.row.server:
            return None
        total = 0
        for pid in self.processes():
            try:
                with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
                    total += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
            except OSError:
                pass  # it has ended
        return total * 1024


def stat_of(pid):
    """Fields of /proc/PID/stat from the state on, or None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()
    except OSError:
        return None


def sockets_of(pid):
    """How many connected sockets of the network a client has."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as f:
        return sum(line.split()[3] == "01" and line.split()[9] in inodes for line in f.readlines()[1:])
