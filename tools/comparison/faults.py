"""faults.py: what happens to a holder and to the waiter behind it when something goes wrong.

Each fault gives a time line: what the holder and the waiter said, in seconds since the fault. Two processes that
stand for two machines; the holder looks at its lease all the time.
"""
import os
import random
import signal
import time

from . import servers

SETTLE_S = 0.3  # for a store that cannot show who waits
OUTAGE = 1.5  # of the ttl
LOST_S = 30  # for a process that goes on to say so, on a busy machine


class Actor:
    """A compare-client that holds or waits, and what it has said: (word, seconds since the fault)."""

    def __init__(self, process):
        self.process = process
        self.events = []  # (word, ns, rest)

    def hear(self, limit):
        line = self.process.line(limit)
        if line is None:
            return None
        word, at, *rest = line.split(" ", 2)
        self.events.append((word, int(at), rest[0] if rest else ""))
        return word

    def until(self, *words, limit=servers.ANSWER_S):
        """When it said one of these next; None: not in this time."""
        end = time.monotonic() + limit
        while True:
            word = self.hear(max(end - time.monotonic(), 0))
            if word is None:
                return None
            if word in words:
                return self.events[-1][1]

    def last(self):
        """What it has said last of its lease."""
        while self.hear(0):
            pass
        return next((w for w, _, _ in reversed(self.events) if w in ("held", "risk", "lost")), None)

    def line(self, zero):
        return [[word, seconds(at, zero)] for word, at, _ in self.events]

    def held_last(self):
        """When check said "held" for the last time before the lease was lost."""
        return next((int(rest) for word, _, rest in reversed(self.events) if word == "lost"), None)


def seconds(at, zero):
    return None if at is None else round((at - zero) / 1e9, 4)


class Scene:
    """A holder, and a waiter behind it."""

    def __init__(self, store, ttl_ms):
        store.names += 1
        name = f"compare/{store.names}"
        self.store, self.ttl = store, ttl_ms / 1000
        self.holder = Actor(store.other("hold", name, ttl_ms))
        if self.holder.until("held") is None:
            raise servers.Trouble("nobody was granted a free lock")
        self.waiter = Actor(store.other("hold", name, ttl_ms))
        if self.waiter.until("waits") is None:
            raise servers.Trouble("the second one does not wait")
        time.sleep(SETTLE_S + random.random() * self.ttl / 3)  # at any time between two renewals

    def signal(self, number):
        """To the holder; when."""
        at = servers.now_ns()
        os.kill(self.holder.process.pid, number)
        return at

    def granted(self):
        at = self.waiter.until("held", limit=servers.ANSWER_S)
        if at is None:
            raise servers.Trouble("the waiter was never granted the lock")
        return at

    def end(self):
        for actor in self.holder, self.waiter:
            actor.process.kill()


def acted(fault, store, ttl_ms):
    scene = Scene(store, ttl_ms)
    try:
        return fault(scene)
    finally:
        scene.end()


def kill(scene):
    """kill -9 of the holder."""
    zero = scene.signal(signal.SIGKILL)
    return {"granted_s": seconds(scene.granted(), zero), "waiter": scene.waiter.line(zero)}


def stop(scene):
    """SIGSTOP of the holder, SIGCONT when the waiter has the lock."""
    zero = scene.signal(signal.SIGSTOP)
    granted = scene.granted()
    going_on = scene.signal(signal.SIGCONT)
    lost = scene.holder.until("lost", limit=max(scene.ttl, LOST_S))
    held_last = scene.holder.held_last()
    return {"granted_s": seconds(granted, zero), "continued_s": seconds(going_on, zero), "lost_s": seconds(lost, zero),
            "check_said_lost": lost is not None and held_last < granted,
            "holder": scene.holder.line(zero), "waiter": scene.waiter.line(zero)}


def finish(scene, zero, result):
    """The end of a fault of the server: the holder releases if it still holds, and the waiter is granted."""
    end = time.monotonic() + 2 * scene.ttl
    while scene.holder.last() == "risk" and time.monotonic() < end:
        scene.holder.until("held", "lost", limit=0.2)
    result["holder_keeps"] = scene.holder.last() == "held"
    if result["holder_keeps"]:
        scene.holder.process.send("release")
        result["released_s"] = seconds(scene.holder.until("released"), zero)
    result["granted_s"] = seconds(scene.granted(), zero)
    scene.holder.last()
    result.update(holder=scene.holder.line(zero), waiter=scene.waiter.line(zero))
    return result


def restart(scene):
    """kill -9 of all servers, which are started again at once."""
    zero = servers.now_ns()
    scene.store.do("restart")
    return finish(scene, zero, {"up_s": seconds(servers.now_ns(), zero)})


def outage(scene):
    """SIGSTOP of all servers for longer than the ttl: nobody answers, and connections stay."""
    zero = servers.now_ns()
    scene.store.do("block")
    lost = scene.holder.until("lost", limit=OUTAGE * scene.ttl)
    left = OUTAGE * scene.ttl - (servers.now_ns() - zero) / 1e9
    time.sleep(max(left, 0))
    scene.store.do("unblock")
    return finish(scene, zero, {"up_s": seconds(servers.now_ns(), zero), "lost_s": seconds(lost, zero)})


def member(scene):
    """kill -9 of one of several servers, which stays dead: the leader where there is one."""
    leader = scene.store.do("leader")
    zero = servers.now_ns()
    os.kill(leader if leader > 0 else random.choice(scene.store.servers()), signal.SIGKILL)
    scene.holder.until("lost", limit=scene.ttl)
    return finish(scene, zero, {})


def steps(store, ttl_ms, repeats):
    """As of cases.py. Several times what depends on when the last renewal was."""
    def several(fault):
        return lambda: [acted(fault, store, ttl_ms) for _ in range(repeats)]

    def once(fault):
        return lambda: [acted(fault, store, ttl_ms)]
    yield "the holder is killed", "kill", several(kill)
    yield "the holder is stopped", "stop", several(stop)
    if store.row.server:
        yield "the server is killed and restarted", "restart", once(restart)
        yield "the server stands still", "outage", once(outage)
    if store.row.several:
        yield "one of the servers is killed", "member", lambda: [healed(member, store, ttl_ms) for _ in range(repeats)]


def healed(fault, store, ttl_ms):
    """Afterwards all servers run again."""
    result = acted(fault, store, ttl_ms)
    store.do("restart")
    return result
