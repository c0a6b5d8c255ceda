#!/usr/bin/env python3
"""holdfast elect, once, leader, count, barrier, latch and run --rate: on local:, and where a server differs, on Redis."""
import json
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import LOOK, Redis, Terminal, alive, case, check, guard_of, main, same, stays, until

# notes each term with its fence and the runs around it, its pids, and what it is told
LEAD = r"""
cd "$DIR"
set -- $HOLDFAST_RUN
setsid sleep 1000 >/dev/null 2>&1 & sleeper=$!
trap 'echo term >> told; kill $sleeper; exit 0' TERM
echo $sleeper >> pids
echo $$ >> pids
echo "$HOLDFAST_FENCE $#" >> terms
while [ ! -e go ]; do sleep 0.02; done
kill $sleeper
exit 3
"""
STUBBORN = LEAD.replace("kill $sleeper; exit 0' TERM", "' TERM")
# notes that it ran and its pid; waits for `go`
WORK = r"""
cd "$DIR"
echo $$ >> pids
echo "$HOLDFAST_FENCE" >> ran
while [ ! -e go ]; do sleep 0.02; done
"""
NOTE = 'echo x >> "$DIR/ran"'


def start(box, verb, *args, **kw):
    return box.popen([box.holdfast, verb, *args], **kw)


def lines(box, name):
    return box.read(name).splitlines()


def elect(box, *args, script=LEAD):
    """A candidate that has been elected."""
    before = len(lines(box, "terms"))
    p = start(box, "elect", *args, "L", "sh", "-c", script)
    until(lambda: len(lines(box, "terms")) > before or p.poll() is not None, "it leads")
    check(p.poll() is None, f"ended: {box.end(p)}" if p.poll() is not None else "")
    return p


def leader(box):
    code, out, _ = box.tool("leader", "L")
    return out.split(" ", 1)[1].rstrip("\n") if code == 0 else code


def break_now(box, name):
    code, out, err = box.tool("break", "--yes", "--now", name)
    same(code, 0, f"break {out} {err}")


def all_dead(box):
    return not [p for p in lines(box, "pids") if alive(int(p))]


# ---- elect, leader -------------------------------------------------------------------------

@case
def elect_stands_again(box):
    """elect: the office is lost, the command is stopped, and it stands again, each term under a new fence."""
    p = elect(box, "--value", "here:1")
    for n in (1, 2):
        same(leader(box), "here:1", "leader")
        break_now(box, "L")
        until(lambda: len(lines(box, "terms")) == n + 1, f"term {n + 1}")
        same(len(lines(box, "told")), n, "TERM came")
    terms = [tuple(map(int, line.split())) for line in lines(box, "terms")]
    same([t[0] for t in terms], sorted({t[0] for t in terms}), "fences")
    same([t[1] for t in terms], [1, 1, 1], "runs around it: each term finds the environment of the first")
    until(lambda: guard_of(p.pid), "it has a guard")
    check(not [q for q in lines(box, "pids")[:4] if alive(int(q))], "something of an old term is alive")
    p.send_signal(signal.SIGTERM)
    code, _, err = box.end(p)
    same(code, 0, "status: that of the command")
    check(err.count("standing again") == 2, f"message {err!r}")
    same(leader(box), 75, "nobody leads")


@case
def elect_broken_slowly(box):
    """elect: a broken term ends before another leads, and the one that lost it stands behind."""
    p = elect(box, "-t", "6s", "--value", "one")
    q = start(box, "elect", "-t", "6s", "--value", "two", "L", "sh", "-c", LOOK + "while [ ! -e $DIR/go ]; do sleep 0.02; done")
    until(lambda: box.waiters("L") == 1, "the second stands")
    same(box.tool("break", "--yes", "L")[0], 0, "break")
    until(lambda: box.read("result").endswith("\n"), "the second leads")
    same(box.read("result").split()[0], "clean", "at its start")
    same(leader(box), "two", "leader")
    until(lambda: box.waiters("L") == 1, "the first stands again")
    same(len(lines(box, "terms")), 1, "terms of the first")
    box.write("go")
    same(box.end(q)[0], 0, "the second ends by itself")
    same(box.end(p)[0], 3, "the first was elected again, and its command ended")
    same(len(lines(box, "terms")), 2, "terms of the first")


@case
def elect_killed(box):
    """elect killed: its command is dead before the next one leads."""
    p = elect(box, "--value", "one")
    q = start(box, "elect", "--value", "two", "L", "sh", "-c", LOOK)
    until(lambda: box.waiters("L") == 1, "the second stands")
    p.kill()
    same(box.end(q)[0], 0, "the second")
    same(box.read("result").split()[0], "clean", "at its start")


@case
def elect_ends(box):
    """elect: the command ends by itself: the office is given up, and its status is ours."""
    box.write("go")
    same(start(box, "elect", "L", "sh", "-c", LEAD).wait(60), 3, "status")
    same(leader(box), 75, "nobody leads")
    same(len(lines(box, "terms")), 1, "terms")


@case
def elect_in_line(box):
    """elect in line: a signal ends it, -w and -n do, with 75 or what -E says."""
    p = elect(box)
    q = start(box, "elect", "L", "true")
    until(lambda: box.waiters("L") == 1, "the second stands")
    q.send_signal(signal.SIGTERM)
    same(box.end(q)[0], -signal.SIGTERM, "status")
    same(box.waiters("L"), 0, "waiters")
    same(box.tool("elect", "-n", "L", "true")[0], 75, "-n")
    same(box.tool("elect", "-w", "100ms", "-E", "9", "L", "true")[0], 9, "-w, -E")
    p.send_signal(signal.SIGTERM)
    same(box.end(p)[0], 0, "status of the first")


@case
def elect_told_to_end(box):
    """elect: a SIGTERM that comes while a lost term is being ended is the last: 76, and it does not stand again."""
    p = elect(box, "-t", "60s", script=STUBBORN)
    break_now(box, "L")
    until(lambda: box.there("told"), "TERM came")
    p.send_signal(signal.SIGTERM)
    same(box.end(p)[0], 76, "status")
    same(len(lines(box, "terms")), 1, "terms")
    until(lambda: all_dead(box), "all are dead")


@case
def elect_on_a_terminal(box):
    """elect on a terminal: ^Z while it stands again stops it, and the next term has the terminal."""
    t = Terminal(box)
    t.line('"$HF" elect L -- sh -c \'echo U""P; cat\'')
    t.expect("UP")
    other = box.start("L", "sh", "-c", "touch $DIR/held; until [ -e $DIR/go ]; do sleep 0.02; done")
    until(lambda: box.waiters("L") == 1, "another waits")
    break_now(box, "L")
    until(lambda: box.there("held"), "it holds")
    t.expect("standing again")
    until(lambda: box.waiters("L") == 1, "it stands again")
    t.send("\x1a")
    t.expect("Stopped")
    t.prompt()
    t.line("fg")
    box.write("go")
    same(box.end(other)[0], 0, "the other one")
    t.expect("UP")
    t.send("he\n\x04")
    t.expect("he\r\nhe\r\n")
    same(t.status(), 0, "status")
    t.close()


@case
def elect_outage(box):
    """elect on a server that goes away: the command is stopped in time, and it leads again when the server is back."""
    server = Redis(box)
    with open(box.path("err"), "w") as err:
        p = start(box, "elect", "-t", "3s", "--value", "v", "L", "sh", "-c", LEAD, stderr=err)
    until(lambda: lines(box, "terms"), "it leads")
    server.kill()
    until(lambda: box.there("told") and all_dead(box), "its command is stopped")
    until(lambda: "standing again when it answers" in box.read("err"), "it says that the store is away")
    check(p.poll() is None, "ended")
    server.start()
    until(lambda: len(lines(box, "terms")) == 2, "the second term")
    same(leader(box), "v", "leader")
    p.send_signal(signal.SIGTERM)
    same(box.end(p)[0], 0, "status")
    server.kill()


@case
def elect_outage_signal(box):
    """elect that waits for a server to come back: a signal ends it."""
    server = Redis(box)
    with open(box.path("err"), "w") as err:
        p = start(box, "elect", "-t", "3s", "L", "sh", "-c", LEAD, stderr=err)
    until(lambda: lines(box, "terms"), "it leads")
    server.kill()
    until(lambda: "standing again when it answers" in box.read("err"), "it says that the store is away")
    p.send_signal(signal.SIGTERM)
    same(box.end(p)[0], -signal.SIGTERM, "status")


@case
def elect_server_killed(box):
    """elect killed, on a server: its command is dead before the next one leads, which is before the ttl."""
    server = Redis(box)
    p = elect(box, "-t", "60s")
    q = start(box, "elect", "-t", "60s", "L", "sh", "-c", LOOK)
    until(lambda: box.waiters("L") == 1, "the second stands")
    since = time.monotonic()
    p.kill()
    same(box.end(q)[0], 0, "the second")
    check(time.monotonic() - since < 40, "by the ttl")
    same(box.read("result").split()[0], "clean", "at its start")
    server.kill()


@case
def follow(box):
    """leader --follow: now, then each change; text and JSON; values are escaped."""
    files = [open(box.path(name), "w") for name in ("text", "json")]
    text = start(box, "leader", "--follow", "L", stdout=files[0])
    objects = start(box, "leader", "--follow", "--json", "L", stdout=files[1])
    for f in files:
        f.close()
    until(lambda: lines(box, "text") == ["0"] and lines(box, "json"), "nobody")
    p = elect(box, "--value", "a\nb")
    until(lambda: len(lines(box, "text")) == 2 and len(lines(box, "json")) == 2, "somebody")
    p.send_signal(signal.SIGTERM)
    box.end(p)
    until(lambda: len(lines(box, "text")) == 3 and len(lines(box, "json")) == 3, "nobody again")
    fence = lines(box, "terms")[0].split()[0]
    same(lines(box, "text"), ["0", f"{fence} a\\nb", "0"], "text")
    seen = [json.loads(line) for line in lines(box, "json")]
    same([(o["name"], o["fence"], o["value"], o["pid"]) for o in seen],
         [("L", None, None, None), ("L", int(fence), "a\nb", p.pid), ("L", None, None, None)], "JSON")
    for q in (text, objects):
        q.send_signal(signal.SIGTERM)
        same(box.end(q)[0], -signal.SIGTERM, "status")


# ---- once ----------------------------------------------------------------------------------

def five_at_once(box):
    ps = [start(box, "once", "O", "sh", "-c", NOTE) for _ in range(5)]
    same([box.end(p)[0] for p in ps], [0] * 5, "statuses")
    same(len(lines(box, "ran")), 1, "how often it ran")
    code, _, err = box.tool("once", "-v", "O", "sh", "-c", NOTE)
    check(code == 0 and "is done already" in err, f"later: {code} {err!r}")
    same(box.tool("once", "--forget", "O")[0], 0, "--forget")
    same(box.tool("once", "O", "sh", "-c", NOTE)[0], 0, "again")
    same(len(lines(box, "ran")), 2, "how often it ran")


@case
def once_five(box):
    """once: of five one runs it; --forget."""
    five_at_once(box)


@case
def once_five_server(box):
    """once on a server: of five one runs it; --forget."""
    server = Redis(box)
    five_at_once(box)
    server.kill()


@case
def once_fails(box):
    """once: a command that fails or is killed is tried again by the next; who waits takes over."""
    same(box.tool("once", "O", "sh", "-c", "exit 7")[0], 7, "status of the command")
    same(box.tool("once", "O", "sh", "-c", "kill -9 $$")[0], -signal.SIGKILL, "its signal")
    p = start(box, "once", "O", "sh", "-c", WORK + "exit 5")
    until(lambda: box.there("ran"), "it works")
    q = start(box, "once", "O", "sh", "-c", WORK)
    until(lambda: box.waiters("O") == 1, "the second waits")
    same(box.tool("once", "-n", "O", "true")[0], 75, "-n")
    same(box.tool("once", "-n", "-E", "0", "O", "true")[0], 0, "-E")
    box.write("go")
    same(box.end(p)[0], 5, "the first")
    same(box.end(q)[0], 0, "the second")
    same(box.tool("once", "O", "false")[0], 0, "done")
    same(len(lines(box, "ran")), 2, "how often it ran")


@case
def once_killed(box):
    """once killed in the middle: the next runs it, when its command is dead."""
    p = start(box, "once", "O", "sh", "-c", WORK)
    until(lambda: box.there("ran"), "it works")
    q = start(box, "once", "O", "sh", "-c", LOOK)
    until(lambda: box.waiters("O") == 1, "the second waits")
    p.kill()
    same(box.end(q)[0], 0, "the second")
    same(box.read("result").split()[0], "clean", "at its start")


@case
def once_lost(box):
    """once whose lock is lost: 76, nothing is recorded, although the command ends with 0."""
    p = start(box, "once", "O", "sh", "-c", "trap 'exit 0' TERM;" + WORK)
    until(lambda: box.there("ran"), "it works")
    break_now(box, "O")
    same(box.end(p)[0], 76, "status")
    box.write("go")
    same(box.tool("once", "O", "sh", "-c", WORK)[0], 0, "again")
    same(len(lines(box, "ran")), 2, "how often it ran")


@case
def once_expires(box):
    """once --for: its success counts for so long."""
    same(box.tool("once", "--for", "1h", "O", "sh", "-c", NOTE)[0], 0, "first")
    same(box.tool("once", "--for", "1h", "O", "false")[0], 0, "second")
    same(box.tool("once", "--for", "1s", "P", "sh", "-c", NOTE)[0], 0, "first")
    until(lambda: box.tool("once", "--for", "1s", "P", "sh", "-c", NOTE)[0] == 0 and len(lines(box, "ran")) == 3,
          "it is done again")


@case
def once_unrecorded(box):
    """once: the server dies while the command runs, which succeeds: not 0, and it is done again."""
    server = Redis(box)
    code, _, err = box.tool("once", "-t", "3s", "O", "sh", "-c", f"{NOTE}; kill -9 {server.p.pid}")
    check(code in (69, 76), f"status {code} {err!r}")
    server.p.wait()
    server.start()
    same(box.tool("once", "O", "sh", "-c", NOTE)[0], 0, "again")
    same(len(lines(box, "ran")), 2, "how often it ran")
    server.kill()


# ---- limits --------------------------------------------------------------------------------

def limited(box):
    since = time.time()
    ps = [box.start("--rate", "2/1s", "R", "sh", "-c", "date +%s.%N >> $DIR/started; exit 4") for _ in range(5)]
    same([box.end(p)[0] for p in ps], [4] * 5, "statuses")
    took = max(map(float, lines(box, "started"))) - since
    check(took >= 2, f"five starts at two per second within {took} s")


@case
def rate(box):
    """run --rate: starts are limited, and the command is what we become."""
    limited(box)
    same(box.run("--rate", "1/1h", "S", "true")[0], 0, "the first start")
    code, _, err = box.run("-n", "--rate", "1/1h", "S", "true")
    check(code == 75 and "S: no start left of 1 in 1 h" in err and "the next is possible in " in err, f"-n: {code} {err!r}")
    same(box.run("-n", "-q", "-E", "0", "--rate", "1/1h", "S", "true"), (0, "", ""), "-q -E")
    same(box.run("-w", "100ms", "--rate", "1/1h", "S", "true")[0], 75, "-w")
    p = box.start("--rate", "1/1h", "T", "sh", "-c", "echo $$ $HOLDFAST_FENCE > $DIR/pid; kill -9 $$")
    same(box.end(p)[0], -signal.SIGKILL, "it has ended as the command did")
    same(box.read("pid"), f"{p.pid}\n", "the process, and no fence")
    same(box.run("-n", "--rate", "1/1h", "T", "true")[0], 75, "a killed start counts")
    same(box.run("-n", "--rate", "2/1h", "T", "true")[0], 64, "another limit")
    q = box.start("--rate", "1/1h", "T", "true")
    until(lambda: box.waiters("T") == 1, "it waits")
    q.send_signal(signal.SIGTERM)
    same(box.end(q)[0], -signal.SIGTERM, "a signal while it waits")
    until(lambda: box.waiters("T") == 0, "it has left the line")


@case
def rate_server(box):
    """run --rate on a server."""
    server = Redis(box)
    limited(box)
    server.kill()


# ---- meetings ------------------------------------------------------------------------------

def party(box, *args):
    return start(box, "barrier", "--parties", "3", *args, "B")


def two_see_each_other(box, ttl):
    """Two parties have come. One that dies is missed if another has seen it, which nobody can see from outside."""
    ps = [party(box, "-t", ttl) for _ in range(2)]
    until(lambda: len(box.holders("B")) == 2, "two have come")
    stays(lambda: all(p.poll() is None for p in ps), 0.5, "passed without the third")
    return ps


def meet(box):
    for _ in range(2):
        ps = [party(box) for _ in range(2)]
        until(lambda: len(box.holders("B")) == 2, "two have come")
        check(all(p.poll() is None for p in ps), "passed without the third")
        ps.append(party(box))
        same([box.end(p)[0] for p in ps], [0] * 3, "statuses")


@case
def barrier(box):
    """barrier: opens for all when the last has come, twice; the time is over; a party dies or gives up: 75."""
    meet(box)
    same(party(box, "-w", "100ms").wait(60), 75, "time over")
    for sig in (signal.SIGKILL, signal.SIGTERM):
        ps = two_see_each_other(box, "60s")
        since = time.monotonic()
        ps[0].send_signal(sig)
        same(box.end(ps[0])[0], -sig, "it ends by its signal")
        code, _, err = box.end(ps[1])
        check(code == 75 and "party" in err, f"the other one: {code} {err!r}")
        check(time.monotonic() - since < 30, "by the ttl")
    meet(box)
    ps = [party(box), party(box)]
    until(lambda: len(box.holders("B")) == 2, "two have come")
    same(start(box, "barrier", "--parties", "4", "B").wait(60), 64, "another number of parties")
    ps.append(party(box))
    same([box.end(p)[0] for p in ps], [0] * 3, "the others are not disturbed")


@case
def barrier_server(box):
    """barrier on a server: the death of a party is noticed after its ttl."""
    server = Redis(box)
    meet(box)
    ps = two_see_each_other(box, "3s")
    ps[0].kill()
    same(box.end(ps[1])[0], 75, "the other one")
    server.kill()


@case
def latch(box):
    """latch: set, counted, open for all; not set, set otherwise, cleared."""
    same(box.tool("latch", "--down", "A")[0], 75, "--down of none")
    same(box.tool("latch", "--left", "A")[0], 75, "--left of none")
    waiting = [start(box, "latch", "A") for _ in range(2)]
    same(box.tool("latch", "--set", "3", "A")[:2], (0, ""), "--set")
    same(box.tool("latch", "--down", "A")[:2], (0, "2\n"), "--down")
    same(box.tool("latch", "--set", "3", "A")[0], 0, "--set of the same")
    same(box.tool("latch", "--set", "4", "A")[0], 64, "--set of another")
    same(box.tool("latch", "--left", "A")[:2], (0, "2\n"), "--left")
    same(box.tool("latch", "-w", "100ms", "A")[0], 75, "-w")
    stays(lambda: all(p.poll() is None for p in waiting), 0.2, "open too soon")
    same(box.tool("latch", "--down", "--by", "2", "A")[:2], (0, "0\n"), "--by")
    same([box.end(p)[0] for p in waiting], [0, 0], "they go on")
    same(box.tool("latch", "-w", "0", "A")[0], 0, "it stays open")
    same(box.tool("latch", "--clear", "A")[0], 0, "--clear")
    same(box.tool("latch", "-w", "0", "A")[0], 75, "cleared")
    p = start(box, "latch", "A")
    p.send_signal(signal.SIGTERM)
    same(box.end(p)[0], -signal.SIGTERM, "a signal")


# ---- counters, what is refused -------------------------------------------------------------

def counted(box):
    ps = [start(box, "count", "C") for _ in range(8)]
    same(sorted(int(box.end(p)[1]) for p in ps), list(range(1, 9)), "numbers")
    same(box.tool("count", "--by", "10", "C")[:2], (0, "18\n"), "--by 10")
    same(box.tool("count", "--by", "0", "C")[:2], (0, "18\n"), "--by 0")


@case
def count(box):
    """count: different numbers for all; --by; a name of another use."""
    counted(box)
    same(box.tool("once", "C", "true")[0], 64, "a counter is no mark")
    code, _, err = box.tool("count", "--by", "9223372036854775807", "C")
    check(code == 69 and "is more than 9223372036854775807" in err and "room" not in err, f"no room: {code} {err!r}")


@case
def count_server(box):
    """count on a server, which is then killed: 69."""
    server = Redis(box)
    counted(box)
    server.kill()
    same(box.tool("-u", box.env["HOLDFAST_URL"] + "?connect_timeout=300ms", "count", "C")[0], 69, "no server")


@case
def not_supported(box):
    """A store that can do none of it: 78, and nothing has been run."""
    server = Redis(box)
    box.env["HOLDFAST_URL"] += "?mode=plain"
    for args in (("elect", "a", "touch", "ran"), ("once", "a", "touch", "ran"), ("once", "--forget", "a"),
                 ("run", "--rate", "1/1s", "a", "touch", "ran"), ("leader", "a"), ("leader", "--follow", "a"),
                 ("count", "a"), ("barrier", "--parties", "1", "a"), ("latch", "--set", "1", "a"), ("latch", "a")):
        code, out, err = box.end(box.popen([box.holdfast, *args], cwd=box.dir))
        check(code == 78 and out == "" and err.startswith("holdfast: "), f"{args}: {code} {out!r} {err!r}")
    check(not box.there("ran"), "it was run")
    same(box.show("a")["waiters"], None, "who waits is not known")
    check("who waits is not known" in box.tool("show", "a")[1], "nor for people")
    server.kill()


@case
def bad_usage(box):
    """Bad usage: 64, and a message that names it."""
    for args, word in ((("elect", "a"), "COMMAND is missing"), (("elect", "--on-lost", "warn", "a", "true"), "term or kill"),
                       (("elect", "--also", "b", "a", "true"), "--also"), (("elect", "--value", "x" * 1025, "a", "true"), "--value may"),
                       (("once", "a"), "COMMAND is missing"), (("once", "--forget", "a", "true"), "NAME alone"),
                       (("once", "--for", "0", "a", "true"), "more than 0"), (("count",), "NAME is missing"),
                       (("count", "--by", "-1", "a"), "--by"), (("barrier", "a"), "--parties is missing"),
                       (("barrier", "--parties", "0", "a"), "1 to 1024"), (("barrier", "--parties", "1025", "a"), "1 to 1024"),
                       (("barrier", "--parties", "99999999999", "a"), "1 to 1024"), (("latch", "--by", "2", "a"), "--down"),
                       (("latch", "--set", "1", "--clear", "a"), "do not go together"),
                       (("latch", "--left", "-w", "1", "a"), "does not wait"), (("leader",), "NAME is missing"),
                       (("run", "--rate", "10", "a", "true"), "N/T"), (("run", "--rate", "0/1s", "a", "true"), "N/T"),
                       (("run", "--rate", "1/0", "a", "true"), "N/T"),
                       (("run", "--rate", "1/1s", "--at-least", "1s", "a", "true"), "holds no lock")):
        code, out, err = box.tool(*args)
        check(code == 64 and out == "" and word in err, f"{args}: {code} {out!r} {err!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
