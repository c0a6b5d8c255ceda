#!/usr/bin/env python3
"""holdfast run: the lock is lost while the command runs."""
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import LIMIT, LOOK, alive, case, check, main, same, stays, until

# writes its pid, what it is told, and a grandchild in a session of its own
WORK = r"""
cd "$DIR"
trap 'echo term >> told; exit 0' TERM
setsid sleep 1000 & echo $! >> pids
echo $$ >> pids
touch ready
while [ ! -e go ]; do sleep 0.02; done
exit 0
"""
STUBBORN = WORK.replace("exit 0' TERM", "' TERM")


def work(box, *args, script=WORK):
    p = box.start(*args, "a", "sh", "-c", script)
    until(lambda: box.there("ready") or p.poll() is not None, "it works")
    check(p.poll() is None, "ended")
    return p


def broken(box, *args):
    code, out, err = box.tool("break", "--yes", *args, "a")
    same(code, 0, f"break {out} {err}")


def pids(box):
    return [int(p) for p in box.read("pids").split()]


def all_dead(box):
    until(lambda: not [p for p in pids(box) if alive(p)], "all are dead")


@case
def break_(box):
    """break: TERM before the deadline, all dead before the next is admitted, 76."""
    p = work(box, "-t", "10s")
    second = box.start("-t", "10s", "a", "sh", "-c", LOOK)
    until(lambda: box.waiters("a") == 1, "the second waits")
    broken(box)
    code, _, err = box.end(p)
    same(code, 76, "status")
    same(box.read("told"), "term\n", "TERM came")
    check("at risk" in err and "stopping the command" in err, f"message {err!r}")
    same(box.end(second)[0], 0, "the second")
    same(box.read("result").split()[0], "clean", "at its start")


@case
def break_stubborn(box):
    """break of a command that ignores TERM: killed before the next is admitted."""
    p = work(box, "-t", "10s", script=STUBBORN)
    second = box.start("-t", "10s", "a", "sh", "-c", LOOK)
    until(lambda: box.waiters("a") == 1, "the second waits")
    broken(box)
    same(box.end(p)[0], 76, "status")
    check("term" in box.read("told"), "TERM came first")
    same(box.end(second)[0], 0, "the second")
    same(box.read("result").split()[0], "clean", "at its start")


@case
def break_kill(box):
    """break with --on-lost kill: no TERM, dead before the next is admitted."""
    p = work(box, "-t", "10s", "--on-lost", "kill")
    second = box.start("-t", "10s", "a", "sh", "-c", LOOK)
    until(lambda: box.waiters("a") == 1, "the second waits")
    broken(box)
    same(box.end(p)[0], 76, "status")
    same(box.read("told"), "", "no TERM")
    same(box.end(second)[0], 0, "the second")
    same(box.read("result").split()[0], "clean", "at its start")


@case
def break_warn(box):
    """break with --on-lost warn: it is said, the command runs on, 76 although it ends with 0."""
    p = work(box, "-t", "3s", "--on-lost", "warn")
    broken(box)
    same(box.run("-w", "40s", "a", "true")[0], 0, "another gets it")
    stays(lambda: all(alive(q) for q in pids(box)), 1, "it was stopped")
    box.write("go")
    os.kill(pids(box)[0], signal.SIGKILL)
    code, _, err = box.end(p)
    same((code, box.read("told")), (76, ""), "result")
    check("was lost" in err and "runs on" in err, f"message {err!r}")


@case
def break_now(box):
    """break --now: TERM at once, 76."""
    p = work(box, "-t", "60s")
    since = time.monotonic()
    broken(box, "--now")
    code, _, err = box.end(p)
    same((code, box.read("told")), (76, "term\n"), "result")
    check(time.monotonic() - since < LIMIT / 3, f"took {time.monotonic() - since}")
    check("was lost" in err, f"message {err!r}")
    all_dead(box)


@case
def break_now_stubborn(box):
    """break --now: KILL after at most a second."""
    p = work(box, "-t", "60s", script=STUBBORN)
    since = time.monotonic()
    broken(box, "--now")
    same(box.end(p)[0], 76, "status")
    took = time.monotonic() - since
    check(0.7 < took < LIMIT / 3, f"took {took}")
    all_dead(box)


@case
def break_now_kill(box):
    """break --now with --on-lost kill: KILL at once."""
    p = work(box, "-t", "60s", "--on-lost", "kill", script=STUBBORN)
    since = time.monotonic()
    broken(box, "--now")
    same((box.end(p)[0], box.read("told")), (76, ""), "result")
    check(time.monotonic() - since < LIMIT / 3, "at once")
    all_dead(box)


@case
def break_now_warn(box):
    """break --now with --on-lost warn: runs on, 76."""
    p = work(box, "-t", "60s", "--on-lost", "warn", "-q")
    broken(box, "--now")
    same(box.run("-n", "a", "true")[0], 0, "another gets it")
    stays(lambda: all(alive(q) for q in pids(box)), 0.5, "it was stopped")
    box.write("go")
    os.kill(pids(box)[0], signal.SIGKILL)
    same(box.end(p), (76, "", ""), "result, quiet")


@case
def grace(box):
    """--grace: the time from TERM to the end that the command has."""
    p = work(box, "-t", "9s", "--grace", "3s",
             script=WORK.replace("echo term >> told; exit 0",
                                 "echo term >> told; sleep 0.5; echo done >> told; exit 0"))
    broken(box)
    same(box.end(p)[0], 76, "status")
    same(box.read("told"), "term\ndone\n", "it could finish")


@case
def ends_before_deadline(box):
    """A broken run whose command ends before it must be stopped: its own status."""
    p = work(box, "-t", "60s")
    broken(box)
    box.write("go")
    os.kill(pids(box)[0], signal.SIGKILL)
    same(box.end(p)[0], 0, "status")
    same(box.read("told"), "", "no TERM")
    same(box.run("-n", "a", "true")[0], 0, "free")


@case
def lost_just_before_the_end(box):
    """Lost while the command runs is 76 also if the command ends with 0 at that moment."""
    for _ in range(5):
        p = box.start("-q", "--on-lost", "warn", "a", "sh", "-c",
                      '"$HF" break --yes --now a >/dev/null 2>&1; exit 0')
        same(box.end(p)[0], 76, "status")


@case
def store_removed(box):
    """The store folder is taken away: the command is stopped before its deadline."""
    p = work(box, "-t", "3s")
    os.rename(box.path("store"), box.path("gone"))
    code, _, err = box.end(p)
    same(code, 76, f"status {err}")
    all_dead(box)
    os.rename(box.path("gone"), box.path("store"))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
