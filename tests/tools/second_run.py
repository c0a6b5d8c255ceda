#!/usr/bin/env python3
"""Who gets a second run from tools/run-tests: only programs whose store was away, or that
were late."""
import importlib.machinery
import importlib.util
import sys

loader = importlib.machinery.SourceFileLoader("run_tests", sys.argv[1])
loader_spec = importlib.util.spec_from_loader("run_tests", loader)
run_tests = importlib.util.module_from_spec(loader_spec)
sys.dont_write_bytecode = True
loader.exec_module(run_tests)

AWAY = """not ok {n} - {name} # time=8.277s
#   ../../tests/lib/rig.c:75: pid 26591: rig.face->release(lease, E())
#       gave -10 HF_EUNKNOWN, expected 0
#       last error: HF_EUNKNOWN: the outcome is not known yet (zk://localhost)
"""
BROKEN = """not ok {n} - {name} # time=0.2s
#   ../../tests/contract/exclusion.c:106: pid 4: run_processes(8) == 800
#       with 799 and 800
"""
LATE = """not ok {n} - {name} # time=4.1s
#   ../../tests/fault/redis_many.c:168: pid 4: late: 4000 ms after begin
#       with 4180 and 4000
"""
FOLLOWS = "#   ../../tests/lib/kid.c:316: pid 22117: process 22118 ended with status 1\n"
BUSY = AWAY.replace("-10 HF_EUNKNOWN", "-4 HF_EBUSY")

CASES = [
    ("an unknown answer", AWAY, True),
    ("and what follows from it in another process", AWAY + FOLLOWS, True),
    ("two cases of that kind", AWAY + "ok 2 - b\n" + AWAY.replace("{n}", "3"), True),
    ("a check of time", LATE, True),
    ("a check of time beside an unknown answer", LATE + AWAY.replace("{n}", "2"), True),
    ("a check of time and a lost update", LATE + BROKEN.split("\n", 1)[1], False),
    ("a lost update", BROKEN, False),
    ("a lost update beside an unknown answer", AWAY + BROKEN.replace("{n}", "2"), False),
    ("both in one case", AWAY + BROKEN.split("\n", 1)[1], False),
    ("in the other order", BROKEN + AWAY.split("\n", 1)[1], False),
    ("another error", BUSY, False),
    ("a case that does not say why", "not ok {n} - {name}\n", False),
    ("only what follows", "not ok {n} - {name}\n" + FOLLOWS, False),
    ("a case that hung", "not ok {n} - {name}\n#   did not end within 120 s\n", False),
    ("a case that was skipped", AWAY + "ok 2 - b # skip\n", False),
    ("cases missing", AWAY + "missing\n", False),
]

failed = 0
for number, (name, text, want) in enumerate(CASES, 1):
    text = text.format(n=1, name="a")
    planned = text.count("ok ") + (1 if "missing" in text else 0)
    text += f"1..{planned}\n"
    cases = run_tests.read_tap("contract", "program", text, 1, 1.0)
    good = run_tests.may_again({"protocol": "tap"}, cases, text) == want
    failed += not good
    print(f"{'ok' if good else 'not ok'} {number} - {name}")
print(f"1..{len(CASES)}")
sys.exit(1 if failed else 0)
