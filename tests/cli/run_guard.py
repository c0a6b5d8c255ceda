#!/usr/bin/env python3
"""holdfast run: supervisor and guard killed or stopped, with a second run waiting.

The command makes descendants of every kind; the second run's command notes whether any of them
still lives at its start. That is asked by the waiting command itself, so a late death shows.
"""
import ctypes
import os
import signal
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import (LIMIT, LOOK, alive, case, check, end_all, guard_of, main, same, stat_of, state,
                 stays, until)

# in the group; in a session of its own; without environment; then without parent and in a
# session of their own: plain, stubborn with a child, without our environment, without our
# descriptor; last the command itself
TREE = r"""
cd "$DIR"
sleep 1000 & echo $! >> pids
setsid sleep 1000 & echo $! >> pids
env -i sleep 1000 & echo $! >> pids
sh -c 'setsid sh -c "echo \$\$ >> pids; exec sleep 1000" &'
sh -c 'setsid sh -c "trap \"\" TERM INT HUP; echo \$\$ >> pids; sleep 1000 & echo \$! >> pids; wait" &'
sh -c 'env -i setsid sh -c "echo \$\$ >> pids; exec sleep 1000" &'
sh -c 'setsid bash -c "exec 100>&-; echo \$\$ >> pids; exec sleep 1000" &'
echo $$ >> pids
while [ $(wc -l < pids) -lt 9 ]; do sleep 0.01; done
touch ready
while [ ! -e go ]; do sleep 0.02; done
kill -9 $(grep -v "^$$\$" pids) 2>/dev/null
exit 0
"""


# Where the guard must have killed all in time: it has three quarters of a tenth of the ttl.
GUARDED = "10s"


class Pair:
    """A run with its tree of processes, and a second one that waits behind it."""

    def __init__(self, box, ttl, *args):
        self.box = box
        self.first = box.start("-t", ttl, *args, "a", "sh", "-c", TREE,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: box.there("ready") or self.first.poll() is not None, "the tree is up")
        check(self.first.poll() is None, f"ended: {self.first.poll()}")
        self.sup = self.first.pid
        self.guard = until(lambda: guard_of(self.sup), "a guard")
        self.pids = [int(p) for p in box.read("pids").split()]
        self.fence = box.holders("a")[0]["fence"]
        self.second = box.start("-t", ttl, "a", "sh", "-c", LOOK)
        until(lambda: box.waiters("a") == 1, "the second waits")

    def kill(self, pid, sig):
        os.kill(pid, sig)
        if sig == signal.SIGSTOP:
            until(lambda: state(pid) in ("T", "Z", None), f"{pid} has stopped")

    def result(self):
        """Of the second's command: clean or not; its fence is greater."""
        code, _, err = self.box.end(self.second)
        same(code, 0, f"status of the second {err}")
        text, fence = self.box.read("result").rsplit(None, 1)
        check(int(fence) > self.fence, "the fence is not greater")
        return text

    def end_first(self):
        return self.box.end(self.first)[0]

    def all_dead(self):
        until(lambda: not [p for p in self.pids if alive(p)], "all are dead")


def other_guard(sup, before):
    found = guard_of(sup)
    return found if found != before else None


def await_renewal(box, name):
    """Until the time that is left has grown."""
    left = [box.holders(name)[0]["expires_in_ms"]]

    def grown():
        left.append(box.holders(name)[0]["expires_in_ms"])
        return left[-1] > left[-2]
    until(grown, f"{name} is renewed")


@case
def kill_supervisor(box):
    """kill -9 of the supervisor: the second starts after all descendants are dead, and soon."""
    p = Pair(box, "60s")
    since = time.monotonic()
    p.kill(p.sup, signal.SIGKILL)
    same(p.result(), "clean", "at the start of the second")
    check(time.monotonic() - since < LIMIT / 2, f"took {time.monotonic() - since}")
    same(p.end_first(), -9, "the first")


@case
def kill_supervisor_often(box):
    """The same, ten times, with whatever timing comes."""
    for _ in range(10):
        p = Pair(box, "60s")
        p.kill(p.sup, signal.SIGKILL)
        same(p.result(), "clean", "at the start of the second")
        p.end_first()
        p.all_dead()
        for f in ("ready", "pids", "result"):
            os.unlink(box.path(f))


@case
def kill_supervisor_early(box):
    """kill -9 of the supervisor at any moment of the command's start."""
    for i in range(40):
        p = box.start("-t", "60s", "a", "sh", "-c",
                      'echo $$ >> $DIR/pids; setsid sh -c "echo \\$\\$ >> $DIR/pids; exec sleep 1000" & '
                      "exec sleep 1000")
        time.sleep(i * 0.0002)
        p.kill()
        p.wait()
        code, _, err = box.run("-w", "40s", "a", "sh", "-c", LOOK)
        same(code, 0, f"the next {err}")
        if box.there("pids"):
            same(box.read("result").split()[0], "clean", f"at the start of the next, try {i}")
            os.unlink(box.path("pids"))


@case
def stop_supervisor(box):
    """SIGSTOP of the supervisor: all dead before the store grants; at SIGCONT 76."""
    p = Pair(box, GUARDED)
    p.kill(p.sup, signal.SIGSTOP)
    same(p.result(), "clean", "at the start of the second")
    check(p.first.poll() is None and state(p.sup) == "T", "the first is still stopped")
    p.kill(p.sup, signal.SIGCONT)
    same(p.end_first(), 76, "the first")


@case
def stop_supervisor_briefly(box):
    """A supervisor stopped for less than the ttl goes on as if nothing had been."""
    p = Pair(box, "10s")
    p.kill(p.sup, signal.SIGSTOP)
    p.kill(p.sup, signal.SIGCONT)
    stays(lambda: all(alive(q) for q in p.pids), 0.5, "somebody was killed")
    box.write("go")
    same(p.end_first(), 0, "the first")
    p.result()


@case
def kill_guard(box):
    """A killed guard is replaced, and the new one does the same work."""
    p = Pair(box, "60s")
    for _ in range(3):
        before = p.guard
        p.kill(before, signal.SIGKILL)
        p.guard = until(lambda: other_guard(p.sup, before), "another guard")
        check(all(alive(q) for q in p.pids), "the command was hurt")
    p.kill(p.sup, signal.SIGKILL)
    same(p.result(), "clean", "at the start of the second")
    same(p.end_first(), -9, "the first")


@case
def kill_guard_then_stop_supervisor(box):
    """The new guard knows the deadline too."""
    p = Pair(box, GUARDED)
    before = p.guard
    p.kill(before, signal.SIGKILL)
    p.guard = until(lambda: other_guard(p.sup, before), "another guard")
    p.kill(p.sup, signal.SIGSTOP)
    same(p.result(), "clean", "at the start of the second")
    p.kill(p.sup, signal.SIGCONT)
    same(p.end_first(), 76, "the first")


@case
def stop_guard(box):
    """A stopped guard changes nothing: the lock is renewed and the command ends as it likes."""
    p = Pair(box, "3s")
    p.kill(p.guard, signal.SIGSTOP)
    stays(lambda: p.first.poll() is None and not box.there("result"), 5, "the lock was not kept")
    box.write("go")
    same(p.end_first(), 0, "the first")
    p.result()
    check(stat_of(p.guard) is None, "the guard is left")


@case
def stop_guard_and_continue(box):
    """A guard that was stopped past many deadlines does not act on an old one."""
    p = Pair(box, "3s")
    p.kill(p.guard, signal.SIGSTOP)
    stays(lambda: p.first.poll() is None, 5, "ended")
    p.kill(p.guard, signal.SIGCONT)
    stays(lambda: p.first.poll() is None and all(alive(q) for q in p.pids), 0.7, "was killed")
    box.write("go")
    same(p.end_first(), 0, "the first")
    p.result()


@case
def kill_both(box):
    """Both killed: the command itself dies; its descendants keep the name (local:)."""
    p = Pair(box, "60s")
    were = {q: stat_of(q) for q in p.pids}
    command = [q for q, s in were.items() if s["pgrp"] == q and s["session"] != q]
    same(len(command), 1, "the leader of the group")
    os.kill(p.sup, signal.SIGSTOP)
    os.kill(p.guard, signal.SIGKILL)
    os.kill(p.sup, signal.SIGKILL)
    same(p.end_first(), -9, "the first")
    until(lambda: not alive(command[0]), "PDEATHSIG has ended the command")
    left = [q for q in p.pids if alive(q)]
    check(left, "descendants live")
    stays(lambda: not box.there("result"), 1, "the name was given away while they live")
    # whoever closed our descriptor does not keep the name, so it is to be gone before the others
    closed = [q for q in left if not os.path.exists(f"/proc/{q}/fd/100")]
    check(closed and len(closed) < len(left), "some have the descriptor, some have not")
    end_all(closed)
    until(lambda: not [q for q in closed if alive(q)], "those without the descriptor are dead")
    end_all(q for q in left if q not in closed)
    same(p.result(), "clean", "at the start of the second")


@case
def kill_both_ttl(box):
    """Both killed and descendants that stay: the name is free after the ttl at the latest."""
    p = Pair(box, "2s")
    os.kill(p.sup, signal.SIGSTOP)
    os.kill(p.guard, signal.SIGKILL)
    os.kill(p.sup, signal.SIGKILL)
    check(p.result().startswith("alive"), "only the fence protects")
    p.end_first()
    end_all(p.pids)


@case
def stop_both(box):
    """Both stopped: only the fence protects; at SIGCONT all are killed and it is 76."""
    p = Pair(box, "3s")
    p.kill(p.sup, signal.SIGSTOP)
    p.kill(p.guard, signal.SIGSTOP)
    check(p.result().startswith("alive"), "only the fence protects")
    p.kill(p.sup, signal.SIGCONT)
    same(p.end_first(), 76, "the first")
    p.all_dead()
    check(stat_of(p.guard) is None, "the guard is left")


@case
def stop_both_guard_first(box):
    """Both stopped, the guard goes on first: it kills, and the supervisor says 76."""
    p = Pair(box, "3s")
    p.kill(p.sup, signal.SIGSTOP)
    p.kill(p.guard, signal.SIGSTOP)
    p.result()
    p.kill(p.guard, signal.SIGCONT)
    p.all_dead()
    p.kill(p.sup, signal.SIGCONT)
    same(p.end_first(), 76, "the first")


@case
def stop_guard_kill_supervisor(box):
    """The guard stopped, the supervisor killed: the name stays taken until the guard has worked."""
    p = Pair(box, "60s")
    p.kill(p.guard, signal.SIGSTOP)
    p.kill(p.sup, signal.SIGKILL)
    same(p.end_first(), -9, "the first")
    stays(lambda: not box.there("result"), 0.7, "the name was given away")
    p.kill(p.guard, signal.SIGCONT)
    same(p.result(), "clean", "at the start of the second")


@case
def kill_while_waiting(box):
    """kill -9 of a waiting run: its guard ends too and the line goes on."""
    p = Pair(box, "60s")
    guard = until(lambda: guard_of(p.second.pid), "its guard")
    p.second.kill()
    p.second.wait()
    until(lambda: not alive(guard), "the guard has ended")
    third = box.start("a", "true")
    box.write("go")
    same(p.end_first(), 0, "the first")
    same(box.end(third)[0], 0, "the third")


@case
def hidden_orphan(box):
    """An orphan without group, session, environment and descriptor is found if it was seen."""
    hide = ('cd "$DIR"; bash -c \'exec 100>&-; env -i setsid sh -c "echo \\$\\$ >> pids; exec sleep 1000" &\'; '
            "until [ -s pids ]; do sleep 0.01; done; touch ready; exec sleep 1000")
    p = box.start("-t", "3s", "a", "sh", "-c", hide,
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: box.there("ready"), "up")
    for _ in range(2):  # the supervisor sees it at a renewal
        await_renewal(box, "a")
    p.kill()
    p.wait()
    code, _, err = box.run("-w", "40s", "a", "sh", "-c", LOOK)
    same(code, 0, f"the next {err}")
    same(box.read("result").split()[0], "clean", "at its start")


@case
def fork_storm(box):
    """A command that forks without end is caught as a whole."""
    storm = ('cd "$DIR"; cat > storm.sh <<"X"\n'
             'i=0; while [ $i -lt 30 ]; do setsid sh -c "exec sleep 1000" & i=$((i+1)); done\n'
             'while [ ! -e never ]; do (setsid sleep 1000 &); sleep 0.003; done\nX\n'
             "touch ready; exec sh storm.sh")
    first = box.start("-t", "60s", "a", "sh", "-c", storm)
    until(lambda: box.there("ready") and len(box.ours()) > 20, "it storms")
    first.kill()
    first.wait()
    code, _, err = box.run("-w", "40s", "a", "sh", "-c", 'touch "$DIR/second"')
    same(code, 0, f"the next {err}")
    same([s for s in map(stat_of, box.ours()) if s and s["name"] == "sleep"], [], "left")


@case
def nested_run_dies_whole(box):
    """The outer supervisor is killed: the inner run and all below it die before the grant."""
    inner = ('cd "$DIR"; echo $$ >> pids; setsid sleep 1000 & echo $! >> pids; '
             "sh -c 'setsid sh -c \"echo \\$\\$ >> pids; exec sleep 1000\" &'; "
             "while [ $(wc -l < pids) -lt 3 ]; do sleep 0.01; done; touch ready; exec sleep 1000")
    first = box.start("-t", "60s", "a", box.holdfast, "run", "-t", "60s", "b", "sh", "-c", inner)
    until(lambda: box.there("ready"), "up")
    second = box.start("a", "sh", "-c", LOOK)
    until(lambda: box.waiters("a") == 1, "the second waits")
    first.kill()
    first.wait()
    same(box.end(second)[0], 0, "the second")
    same(box.read("result").split()[0], "clean", "at its start")
    same(box.run("-w", "40s", "b", "true")[0], 0, "b is free")


# ---- another PID namespace's /proc -------------------------------------------------------------

PID_NS = (["unshare"] if os.geteuid() == 0 else ["unshare", "-r"]) + ["-p", "-f"]
NO_PROC = "there is no /proc of this PID namespace"

# Started as number N of the new namespace, where N is also its number in this one.
SAME_NUMBER = r"""
import os, sys
here = os.getpid()
for _ in range(10000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as f:
        f.write(str(here))
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        if os.readlink("/proc/self") == str(os.getpid()):
            os.execv(sys.argv[1], sys.argv[1:])
        os.write(w, os.readlink("/proc/self").encode())
        os._exit(255)
    os.close(w)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 255:
        sys.exit(status)
    here = int(os.read(r, 16))
    os.close(r)
sys.exit("never got the number")
"""


def refuse_readlinkat():
    """A filter of system calls: /proc/self cannot be read."""
    number = {"x86_64": 267, "aarch64": 78}[os.uname().machine]
    code = b"".join(struct.pack("HBBI", *line) for line in (
        (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7fff0000)))
    libc, buf = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", 4, ctypes.addressof(buf))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def elsewhere(box, *args):
    """Starts it in a PID namespace of its own, with the /proc of ours."""
    if subprocess.run([*PID_NS, "true"], stderr=subprocess.DEVNULL).returncode == 0:
        return box.popen([*PID_NS, *args])
    print("# no PID namespace can be made here: a filter of system calls instead", flush=True)
    return box.popen(args, preexec_fn=refuse_readlinkat)


@case
def foreign_proc(box):
    """With the /proc of another PID namespace the whole group is ended all the same, and it is said."""
    code, _, err = box.end(elsewhere(box, box.holdfast, "run", "--at-most", "2s", "a", "sh", "-c",
                                     "trap '' TERM; sleep 1000 & sleep 1000; sleep 1000"))
    same(code, 124, f"status {err}")
    same(err.count(NO_PROC), 1, f"warnings in {err!r}")
    same(box.run("a", "true"), (0, "", ""), "here nothing is said")


@case
def foreign_proc_kill_supervisor(box):
    """The same with a killed supervisor: its guard ends the group, then itself, and no stranger."""
    p = elsewhere(box, "sh", "-c", '"$HF" run -t 60s a sh -c "sleep 1000 & sleep 1000" & run=$!; '
                  "for i in 0 1 2 3 4 5 6 7 8 9; do sleep 2000 & all=\"$all $!\"; done; wait $run; echo $? > $DIR/status; "
                  "until [ -e $DIR/go ]; do sleep 0.02; done; kill -9 $all")

    def running(*words):
        """Those with one of the words among their arguments, or as their name."""
        found = []
        for q in box.ours():
            try:
                with open(f"/proc/{q}/cmdline", "rb") as f:
                    args = f.read().decode().split("\0") + [(stat_of(q) or {}).get("name")]
            except OSError:
                continue
            found += [q] if set(words) & set(args) and "-c" not in args else []
        return found
    until(lambda: len(running("1000")) == 2 and len(running("2000")) == 10, "all run")
    supervisor = [q for q in box.ours() if stat_of(q)["name"] == "holdfast"]
    same(len(supervisor), 1, "supervisors")
    os.kill(supervisor[0], signal.SIGKILL)
    until(lambda: box.read("status").strip() == "137", "the supervisor has died")
    until(lambda: not running("1000", "hf-guard"), "the guard has ended them and itself")
    same(len(running("2000")), 10, "strangers")
    box.write("go")
    box.end(p)


@case
def foreign_proc_same_number(box):
    """A /proc in which we have the very number that we have here is another's all the same."""
    if os.geteuid() != 0 or subprocess.run([*PID_NS, "true"], stderr=subprocess.DEVNULL).returncode:
        print("# numbers cannot be chosen here", flush=True)
        return
    code, _, err = box.end(elsewhere(box, sys.executable, "-c", SAME_NUMBER, box.holdfast, "run",
                                     "--at-most", "1s", "a", "sh", "-c", "sleep 1000 & sleep 1000"))
    same(code, 124, f"status {err}")
    same(err.count(NO_PROC), 1, f"warnings in {err!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
