#!/usr/bin/env python3
"""holdfast run on a server: what it says of the holder, and while the server cannot be reached."""
import os
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import Terminal, case, check, main, same, until

HOLD = "touch $DIR/held; until [ -e $DIR/go ]; do sleep 0.02; done"


class Redis:
    """A server on a socket in the folder of the case, with its data in memory.

    Where only the tools are installed the server is there under the name of one of them."""

    def __init__(self, box, *args):
        self.box, self.args = box, args
        box.env["HOLDFAST_URL"] = f"redis+unix://{box.dir}/redis.sock"
        self.start()

    def start(self):
        self.p = self.box.popen(["redis-server", "--port", "0", "--unixsocket", self.box.path("redis.sock"),
                                 "--save", "", "--dir", self.box.dir, *self.args],
                                executable=shutil.which("redis-server") or shutil.which("redis-check-rdb"),
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: self.box.tool("ls")[0] == 0, "the server answers")

    def kill(self):
        self.p.kill()
        self.p.wait()


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


if __name__ == "__main__":
    sys.exit(main(sys.argv))
