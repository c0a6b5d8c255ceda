#!/usr/bin/env python3
"""holdfast run inside holdfast run: --reenter, and an environment that outlives its run."""
import os
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import LOOK, alive, case, check, guard_of, main, same, state, stays, until

# A script that locks itself, as README has it; it writes when it begins and when it ends.
JOB = """#!/bin/sh
set -u
[ "${1-}" = --locked ] || exec "$HF" run --reenter job -- sh "$0" --locked "$@"
shift
echo "begin $* $HOLDFAST_FENCE" >> "$DIR/log"
sleep "${1-0.3}"
echo "end $*" >> "$DIR/log"
"""
# Holds until the file `go` is there; says who it is.
INSIDE = 'echo $$ >> $DIR/pids; touch $DIR/inside; while [ ! -e $DIR/go ]; do sleep 0.02; done'


def job(box):
    with open(box.path("job.sh"), "w") as f:
        f.write(JOB)
    os.chmod(box.path("job.sh"), 0o755)


def log(box):
    return box.read("log").splitlines()


def one_at_a_time(lines):
    return all(line.startswith("end" if i % 2 else "begin") for i, line in enumerate(lines))


def pids(box):
    return [int(p) for p in box.read("pids").split()]


def inside(box, *args, outer=("-t", "10s"), more=""):
    """A run that holds a and starts another, which enters; returns the outer one."""
    p = box.start(*outer, "a", "sh", "-c", f'"$HF" run --reenter {" ".join(args)} a sh -c "$INSIDE" {more}',
                  env=dict(box.env, INSIDE=INSIDE))
    until(lambda: box.there("inside") or p.poll() is not None, "it is inside")
    check(p.poll() is None, f"ended: {p.stderr.read() if p.poll() is not None else ''}")
    return p


@case
def reenter(box):
    """--reenter: inside the run that holds the name, at once, with its fence; else as a run of its own."""
    show = 'echo "$HOLDFAST_NAME $HOLDFAST_FENCE"'
    code, out, err = box.run("a", "sh", "-c", f'{show}; "$HF" run -v --reenter a sh -c \'{show}; exit 3\'; echo $?; '
                             f'"$HF" run b "$HF" run --reenter a sh -c \'{show}\'')
    lines = out.splitlines()
    same((code, lines[0], lines[1], lines[2], lines[3]), (0, lines[0], lines[0], "3", lines[0]), f"result {err}")
    check("held by a run around this one" in err, f"-v says so: {err!r}")
    code, out, err = box.run("--reenter", "a", "sh", "-c", show)
    same((code, out.split()[0]), (0, "a"), f"alone: {err}")
    check(int(out.split()[1]) > int(lines[0].split()[1]), "its own fence")


@case
def self_locking_script(box):
    """A self-locking script: alone, by its parent's lock, twice at once, as `sh job.sh`."""
    job(box)
    same(box.end(box.popen(["sh", "job.sh", "0.1", "x y"], cwd=box.dir))[0], 0, "sh job.sh")
    check(log(box)[0].startswith("begin 0.1 x y ") and log(box)[1] == "end 0.1 x y", f"arguments: {log(box)}")
    same(box.run("job", box.path("job.sh"))[0], 0, "inside a run for the name")
    same(box.run("other", box.path("job.sh"))[0], 0, "inside a run for another one")
    both = [box.popen([box.path("job.sh")]) for _ in range(2)]
    same([box.end(p)[0] for p in both], [0, 0], "two")
    same((len(log(box)), one_at_a_time(log(box))), (10, True), f"one at a time: {log(box)}")


@case
def leaked_environment(box):
    """What outlives its run, and keeps its environment, locks as everybody does."""
    job(box)
    same(box.run("job", "sh", "-c", 'setsid sh -c "until [ -e $DIR/ended ]; do sleep 0.02; done; '
                 '$DIR/job.sh & $DIR/job.sh; wait; touch $DIR/done" > $DIR/out 2>&1 &')[0], 0, "status")
    box.write("ended")
    until(lambda: box.there("done"), "both have ended")
    same((len(log(box)), one_at_a_time(log(box))), (4, True), f"one at a time: {log(box)} {box.read('out')!r}")
    same(box.read("out"), "", "neither was refused as a child of the ended run")


@case
def outer_ends_first(box):
    """The name is not given back while a run that has entered goes on."""
    p = inside(box, more="> /dev/null 2>&1 & until [ -e $DIR/inside ]; do sleep 0.02; done; echo $$ > $DIR/outer")
    command = int(until(lambda: box.read("outer").strip(), "the outer command is done"))
    until(lambda: not alive(command), "it has ended")
    stays(lambda: box.held("a"), 0.5, "given back")
    box.write("go")
    same(box.end(p)[0], 0, "status")
    same(box.run("-n", "a", "true")[0], 0, "free")


@case
def outer_killed(box):
    """The outer run is killed: what has entered is dead before another gets the name."""
    p = inside(box)
    second = box.start("a", "sh", "-c", LOOK)
    until(lambda: box.waiters("a") == 1, "the second waits")
    p.kill()
    same(box.end(second)[0], 0, "the second")
    same(box.read("result").split()[0], "clean", "at its start")


@case
def outer_lost(box):
    """The lock is lost: what has entered is stopped before another gets the name."""
    p = inside(box)
    second = box.start("a", "sh", "-c", LOOK)
    until(lambda: box.waiters("a") == 1, "the second waits")
    same(box.tool("break", "--yes", "a")[0], 0, "break")
    same(box.end(p)[0], 76, "status")
    same(box.end(second)[0], 0, "the second")
    same(box.read("result").split()[0], "clean", "at its start")


@case
def inner_killed(box):
    """The inner run is killed: the name is given back when its command is dead."""
    p = inside(box, more="> /dev/null 2>&1 & echo $! > $DIR/inner; wait")
    second = box.start("a", "sh", "-c", LOOK)
    until(lambda: box.waiters("a") == 1, "the second waits")
    os.kill(int(until(lambda: box.read("inner").strip(), "its number")), signal.SIGKILL)
    same(box.end(second)[0], 0, "the second")
    same(box.read("result").split()[0], "clean", "at its start")
    box.end(p)


@case
def both_of_outer_killed(box):
    """The outer run and its guard are killed: the inner run ends its command by itself."""
    p = inside(box)
    guard = until(lambda: guard_of(p.pid), "a guard")
    for pid in (guard, p.pid):
        os.kill(pid, signal.SIGSTOP)
    until(lambda: state(guard) == "T" and state(p.pid) == "T", "both are stopped")
    for pid in (guard, p.pid):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not [q for q in pids(box) if alive(q)], "the command is dead")
    box.end(p)


@case
def not_into_what_it_is_not(box):
    """A shared hold is not entered by an exclusive one; a stopped run does not answer."""
    text = '"$HF" run --reenter {} a true; echo $?'
    same(box.run("-s", "a", "sh", "-c", text.format(""))[:2], (0, "75\n"), "exclusive in shared")
    same(box.run("-s", "a", "sh", "-c", text.format("-s"))[:2], (0, "0\n"), "shared in shared")
    same(box.run("a", "sh", "-c", text.format("-s"))[:2], (0, "0\n"), "shared in exclusive")
    same(box.run("--permits", "1/2", "a", "sh", "-c", text.format(""))[1], "75\n", "in permits")
    p = box.start("-t", "60s", "a", "sh", "-c", f'read x; ({text.format("-n")}) > $DIR/out', stdin=subprocess.PIPE)
    until(lambda: box.holders("a"), "it holds")
    p.send_signal(signal.SIGSTOP)
    until(lambda: state(p.pid) == "T", "stopped")
    p.stdin.write(b"x\n")
    p.stdin.close()
    until(lambda: box.read("out"), "refused")
    p.send_signal(signal.SIGCONT)
    p.stdin = None
    same((box.end(p)[0], box.read("out")), (0, "75\n"), "no answer")


@case
def another_store(box):
    """A run inside a run of another store is refused, with both named, unless -u is given."""
    os.mkdir(box.path("other"), 0o700)
    other = f"local://{box.dir}/other"
    code, out, err = box.run("a", "sh", "-c", f'HOLDFAST_URL={other}; "$HF" run -n a echo two; echo $?')
    same((code, out), (0, "64\n"), "result")
    check(f"in {box.env['HOLDFAST_URL']}," in err and f"is {other} (HOLDFAST_URL)" in err, f"message {err!r}")
    env = {k: v for k, v in box.env.items() if k != "HOLDFAST_URL"}
    p = box.popen([box.holdfast, "-u", other, "run", "a", "sh", "-c", '"$HF" run -n a echo two; echo $?'], env=env)
    code, out, err = box.end(p)
    same((code, out), (0, "64\n"), f"-u is not inherited: {err}")
    check("(the default)" in err or ".conf)" in err, f"says where the store comes from: {err!r}")
    code, out, err = box.run("a", "sh", "-c", f'"$HF" -u {other} run -n a echo two; echo $?')
    same((code, out), (0, "two\n0\n"), f"-u: {err}")


@case
def another_user(box):
    """`local:` is another folder for each user: it is named, and the run of another user inside is refused."""
    if os.geteuid() != 0:
        return  # there is no other user whom we may become
    env = {k: v for k, v in box.env.items() if k != "HOLDFAST_URL"}
    inner = '"$HF" run -n a echo two; echo $?; echo $HOLDFAST_STORE; "$HF" show a | grep ^store'
    became = 'setpriv --reuid 65534 --regid 65534 --clear-groups "$HF" run -n a echo three; echo $?'
    code, out, err = box.end(box.popen(
        ["unshare", "-m", "sh", "-c", "mkdir -p /run/lock; mount -t tmpfs -o mode=1777 none /run/lock && "
         f"exec \"$HF\" run -v a sh -c '{inner}; {became}'"], env=env))
    folder = "local:///run/lock/holdfast-"
    same((code, out), (0, f"75\n{folder}0\nstore      {folder}0\n64\n"), f"result, said {err!r}")
    check(f"a in {folder}0: waited" in err and f"in {folder}0, but the store here is {folder}65534" in err,
          f"message {err!r}")


# Listens under the word of a run, as its own user or as nobody, and lets everybody in.
DOOR = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if sys.argv[2] == "other":
    os.setresuid(65534, 65534, 65534)
s.bind("\\0holdfast-run-" + sys.argv[1])
s.listen(16)
print("listens", flush=True)
while True:
    c, _ = s.accept()
    if c.recv(16384):
        c.send(b"7")
        c.recv(1)
"""


@case
def not_through_the_door_of_another_user(box):
    """The word of a run can be seen by all users: one of them who listens under it later is not believed."""
    if os.geteuid() != 0:
        return  # there is no other user whom we may become
    for who in "own", "other":  # the first shows that the question is understood
        word = f"abc-{os.getpid():x}{who}"
        door = box.popen([sys.executable, "-c", DOOR, word, who])
        same(door.stdout.readline(), b"listens\n", "the door")
        code, out, err = box.run("-v", "--reenter", "a", "true", env=dict(box.env, HOLDFAST_RUN=word))
        same(code, 0, f"status {err}")
        same("is held by a run around this one" in err, who == "own", f"entered by the door of {who}: {err!r}")
        door.kill()
        box.end(door)


@case
def words_of_dead_runs(box):
    """HOLDFAST_RUN does not grow for ever, and keeps the words of those who live."""
    code, out, err = box.run("a", "sh", "-c", """
        i=0; first=$HOLDFAST_RUN
        while [ $i -lt 40 ]; do
            i=$((i + 1)); HOLDFAST_RUN=$("$HF" run b printenv HOLDFAST_RUN); export HOLDFAST_RUN
        done
        echo "$HOLDFAST_RUN" | wc -w
        case " $HOLDFAST_RUN " in *" $first "*) echo kept ;; esac""")
    same(code, 0, f"status {err}")
    words, kept = out.split()
    check(int(words) <= 20 and kept == "kept", f"{out!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
