#!/usr/bin/env python3
"""holdfast run on a store that differs from the embedded one: tests/module/lesser.c."""
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import case, check, main, same, until

SECRET = "sesame"


def lesser(box):
    """From now on the case works on such a store; returns its URL without secrets."""
    url = f"lesser://me{{}}@host{box.dir}/store?ttl=5m{{}}"
    box.env.update(HOLDFAST_MODULE_DIR=os.environ["HF_TEST_MODULES"],
                   HOLDFAST_URL=url.format(f":{SECRET}", f"&auth={SECRET}"))
    return url.format("", "&auth=***")


@case
def at_least_stays(box):
    """--at-least on a store that ends no place by itself: we stay until then, and hold it."""
    lesser(box)
    since = time.monotonic()
    with open(box.path("err"), "w") as err:
        p = box.start("-v", "--at-least", "6s", "a", "sh", "-c", "exit 3", stderr=err)
    until(lambda: "keeping the lock" in box.read("err"), "it says that it stays")
    same(box.run("-n", "a", "true")[0], 75, "taken meanwhile")
    same(box.end(p)[0], 3, "status")
    check(time.monotonic() - since >= 6, f"ended after {time.monotonic() - since} s")
    same(box.run("-n", "a", "true")[0], 0, "free after it")


@case
def at_least_and_a_signal(box):
    """A signal ends the stay: the name is free, and we die of it."""
    lesser(box)
    with open(box.path("err"), "w") as err:
        p = box.start("-v", "--at-least", "1h", "a", "true", stderr=err)
    until(lambda: "keeping the lock" in box.read("err"), "it says that it stays")
    since = time.monotonic()
    p.send_signal(signal.SIGTERM)
    same(box.end(p)[0], -signal.SIGTERM, "status")
    check(time.monotonic() - since < 30, f"it took {time.monotonic() - since} s")
    same(box.run("-n", "a", "true")[0], 0, "free after it")


@case
def no_secrets(box):
    """HOLDFAST_STORE and what we print of a store have no secrets; the URL stays as it was."""
    shown = lesser(box)
    same(box.run("-v", "a", "printenv", "HOLDFAST_STORE")[:2], (0, shown + "\n"), "HOLDFAST_STORE")
    same(box.run("a", "printenv", "HOLDFAST_URL")[1], box.env["HOLDFAST_URL"] + "\n", "HOLDFAST_URL")
    code, out, err = box.run("-v", "a", "sh", "-c", '"$HF" show a; "$HF" run --barge -n b true; '
                             '"$HF" run -t 1ms c true; unset HOLDFAST_URL; env')
    same(code, 0, f"status {err}")
    check(shown in out and "ttl 1 ms" in err, f"nothing to look at: {out!r} {err!r}")
    check(SECRET not in out + err, f"the password is shown: {out!r} {err!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
