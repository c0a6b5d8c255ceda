#!/usr/bin/env python3
"""holdfast run on a server: what it says of the holder, and while the server cannot be reached."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import (LOOK, Redis, Terminal, alive, case, check, children, end_all, guard_of, main, same, stays, status_of,
                 until)

def library(box):
    linked = subprocess.run(["ldd", box.holdfast], capture_output=True, text=True).stdout
    return [line.split("=>")[1].split()[0] for line in linked.splitlines()
            if "libholdfast" in line and "=> /" in line]


def modules(box):
    """Where `backends` says that the driver is."""
    return [b["detail"] for b in json.loads(box.tool("backends", "--json")[1]) if b["name"] == "redis"]


HOLD = "touch $DIR/held; until [ -e $DIR/go ]; do sleep 0.02; done"


@case
def says_who(box):
    """-n, -w and --also: who holds it, where, since when and why, as on local:."""
    server = Redis(box)
    p = box.start("--note", "nightly", "b", "sh", "-c", HOLD)
    until(lambda: box.there("held"), "held")
    for args, why in ((("-n", "b"), ""), (("-w", "300ms", "b"), "not granted in time: "), (("-n", "--also", "b", "a"), "")):
        code, _, err = box.run(*args, "true")
        same(code, 75, f"status of {args}")
        check(err.startswith(f"holdfast: b: {why}held by pid {p.pid} on ") and
              f"(nightly), in redis+unix://{box.dir}/redis.sock\n" in err, f"message of {args}: {err!r}")
    box.write("go")
    same(box.end(p)[0], 0, "status")
    server.kill()


@case
def says_store(box):
    """A waiting run whose store cannot be reached says so, and not who held it."""
    server = Redis(box)
    p = box.start("-t", "3s", "a", "sh", "-c", HOLD)
    until(lambda: box.there("held"), "held")
    with open(box.path("err"), "w") as err:
        w = box.start("-v", "a", "true", stderr=err)
    until(lambda: "number 1 in line" in box.read("err"), "it waits")
    t = Terminal(box)
    t.line('"$HF" run -t 60s a true')
    t.expect("number 2 in line")
    server.kill()
    until(lambda: "the store does not answer: " in box.read("err"), "-v says so")
    t.expect("the store does not answer (")
    t.expect(" s): ")
    t.expect("\r\x1b[K")
    t.send("\x03")
    w.terminate()
    same(box.end(w)[0], -signal.SIGTERM, "the waiting one")
    same(t.status(), 130, "the other")
    t.close()
    same(box.end(p)[0], 76, "the holder")


@case
def ends_while_unreachable(box):
    """The command has ended, the store cannot be reached: we end soon, and say when the name is free."""
    server = Redis(box)
    p = box.start("-t", "60s", "a", "sh", "-c", HOLD)
    until(lambda: box.there("held"), "held")
    server.kill()
    since = time.monotonic()
    box.write("go")
    code, _, err = box.end(p)
    same(code, 0, "status")
    check(time.monotonic() - since < 4.5, f"took {time.monotonic() - since} s")
    check("a could not be given back" in err and "ends by itself in" in err, f"message {err!r}")


@case
def lost_while_unreachable(box):
    """The lock is lost, the store cannot be reached: 76 without waiting for it."""
    server = Redis(box)
    p = box.start("-t", "3s", "a", "sh", "-c", "trap 'date +%s.%N > $DIR/told; exit' TERM; " + HOLD)
    until(lambda: box.there("held"), "held")
    server.kill()
    same(box.end(p)[0], 76, "status")
    took = time.time() - float(box.read("told"))
    check(took < 4, f"took {took} s after TERM")


FAMILY = ("setsid sh -c 'echo $$ >> $DIR/pids; exec sleep 1000' & echo $$ >> $DIR/pids; "
          "until [ $(wc -l < $DIR/pids) = 2 ]; do sleep 0.02; done; touch $DIR/held; wait")


def killed(box, *args, command=("sh", "-c", FAMILY), ready=None, start=None, ttl="60s"):
    """A run is killed while another waits: how long that takes to get the name, and what it saw."""
    p = (start or box.start)("-t", ttl, *args, "a", *command)
    until(ready or (lambda: box.there("held")), "held")
    second = box.start("a", "sh", "-c", LOOK)
    until(lambda: box.waiters("a") == 1, "the second waits")
    pid = box.holders("a")[0]["pid"]
    since = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    same(box.end(second)[0], 0, "the second")
    took = time.monotonic() - since
    box.end(p)
    return took, box.read("result").split()[0]


@case
def killed_is_free_at_once(box):
    """A killed run: the name is free when its command is dead, not after the ttl; so are all of --also."""
    server = Redis(box)
    took, seen = killed(box, "--also", "b")
    same(seen, "clean", "at the start of the second")
    check(took < 20, f"took {took} s of 60")
    since = time.monotonic()
    same(box.run("-w", "40s", "b", "true")[0], 0, "the other name")
    check(time.monotonic() - since < 20, f"took {time.monotonic() - since} s of 60")
    server.kill()


@case
def killed_by_pattern(box):
    """pkill -f 'holdfast run': the guard is not hit, ends the command and then the ticket."""
    server = Redis(box)
    p = box.start("-t", "60s", "a", "sh", "-c", FAMILY)
    until(lambda: box.there("held"), "held")
    guard = until(lambda: guard_of(p.pid), "a guard")
    with open(f"/proc/{guard}/cmdline", "rb") as f:
        same(f.read().rstrip(b"\0"), f"hf-guard of {p.pid}".encode(), "its arguments")
    same(status_of(guard, "Name"), "hf-guard", "its name")
    second = box.start("a", "sh", "-c", LOOK)
    until(lambda: box.waiters("a") == 1, "the second waits")
    for pid in box.ours():  # as pkill does, but only of this case
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().replace(b"\0", b" ")
            if b"run -t 60s a" in words:
                os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):  # the guard was faster
            pass
    since = time.monotonic()
    same(box.end(second)[0], 0, "the second")
    same(box.read("result").split()[0], "clean", "at its start")
    check(time.monotonic() - since < 20, f"took {time.monotonic() - since} s of 60")
    box.end(p)
    server.kill()


@case
def killed_but_slow_to_die(box):
    """A killed run that gets no processor closes its descriptors long before it is dead: the guard waits for that."""
    server = Redis(box)
    p = box.start("-t", "60s", "a", "sh", "-c", FAMILY)
    until(lambda: box.there("held"), "held")
    guard = until(lambda: guard_of(p.pid), "a guard")
    cpu = {min(os.sched_getaffinity(0))}
    busy = box.popen(["sh", "-c", "while :; do :; done"], preexec_fn=lambda: os.sched_setaffinity(0, cpu))
    for pid in p.pid, guard:
        os.sched_setaffinity(pid, cpu)
    os.sched_setscheduler(p.pid, os.SCHED_IDLE, os.sched_param(0))
    since = time.monotonic()
    os.kill(p.pid, signal.SIGKILL)
    box.end(p)
    busy.kill()
    box.end(busy)
    same(box.run("-w", "20s", "a", "true")[0], 0, "another")
    check(time.monotonic() - since < 30, f"took {time.monotonic() - since} s of 60")
    server.kill()


@case
def killed_keeps_at_least(box):
    """A killed run with --at-least: the name stays taken until then."""
    server = Redis(box)
    took, seen = killed(box, "--at-least", "8s")
    same(seen, "clean", "at the start of the second")
    check(5 < took < 25, f"took {took} s")
    server.kill()


@case
def killed_keeps_at_least_beyond_the_ttl(box):
    """The same for longer than the ttl: a place that is kept by no process, for all names."""
    server = Redis(box)
    began = time.monotonic()
    p = box.start("-t", "3s", "--at-least", "12s", "--also", "b", "a", "sh", "-c", FAMILY)
    until(lambda: box.there("held"), "held")
    os.kill(box.holders("a")[0]["pid"], signal.SIGKILL)
    box.end(p)
    until(lambda: all(h["kept"] for n in "ab" for h in box.holders(n)), "kept")
    for name in "ba":
        same(box.run("-w", "40s", name, "true")[0], 0, f"{name} in the end")
        check(time.monotonic() - began > 11, f"{name} after {time.monotonic() - began} s of 12")
    server.kill()


@case
def stopped_for_two_ttls(box):
    """A supervisor that is stopped is not dead: the ttl decides, and neither its end nor its going on harms the next."""
    server = Redis(box)
    for sig, code in (signal.SIGCONT, 76), (signal.SIGKILL, -9):
        p = box.start("-t", "3s", "a", "sh", "-c", FAMILY)
        until(lambda: box.there("held"), "held")
        second = box.start("a", "sh", "-c", LOOK + "until [ -e $DIR/go ]; do sleep 0.02; done")
        until(lambda: box.waiters("a") == 1, "the second waits")
        since = time.monotonic()
        p.send_signal(signal.SIGSTOP)
        until(lambda: box.read("result").endswith("\n"), "the second runs")
        check(time.monotonic() - since > 1.5, f"after {time.monotonic() - since} s of 3")
        same(box.read("result").split()[0], "clean", "at the start of the second")
        until(lambda: time.monotonic() - since > 6, "two ttls")
        p.send_signal(sig)
        same(box.end(p)[0], code, "the first")
        stays(lambda: [h["pid"] for h in box.holders("a")] == [second.pid], 1.5, "the second lost it")
        box.write("go")
        same(box.end(second)[0], 0, "the second")
        for name in "held", "pids", "result", "go":
            os.unlink(box.path(name))
    server.kill()


@case
def killed_while_the_store_is_frozen(box):
    """A store that does not answer when a run is killed is asked again: the name is free when it does."""
    server = Redis(box)
    plain = box.env["HOLDFAST_URL"]
    box.env["HOLDFAST_URL"] += "?connect_timeout=500ms"
    p = box.start("-t", "60s", "a", "sh", "-c", FAMILY)
    until(lambda: box.there("held"), "held")
    guard = until(lambda: guard_of(p.pid), "a guard")
    server.p.send_signal(signal.SIGSTOP)
    os.kill(p.pid, signal.SIGKILL)
    box.end(p)

    def ending():
        with open(f"/proc/{guard}/cmdline", "rb") as f:
            return f.read().startswith(b"hf-guard ending")
    until(ending, "the guard ends the tickets")
    stays(lambda: alive(guard), 2.5, "it gave up")
    server.p.send_signal(signal.SIGCONT)
    since = time.monotonic()
    box.env["HOLDFAST_URL"] = plain
    same(box.run("-w", "50s", "a", "true")[0], 0, "another")
    check(time.monotonic() - since < 20, f"took {time.monotonic() - since} s of 60")
    server.kill()


@case
def killed_with_a_new_guard(box):
    """The same with a guard that has replaced a killed one."""
    server = Redis(box)
    first = []

    def replaced():
        holders = box.there("held") and box.holders("a")
        if holders and not first:
            first.append(guard_of(holders[0]["pid"]))
            os.kill(first[0], signal.SIGKILL)
        guard = holders and guard_of(holders[0]["pid"])
        return guard and guard != first[0] and status_of(guard, "Name") == "hf-guard"
    took, seen = killed(box, ready=replaced)
    same(seen, "clean", "at the start of the second")
    check(took < 20, f"took {took} s of 60")
    server.kill()


@case
def killed_beside_a_foreign_proc(box):
    """Without a /proc of its own the guard cannot know that nothing is left: the ttl decides."""
    apart = ["unshare", "-p", "-f"] if os.geteuid() == 0 else ["unshare", "-r", "-p", "-f"]
    if subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL).returncode:
        print("# no PID namespace can be made here", flush=True)
        return
    server = Redis(box)
    # not as the first process of the namespace, with which all others end
    p = box.popen([*apart, "sh", "-c", '"$HF" run -t 8s a sh -c "touch $DIR/held; sleep 1000"; '
                   "until [ -e $DIR/go ]; do sleep 0.02; done"])
    until(lambda: box.there("held"), "held")
    supervisor = [q for q in box.ours() if status_of(q, "Name") == "holdfast"]
    same(len(supervisor), 1, "supervisors")
    since = time.monotonic()
    os.kill(supervisor[0], signal.SIGKILL)
    same(box.run("-w", "40s", "a", "true")[0], 0, "another gets it")
    check(time.monotonic() - since > 4.5, f"after {time.monotonic() - since} s of 8")
    box.write("go")
    box.end(p)
    server.kill()


@case
def killed_beside_what_may_not_be_killed(box):
    """A program with another user's rights that the guard may not kill: the ttl decides."""
    if os.geteuid() != 0:
        print("# needs root: a set-uid program run by somebody else", flush=True)
        return
    server = Redis(box, "--unixsocketperm", "777")
    folder = tempfile.mkdtemp(prefix="holdfast-run-", dir="/tmp")
    try:
        for path in (folder, box.dir):
            os.chmod(path, 0o755)
        for path in (box.holdfast, *library(box), *modules(box)):
            shutil.copy(path, folder)
        become = shutil.copy(shutil.which("setpriv"), folder + "/become")
        os.chmod(become, 0o4755)
        env = dict(box.env, LD_LIBRARY_PATH=folder, HOLDFAST_MODULE_DIR=folder)
        who = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/", "env": env}
        tool = folder + "/" + os.path.basename(box.holdfast)
        for command, free in (([become, "--reuid", "0", "--keep-groups", "sleep", "31"], False), (["sleep", "31"], True)):
            p = box.popen([tool, "run", "-q", "-t", "8s", "a", *command], **who)
            holder = until(lambda: box.holders("a"), "held")[0]["pid"]
            left = until(lambda: [q for q, s in children(holder) if s["name"] == "sleep"], "it runs")
            since = time.monotonic()
            os.kill(holder, signal.SIGKILL)
            same(box.run("-w", "40s", "a", "true")[0], 0, "another gets it")
            took = time.monotonic() - since
            check(took < 4.5 if free else took > 4.5, f"{command}: after {took} s of 8")
            same(alive(left[0]), not free, "does it live?")
            end_all(left)
            box.end(p)
    finally:
        shutil.rmtree(folder)
    server.kill()


@case
def warnings(box):
    """What the driver warns of is said once on a terminal, by -v always, and not to cron."""
    server = Redis(box, "--maxmemory-policy", "allkeys-lru")
    same(box.run("a", "true"), (0, "", ""), "without a terminal")
    check("holdfast: warning: " in box.run("-v", "a", "true")[2], "-v")
    same(box.run("-q", "a", "true"), (0, "", ""), "-q")
    t = Terminal(box)
    for args in ("run a true", "ls"):
        t.line(f'"$HF" {args}')
        text = t.prompt()
        lines = [line for line in text.splitlines() if line.startswith("holdfast: warning: ")]
        check(lines and len(lines) == len(set(lines)), f"{args} on a terminal: {text!r}")
    t.line('"$HF" run -q a true')
    same(t.prompt(), "", "-q on a terminal")
    t.close()
    server.kill()


def said(box, text, name="err"):
    return until(lambda: text in box.read(name) and box.read(name), f"{text!r} in {name}")


@case
def contact(box):
    """-v: the store is unreachable, and why; the lock is at risk, and why; it answers, and is held again."""
    server = Redis(box, "--appendonly", "yes", "--appendfsync", "always")
    with open(box.path("err"), "w") as err:
        p = box.start("-v", "-t", "24s", "--grace", "500ms", "a", "sh", "-c", HOLD, stderr=err)
    until(lambda: box.there("held"), "held")
    server.kill()
    said(box, "holdfast: the store does not answer: ")
    text = said(box, "a is at risk: ")
    check("onnect" in text.split("a is at risk: ")[1] and "broken" not in text and "unless it is renewed" in text,
          f"why: {text!r}")
    server.start()
    said(box, "the store answers again, after ")
    said(box, "a is held again")
    box.write("go")
    same(box.end(p)[0], 0, "status")
    server.kill()


@case
def at_risk_by_break(box):
    """A broken lock: that is said, and not that it could not be renewed."""
    server = Redis(box)
    p = box.start("-t", "6s", "a", "sh", "-c", HOLD)
    until(lambda: box.there("held"), "held")
    same(box.tool("break", "--yes", "a")[0], 0, "break")
    code, _, err = box.end(p)
    same(code, 76, "status")
    check("a is at risk: it was broken; the command is stopped in " in err and
          "a was broken: stopping the command" in err and "renewed" not in err, f"message {err!r}")
    server.kill()


@case
def wait_outlives_an_outage(box):
    """`wait` waits on while the store is unreachable, as run does; if its time is over then: 69."""
    server = Redis(box, "--appendonly", "yes", "--appendfsync", "always")
    box.env["HOLDFAST_URL"] += "?connect_timeout=1s"
    same(box.tool("acquire", "--ttl", "8s", "a")[0], 0, "acquire")  # they look again then
    waiters = [box.popen([box.holdfast, "wait", *args, "a"]) for args in ((), ("-w", "12s"))]
    until(lambda: box.tool("show", "a")[0] == 0, "the server answers")
    watch = f"redis-cli -s {box.dir}/redis.sock client list"
    until(lambda: subprocess.run(watch.split(), capture_output=True, text=True).stdout.count("name=holdfast") >= 2,
          "both have asked")
    server.kill()
    code, _, err = box.end(waiters[1])
    same(code, 69, f"with -w, said {err!r}")
    same(waiters[0].poll(), None, "the other one waits")
    server.start()
    same(box.end(waiters[0])[:2], (0, ""), "the other one")
    server.kill()


@case
def starts_during_a_failover(box):
    """The address leads to a replica: run waits for a master behind it; 69 when connect_timeout is over."""
    server = Redis(box)
    ask = ["redis-cli", "-s", box.path("redis.sock")]
    subprocess.run([*ask, "REPLICAOF", "127.0.0.1", "1"], check=True, stdout=subprocess.DEVNULL)
    plain = box.env["HOLDFAST_URL"]
    box.env["HOLDFAST_URL"] = plain + "?connect_timeout=1s"
    code, _, err = box.run("a", "true")
    same(code, 69, f"status, with {err!r}")
    check("read-only replica" in err and "check" not in err, f"message {err!r}")
    box.env["HOLDFAST_URL"] = plain + "?connect_timeout=60s"
    p = box.start("-w", "60s", "a", "true")
    until(lambda: "calls=" in subprocess.run([*ask, "INFO", "commandstats"], capture_output=True, text=True).stdout
          .partition("cmdstat_info:")[2], "it has asked")
    subprocess.run([*ask, "REPLICAOF", "NO", "ONE"], check=True, stdout=subprocess.DEVNULL)
    same(box.end(p), (0, "", ""), "run")
    server.kill()


@case
def break_of_a_waiter(box):
    """break --id ends one place in the queue, and nobody else's."""
    server = Redis(box)
    p = box.start("a", "sh", "-c", HOLD)
    until(lambda: box.there("held"), "held")
    waiters = []
    for n in (1, 2):
        waiters.append(box.start("a", "true"))
        until(lambda: box.waiters("a") == n, f"{n} wait")
    first = box.show("a")["waiters"][0]
    check(f"id {first['id']}\n" in box.tool("show", "a")[1], "show prints the id")
    same(box.tool("break", "--id", first["id"], "a")[0], 64, "without a terminal and --yes")
    code, _, err = box.tool("break", "--yes", "--id", first["id"], "a")
    same(code, 0, f"break, said {err!r}")
    check("place in the queue of a is taken away" in err, f"message {err!r}")
    code, _, err = box.end(waiters[0])
    same(code, 75, f"the waiter, said {err!r}")
    same(box.waiters("a"), 1, "who waits")
    same(box.tool("break", "--yes", "--id", first["id"], "a")[0], 75, "again")
    same(box.tool("break", "free")[0], 75, "a free name, without a terminal and --yes")
    box.write("go")
    same([box.end(q)[0] for q in (p, waiters[1])], [0, 0], "the others")
    server.kill()


@case
def hints(box):
    """What is said of a server that is not there, of another kind, or that refuses us fits the cause."""
    server = Redis(box)
    socket = box.path("redis.sock")
    for url, code, words, never in (
            (f"redis+unix://{box.dir}/none", 69, "check that the server runs", "TLS"),
            (f"redis+unix://{socket}?db=99999", 64, "", "check"),
            (f"redis+cluster+unix://{socket}", 64, "there are", "check")):
        box.env["HOLDFAST_URL"] = url + ("&" if "?" in url else "?") + "connect_timeout=1s"
        got, _, err = box.tool("ls")
        same(got, code, f"{url}: {err!r}")
        check(words in err and never not in err, f"{url}: {err!r}")
    server.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
