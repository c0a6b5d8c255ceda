#!/usr/bin/env python3
"""tools/compare: the document in the tree is what its figures give, and a short run has the same form; prints TAP.

    form.py SOURCE_ROOT             writes docs/choosing.md anew from docs/choosing.json, and compares every byte
    form.py SOURCE_ROOT BUILD_ROOT  measures two stores for a moment, and compares headings, tables and keys
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

root = sys.argv[1]
build = sys.argv[2] if len(sys.argv) > 2 else None
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(root, "tools"))
import stores  # noqa: E402
from comparison import document, rows  # noqa: E402

STORES = ["local", "redis"]


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def compare(*args):
    done = subprocess.run([sys.executable, os.path.join(root, "tools/compare"), *args], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return [f"ended with {done.returncode}", *done.stdout.splitlines()] if done.returncode else []


def files(folder):
    """What tools/compare writes, by its name."""
    found = {"choosing.md": read(os.path.join(folder, "choosing.md"))}
    for name in sorted(os.listdir(os.path.join(folder, "choosing"))):
        found[name] = read(os.path.join(folder, "choosing", name))
    return found


def same_files(out):
    """The same files, byte by byte."""
    ours, new = files(os.path.join(root, "docs")), files(out)
    for name in sorted(set(ours) | set(new)):
        if ours.get(name) != new.get(name):
            yield f"docs: {name} is not what tools/compare --render writes"


def form(text):
    """Headings, pictures, and heads and lengths of tables."""
    for line in text.splitlines():
        if line.startswith(("#", "![", "| store |")):
            yield line
        elif line.startswith("|"):
            yield re.match(r"\| \[?[\w-]*", line).group(0)


def same_form(out):
    ours, new = (list(form(read(os.path.join(folder, "choosing.md")))) for folder in (os.path.join(root, "docs"), out))
    for a, b in zip(ours + [None] * len(new), new + [None] * len(ours)):
        if a != b:
            yield f"{a!r} in docs, {b!r} now"
    if files(out).keys() != files(os.path.join(root, "docs")).keys():
        yield "other pictures"


def same_keys(ours, new, where):
    if isinstance(ours, dict) and isinstance(new, dict):
        for key in sorted(ours.keys() ^ new.keys()):
            yield f"{where}.{key} is only in one of them"
        for key in sorted(ours.keys() & new.keys()):
            yield from same_keys(ours[key], new[key], f"{where}.{key}")
    elif isinstance(ours, list) and isinstance(new, list) and ours and new:
        yield from same_keys(ours[0], new[0], where)


def figures(out):
    ours, new = (json.loads(read(os.path.join(folder, "choosing.json"))) for folder in (os.path.join(root, "docs"), out))
    for store in STORES:
        yield from same_keys(ours.get(store, {}), new[store], store)


def exclusion(out):
    """G1: whoever was stopped and goes on is told lost, if another has the lock."""
    for store, f in json.loads(read(os.path.join(out, "choosing.json"))).items():
        for run in f["stop"]:
            if not run["check_said_lost"]:
                yield f"{store}: check said held beside another holder: {run}"


def figures_refused(_):
    """No sentence can quote what was not measured."""
    for text in "a pair takes 5 µs", "`code` and 12 more":
        try:
            document.no_figures(text, "here")
            yield f"not refused: {text!r}"
        except document.Wrong:
            pass
    document.no_figures("a pair takes {{pair_p50}} with `mode=2`, see [holdfast(1)](man/holdfast.1)", "here")


def rows_whole(_):
    """Every row can be started."""
    setups = {name for about in stores.read(root).values() for key in ("setups", "topologies") for name in about[key]}
    for row in rows.ROWS:
        if row.setup not in setups:
            yield f"{row.name}: there is no set-up {row.setup}"


def rendered(out):
    shutil.copy(os.path.join(root, "docs/choosing.json"), out)
    return compare("--render", "--out", out)


def measured(out):
    return compare("--build", build, "--time", "300ms", "--ttl", "2s", "--repeats", "1", "--out", out, *STORES)


CASES = [("a short run of the comparison ends well", measured), ("its document has the form of the one in docs", same_form),
         ("its figures have the same keys", figures), ("a stopped holder does not believe in its lock", exclusion)] if build else [
             ("the comparison can be written from its figures", rendered), ("and is what is in docs", same_files),
             ("a sentence with a figure of its own is refused", figures_refused), ("every row has a set-up", rows_whole)]

print(f"1..{len(CASES)}")
failed = False
with tempfile.TemporaryDirectory() as folder:
    for number, (name, check) in enumerate(CASES, 1):
        problems = list(check(folder)) if not failed or os.path.exists(os.path.join(folder, "choosing.md")) else ["nothing was made"]
        print(f"{'not ' if problems else ''}ok {number} - {name}", flush=True)
        for problem in problems[:40]:
            print(f"# {problem}")
        failed = failed or bool(problems)
sys.exit(failed)
