"""cases.py: how fast a store is, and what it costs.

A pair is acquire and release. Uncontended pairs and hand-offs are those of `holdfast bench`; here are many clients, a
crowd of waiters, and what the servers did meanwhile.
"""
import json

from . import servers

CLIENTS = (1, 8, 64)
CROWD = 1000
# Every waiter has a connection: so many of them are more than a server takes.
SESSIONS = ("mode=pessimistic", "mode=advisory", "mode=named")


def latencies(store, seconds):
    """{pair, handoff: {p50_us, p99_us, quantiles_us}}; of a hand-off: half of one there and back."""
    found = {}
    for row in store.bench(seconds, "uncontended", "hand-off"):
        key, part = ("pair", 1) if row["case"] == "uncontended" else ("handoff", 2)
        found.setdefault(key, {  # a second row is of another raw limit
            "p50_us": round(row["p50_us"] / part, 3), "p99_us": round(row["p99_us"] / part, 3),
            "quantiles_us": [[at, round(us / part, 3)] for at, us in row["quantiles_us"]]})
    return found


def measured(store, client):
    """Lets the client begin. Its figures, and what the servers spent on them."""
    if client.answer() != "ready":
        raise servers.Trouble("a client is not ready")
    result = {"memory_bytes": store.memory_bytes()}
    work, cpu = store.do("work"), store.cpu_us()
    client.send("go")
    result.update(json.loads(client.answer()))
    result["connections"] = servers.sockets_of(client.pid)
    if cpu is not None:
        result["cpu_us"] = store.cpu_us() - cpu
    if work >= 0:
        result["work"] = store.do("work") - work
    return result


def load(store, seconds, clients, which):
    """Pairs by so many clients; `which`: each its own name, or all one."""
    with store.client("load", 0, clients, int(seconds * 1000), which) as client:
        got = measured(store, client)
    pairs = max(got["pairs"], 1)
    figures = {"clients": clients, "pairs_per_s": round(pairs / got["seconds"], 1),
               "connections_per_client": round(got["connections"] / clients, 2)}
    if which == "one":
        figures["least_to_most"] = round(got["least"] / max(got["most"], 1), 3)
    for key in "cpu_us", "work":
        if key in got:
            figures[key + "_per_pair"] = round(got[key] / pairs, 2)
    return figures


def crowd(store, seconds, waiters):
    """Hand-offs while so many stand in one line, all of one client."""
    with store.client("crowd", 0, waiters, int(seconds * 1000)) as client:
        got = measured(store, client)
    return {"waiters": waiters, "handoffs_per_s": round(got["grants"] / got["seconds"], 1),
            "connections": got["connections"], "memory_bytes": got["memory_bytes"]}


def steps(store, seconds):
    """(what is done, key of the result, function that gives it), in order."""
    for which, about in ("own", "a name each"), ("one", "one name"):
        for n in CLIENTS if which == "own" else CLIENTS[1:]:
            yield f"{n} clients, {about}", f"{which}_{n}", lambda n=n, which=which: load(store, seconds, n, which)
    if store.row.query not in SESSIONS:
        yield f"{CROWD} waiters", "crowd", lambda: crowd(store, seconds, CROWD)
    # last: a virtual machine of Java has compiled itself by then
    yield "a pair, a hand-off", "latency", lambda: latencies(store, seconds)
