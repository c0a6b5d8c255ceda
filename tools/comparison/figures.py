"""figures.py: the figures of a run as words: in tables, in sentences ({{key}}), in pictures."""
from . import cases

NONE = "–"


def time_us(us):
    """Three digits that count: 1.63 µs, 341 µs, 2.1 ms, 3.0 s."""
    if us is None:
        return NONE
    for unit, size in (("s", 1e6), ("ms", 1e3), ("µs", 1)):
        if us >= size or unit == "µs":
            value = us / size
            return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"
    return NONE


def time_s(s):
    return NONE if s is None else time_us(s * 1e6)


def gap(s):
    """Of what is shorter than the tick of those who look."""
    return "< 2 ms" if s is not None and s < 0.002 else time_s(s)


def short_time(us):
    """Of a tick of an axis."""
    return f"{us:g} µs" if us < 1000 else f"{us / 1000:g} ms" if us < 1e6 else f"{us / 1e6:g} s"


def rate(per_s):
    """Two or three digits that count: nobody measures more."""
    if per_s is None:
        return NONE
    digits = max(len(str(int(per_s))) - 3, 0)
    return f"{round(per_s, -digits):,.0f}"


def count(n):
    return NONE if n is None else f"{n:.1f}".rstrip("0").rstrip(".") if n < 10 else f"{n:,.0f}"


def size(n):
    return NONE if n is None else f"{n / 2 ** 20:,.0f} MiB"


def span(values):
    """From the least to the most."""
    if not values:
        return NONE
    least, most = time_s(min(values)), time_s(max(values))
    if least == most:
        return least
    number, unit = least.split(" ")
    return f"{number} – {most}" if most.endswith(f" {unit}") else f"{least} – {most}"


def middle(values):
    return sorted(values)[len(values) // 2] if values else None


def share(part):
    return NONE if part is None else f"{100 * part:.0f} %"


def several(runs, key):
    return [run[key] for run in runs or []]


def after(run, end, begin):
    """Seconds from one moment of a fault to another."""
    return None if run.get(end) is None or run.get(begin) is None else max(run[end] - run[begin], 0)


def said_lost(runs):
    if not runs:
        return NONE
    good = sum(run["check_said_lost"] for run in runs)
    return "yes" if good == len(runs) else f"in {good} of {len(runs)} runs"


def keeps(runs):
    if not runs:
        return NONE
    good = sum(run["holder_keeps"] for run in runs)
    return "yes" if good == len(runs) else "no" if good == 0 else f"in {good} of {len(runs)} runs"


def of(f):
    """All that can be quoted of one store; f: its figures, or None."""
    f = f or {}
    latency, restart, outage = f.get("latency", {}), (f.get("restart") or [{}])[0], (f.get("outage") or [{}])[0]
    words = {"version": f.get("version", NONE), "date": f.get("about", {}).get("date", "not measured"),
             "busy": share(f["about"]["busy_percent"] / 100) if f else NONE}
    for key in "pair", "handoff":
        for part in "p50", "p99":
            words[f"{key}_{part}"] = time_us(latency.get(key, {}).get(f"{part}_us"))
    for which in "own", "one":
        for n in cases.CLIENTS:
            load = f.get(f"{which}_{n}", {})
            words[f"rate_{which}_{n}"] = rate(load.get("pairs_per_s"))
            words[f"cpu_{which}_{n}"] = time_us(load.get("cpu_us_per_pair"))
            words[f"work_{which}_{n}"] = count(load.get("work_per_pair"))
            words[f"connections_{which}_{n}"] = count(load.get("connections_per_client"))
    words.update(
        spread=share(f.get("one_8", {}).get("least_to_most")),
        crowd_rate=rate(f.get("crowd", {}).get("handoffs_per_s")),
        crowd_connections=count(f.get("crowd", {}).get("connections")),
        memory=size(f.get("crowd", {}).get("memory_bytes")),
        kill=span(several(f.get("kill"), "granted_s")),
        kill_median=time_s(middle(several(f.get("kill"), "granted_s"))),
        stop=span(several(f.get("stop"), "granted_s")),
        stop_lost=said_lost(f.get("stop")),
        restart_up=time_s(restart.get("up_s")),
        restart_keeps=keeps(f.get("restart")),
        restart_next=gap(after(restart, "granted_s", "released_s" if restart.get("holder_keeps") else "up_s")),
        member_keeps=keeps(f.get("member")),
        member_next=gap(max((after(run, "granted_s", "released_s") or 0 for run in f.get("member", [])), default=None)),
        outage_lost=time_s(outage.get("lost_s")),
        outage_next=gap(after(outage, "granted_s", "up_s")))
    return words


def in_short(f):
    return f"pair {of(f)['pair_p50']} · crash {of(f)['kill_median']}" if f else "not measured"
