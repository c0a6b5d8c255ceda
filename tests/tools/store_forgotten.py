#!/usr/bin/env python3
"""store_forgotten.py SOURCE: the checks of sources and documents find what a new store lacks, a struct that means two
things, and the packages of the list; on a tree that is this one but for what the case changes. Prints TAP."""
import os
import subprocess
import sys
import tempfile

source = os.path.realpath(sys.argv[1])
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(source, "tools"))
import stores  # noqa: E402

NEW = "\netcd schemes etcd etcds\n"
CASES = [
    ("a store that is only in the list", "check-layers", "stores", NEW,
     ["etcd: no folder src/driver/etcd", "etcd: no setups in", "etcd: no test in", "etcd: no raws in",
      "etcd: no bench in"]),
    ("a store that no document mentions", "check-docs", "stores", NEW,
     ["etcd: of the store etcd is not in holdfast-url(7)", "etcd has no section in holdfast-url(7)",
      "etcd has no section in docs/guarantees.md", "etcd has no row in the table of docs/guarantees.md",
      "etcd has no section in docs/architecture.md"]),
    ("a driver that is not in the list", "check-layers", "src/driver/etcd/etcd.c", "/* etcd.c: nothing */\n",
     ["src/driver/etcd: no such store in the list"]),
]


def copy(to, path, more):
    """The tree at `to` by links, but for `path`, which gets `more` at its end."""
    at, rest = "", path.split("/")
    while rest:
        here = os.path.join(source, at)
        os.makedirs(os.path.join(to, at), exist_ok=True)
        for name in os.listdir(here) if os.path.isdir(here) else []:
            if name not in (rest[0], "build", ".git"):
                os.symlink(os.path.join(here, name), os.path.join(to, at, name))
        at = os.path.join(at, rest.pop(0))
    text = ""
    if os.path.exists(os.path.join(source, path)):
        with open(os.path.join(source, path), encoding="utf-8") as f:
            text = f.read()
    with open(os.path.join(to, path), "w", encoding="utf-8") as f:
        f.write(text + more)


def said(script, *changed):
    """What the check says; without the programs that it can do without."""
    with tempfile.TemporaryDirectory() as to:
        copy(to, *changed)
        return subprocess.run([sys.executable, os.path.join(source, "tools", script), to], env={"PATH": to},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


def by_bash(*keys):
    script = '. "$0"; need() { echo "$1"; }; need_for_stores "$@"'
    return subprocess.run(["bash", "-c", script, os.path.join(source, "tools/packages.sh"), *keys],
                          stdout=subprocess.PIPE, text=True, check=True).stdout.split()


results = []
for name, script, path, more, wanted in CASES:
    text = said(script, path, more)
    results.append((name, [f"not said: {w}" for w in wanted if w not in text] and [*text.splitlines(), *wanted]))
keys = ("for-try", "for-quick", "for-check")
packages = [p for about in stores.read(source).values() for key in keys for p in about[key]]
read = by_bash(*keys)
results.append(("bash reads the packages of the list, before meson is there",
                [] if read == packages and len(by_bash("for-try")) < len(read) else [f"{read} and {packages}"]))

print(f"1..{len(results)}")
for number, (name, problems) in enumerate(results, 1):
    print(f"{'not ' if problems else ''}ok {number} - {name}")
    for problem in problems:
        print(f"# {problem}")
sys.exit(any(problems for _, problems in results))
