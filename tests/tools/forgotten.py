#!/usr/bin/env python3
"""forgotten.py SOURCE: the checks of sources and documents find what a new store lacks and a tag that means two
things; bash reads the packages of the list. Prints TAP."""
import os
import shutil
import subprocess
import sys
import tempfile

source = os.path.realpath(sys.argv[1])
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(source, "tools"))
import stores  # noqa: E402

NEW = "\nconsul schemes consul consuls\n"
CASES = [
    ("a store that is only in the list", "check-layers", "stores", NEW,
     ["consul: no folder src/driver/consul", "consul: no setups in", "consul: no test in", "consul: no raws in",
      "consul: no bench in"]),
    ("a store that no document mentions", "check-docs", "stores", NEW,
     ["consul: of the store consul is not in holdfast-url(7)", "consul has no section in holdfast-url(7)",
      "consul has no section in docs/guarantees.md", "consul has no row in the table of docs/guarantees.md",
      "consul has no section in docs/architecture.md", "consul has no row in tools/comparison/rows.py"]),
    ("a driver that is not in the list", "check-layers", "src/driver/consul/consul.c", "/* consul.c: nothing */\n",
     ["src/driver/consul: no such store in the list"]),
    ("a struct that is defined twice", "check-layers", "src/net/stream.c", "\nstruct hold {\n    int fd;\n};\n",
     ["hold is defined in src/core/core.h and src/net/stream.c"]),
    ("an enum that is defined twice", "check-layers", "src/net/stream.h", "\nenum life_kind { A };\n",
     ["life_kind is defined in src/net/stream.h and src/seam/seam.h"]),
]


def said(script, path, more):
    """What the check says of a copy of the tree whose file `path` has `more` at its end; without the programs that
    it can do without."""
    with tempfile.TemporaryDirectory() as to:
        tree = os.path.join(to, "tree")
        shutil.copytree(source, tree, ignore=shutil.ignore_patterns("build", ".git"))
        os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
        with open(os.path.join(tree, path), "a", encoding="utf-8") as f:
            f.write(more)
        return subprocess.run([sys.executable, os.path.join(source, "tools", script), tree], env={"PATH": to},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


def by_bash(*keys):
    script = '. "$0"; need() { echo "$1"; }; need_for_stores "$@"'
    return subprocess.run(["bash", "-c", script, os.path.join(source, "tools/packages.sh"), *keys],
                          stdout=subprocess.PIPE, text=True, check=True).stdout.split()


results = []
for name, script, path, more, wanted in CASES:
    text = said(script, path, more)
    missing = [w for w in wanted if w not in text]
    results.append((name, [f"not said: {w}" for w in missing] + (text.splitlines() if missing else [])))
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
