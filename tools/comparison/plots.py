"""plots.py: the pictures of docs/choosing.md, each from the figures of all stores that were measured."""
import math

from . import cases, figures, rows
from .svg import COLOURS, GRID, INK, PALE, Drawing, wrapped

WIDTH = 900
LABELS = 190  # for the names of the stores
DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2"]
BEFORE = -0.5  # seconds that are shown before a fault
GREEN, PALE_GREEN, AMBER, GREY, BLUE, RED = "#2f9e5b", "#bfe3cc", "#e5a50a", "#b8c0c8", "#8ab4d8", "#fbe3e0"

# (question, yes, no); an end is the name of a row.
TREE = ("Do all programs that share the lock run on one machine?",
        "local",
        ("Must it never be held twice, even if a server is replaced or its clock is stepped, since the resource cannot check fences?",
         ("Do you run ZooKeeper, or share locks with programs that use Curator or kazoo?", "zookeeper", "etcd"),
         ("Are the data that it protects in PostgreSQL or MariaDB, and are its rates (below) enough?",
          ("In PostgreSQL?", "postgres", "mysql"),
          ("Must it go on at once when any server is lost, and can you do without a queue? Or do other programs use Redlock?",
           "redlock", "redis"))))


def present(data):
    """(number in the list, row, figures) of what was measured."""
    return [(i, row, data[row.name]) for i, row in enumerate(rows.ROWS) if row.name in data]


# ---- axes ------------------------------------------------------------------------------------

class Panel:
    """A plot with a logarithmic axis on one side at least."""

    def __init__(self, d, x, y, w, h, title, xs, ys, log_x, log_y):
        self.d, self.x, self.y, self.w, self.h = d, x, y, w, h
        self.xs, self.ys, self.log_x, self.log_y = xs, ys, log_x, log_y
        d.text(x, y - 12, title, 13, weight="bold")

    def at(self, vx, vy):
        def part(v, ends, log):
            lo, hi, v = (math.log10(t) for t in (*ends, v)) if log else (*ends, v)
            return (v - lo) / (hi - lo)
        return (self.x + self.w * min(max(part(vx, self.xs, self.log_x), 0), 1),
                self.y + self.h * (1 - min(max(part(vy, self.ys, self.log_y), 0), 1)))

    def grid_x(self, values, text):
        for v in values:
            px = self.at(v, self.ys[0])[0]
            self.d.line(px, self.y, px, self.y + self.h)
            self.d.text(px, self.y + self.h + 16, text(v), 11, "middle", PALE)

    def grid_y(self, values, text):
        for v in values:
            py = self.at(self.xs[0], v)[1]
            self.d.line(self.x, py, self.x + self.w, py)
            self.d.text(self.x - 7, py + 4, text(v), 11, "end", PALE)


def decades(values):
    lo, hi = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10 ** k for k in range(lo, max(hi, lo + 1) + 1)]


def legend(d, data, y):
    """In lines of four below the plots."""
    for k, (i, row, _) in enumerate(present(data)):
        x, at = 60 + k % 4 * 205, y + k // 4 * 20
        colour, dash = style(i)
        d.line(x, at, x + 30, at, colour, 3, dash)
        d.text(x + 37, at + 4, row.title, 12)


def style(i):
    """Colour and dashes of the i-th row: modes and set-ups of a store have its colour."""
    of = [row.name.split("-")[0] for row in rows.ROWS]
    families = list(dict.fromkeys(of))
    return COLOURS[families.index(of[i]) % len(COLOURS)], DASHES[of[:i].count(of[i]) % len(DASHES)]


def legend_lines(data):
    return (len(present(data)) + 3) // 4


# ---- speed -----------------------------------------------------------------------------------

def latency(data):
    d = Drawing(WIDTH, 360 + 20 * legend_lines(data), "How long a pair and a hand-off take: the part of them that took no longer")
    for n, (key, title) in enumerate((("pair", "An uncontended pair"), ("handoff", "A hand-off"))):
        curves = [(i, f["latency"][key]["quantiles_us"]) for i, _, f in present(data) if key in f["latency"]]
        ticks = decades([us for _, c in curves for _, us in c])
        p = Panel(d, 60 + 430 * n, 50, 370, 250, title, (ticks[0], ticks[-1]), (0, 100), True, False)
        p.grid_x(ticks, figures.short_time)
        p.grid_y((0, 25, 50, 75, 90, 99), lambda v: f"{v} %")
        for i, curve in curves:
            d.path([p.at(us, 100 * part) for part, us in curve], *style(i))
    legend(d, data, 345)
    return d.done()


def throughput(data):
    d = Drawing(WIDTH, 370 + 20 * legend_lines(data), "Pairs per second by the number of clients")
    for n, (which, title) in enumerate((("own", "Each client a name of its own"), ("one", "All clients the same name"))):
        curves = []
        for i, _, f in present(data):
            keys = [(c, f"{which}_{c}" if f"{which}_{c}" in f else f"own_{c}") for c in cases.CLIENTS]
            curves.append((i, [(c, max(f[k]["pairs_per_s"], 0.1)) for c, k in keys]))
        ticks = decades([rate for _, c in curves for _, rate in c])
        p = Panel(d, 70 + 430 * n, 50, 360, 250, title, (cases.CLIENTS[0], cases.CLIENTS[-1]), (ticks[0], ticks[-1]), True, True)
        p.grid_x(cases.CLIENTS, str)
        p.grid_y(ticks, lambda v: f"{v:,.0f}")
        d.text(p.x + p.w / 2, p.y + p.h + 34, "clients", 11, "middle", PALE)
        for i, curve in curves:
            points = [p.at(*point) for point in curve]
            d.path(points, *style(i))
            for point in points:
                d.dot(*point, style(i)[0])
    legend(d, data, 355)
    return d.done()


# ---- faults ----------------------------------------------------------------------------------

STATES = {"held": GREEN, "stopped": PALE_GREEN, "risk": AMBER, "lost": GREY, "waits": BLUE, "released": None, "left": None, "error": None}


def bar(d, p, y, line, end):
    """What an actor was, from each event to the next."""
    shown = [(word, at) for word, at in line if word in STATES]
    for k, (word, at) in enumerate(shown):
        until = shown[k + 1][1] if k + 1 < len(shown) else end
        x1, x2 = p.at(at, 0)[0], p.at(until, 0)[0]
        if STATES[word]:
            d.rect(x1, y, max(x2 - x1, 0.8), 11, STATES[word])


def holder_line(run):
    """What the holder said, and what it could not say: that it was killed, or stopped."""
    if "holder" not in run:
        return [["held", BEFORE], ["left", 0]]
    said = run["holder"]
    if "continued_s" not in run:
        return said
    return [e for e in said if e[1] < 0] + [["stopped", 0]] + [e for e in said if e[1] >= 0]


def pick(key, runs):
    """The run in the middle; of lost servers the worst one."""
    if key == "member":
        return max(runs, key=lambda run: (not run["holder_keeps"], len(run["holder"])))
    return runs[len(runs) // 2]


def fault(data, key, title, legend_words):
    """One row for each store: above the holder, below the waiter. The grants of the runs that are not shown are
    small marks."""
    shown = [(i, row, f, sorted(f[key], key=lambda r: r["granted_s"])) for i, row, f in present(data) if key in f]
    d = Drawing(WIDTH, 96 + 44 * len(shown) + 50, title)
    d.text(20, 28, title, 14, weight="bold")
    if not shown:
        return d.done()
    chosen = [pick(key, runs) for *_, runs in shown]
    end = 1.08 * max(max(r["granted_s"], r.get("up_s") or 0) for *_, runs in shown for r in runs) + 0.1
    p = Panel(d, LABELS + 40, 66, WIDTH - LABELS - 70, 44 * len(shown), "", (BEFORE, end), (0, 1), False, False)
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50) if end / s <= 12)
    p.grid_x([k * step for k in range(int(end / step) + 1)], lambda v: f"{v:g} s")
    for n, ((_, row, f, runs), run) in enumerate(zip(shown, chosen)):
        y = 66 + 44 * n
        d.text(20, y + 27, row.title, 12, weight="bold")
        d.text(LABELS + 32, y + 18, "holder", 10, "end", PALE)
        d.text(LABELS + 32, y + 33, "waiter", 10, "end", PALE)
        if run.get("up_s"):
            x1, x2 = p.at(0, 0)[0], p.at(run["up_s"], 0)[0]
            d.rect(x1, y + 4, x2 - x1, 36, RED)
        bar(d, p, y + 9, holder_line(run), end)
        bar(d, p, y + 24, run["waiter"], end)
        if f["ttl_s"] <= end:
            x = p.at(f["ttl_s"], 0)[0]
            d.line(x, y + 4, x, y + 40, INK, 1, "3 3")
        for r in runs:
            x = p.at(r["granted_s"], 0)[0]
            d.line(x, y + 37, x, y + 41, INK, 1.5)
    x = p.at(0, 0)[0]
    d.line(x, 60, x, 66 + 44 * len(shown), INK, 1.5)
    d.text(x, 54, "fault", 11, "middle", INK)
    key_line(d, 66 + 44 * len(shown) + 44, legend_words)
    return d.done()


def key_line(d, y, words):
    x = 20
    for colour, text in words:
        if colour == "ttl":
            d.line(x + 7, y - 8, x + 7, y + 6, INK, 1, "3 3")
        elif colour == "grant":
            d.line(x + 7, y - 3, x + 7, y + 3, INK, 1.5)
        else:
            d.rect(x, y - 7, 14, 11, colour)
        d.text(x + 20, y + 3, text, 11, colour=PALE)
        x += 34 + 6.4 * len(text)


HOLDER, WAITER, TTL = (GREEN, "holds"), (BLUE, "waits"), ("ttl", "the ttl")
GRANT = ("grant", "granted, in each run")


def fault_kill(data):
    return fault(data, "kill", "The holder is killed (SIGKILL)", [HOLDER, WAITER, TTL, GRANT])


def fault_stop(data):
    return fault(data, "stop", "The holder is stopped (SIGSTOP), and goes on when the waiter has the lock",
                 [HOLDER, (PALE_GREEN, "is stopped"), (GREY, "goes on, says lost"), WAITER, TTL, GRANT])


SERVER = [HOLDER, (AMBER, "at risk"), (GREY, "lost"), WAITER, (RED, "the server is away"), TTL, GRANT]


def fault_restart(data):
    return fault(data, "restart", "The server is killed (SIGKILL) and started again; the holder releases when it has settled", SERVER)


def fault_member(data):
    return fault(data, "member", "One of several servers, the leader if there is one, is killed (SIGKILL); the holder releases a ttl later",
                 [HOLDER, (AMBER, "at risk"), (GREY, "lost"), WAITER, TTL, GRANT])


def fault_outage(data):
    return fault(data, "outage", "The server stands still (SIGSTOP) for longer than the ttl", SERVER)


# ---- the decision ----------------------------------------------------------------------------

BOX, GAP, STEP, LEAF = 330, 62, 92, 170


def leaves_below(node):
    return 1 if isinstance(node, str) else leaves_below(node[1]) + leaves_below(node[2])


def decision(data):
    d = Drawing(WIDTH, 34 + STEP * leaves_below(TREE), "Which store to take")
    d.text(20, 30, "Which store?", 16, weight="bold")
    place(d, data, TREE, 20, 48)
    return d.done()


def place(d, data, node, x, y):
    """yes: to the right; no: downwards. The yes of a question begins in the line of the question."""
    if isinstance(node, str):
        leaf(d, data, rows.find(node), x, y)
        return
    question, yes, no = node
    width = BOX if x < 100 else 240
    d.rect(x, y, width, STEP - 28, "#eef3f8", "#9fb3c8", 6)
    lines = wrapped(question, width - 20, 12)
    for k, text in enumerate(lines):
        d.text(x + 10, y + (STEP - 28) / 2 + 4 + 15.5 * (k - (len(lines) - 1) / 2), text, 12)
    middle = y + (STEP - 28) / 2
    d.arrow(x + width, middle, x + width + GAP, middle)
    d.text(x + width + GAP / 2 - 4, middle - 6, "yes", 11, "middle", PALE)
    place(d, data, yes, x + width + GAP, y)
    down = y + STEP * leaves_below(yes)
    d.arrow(x + 40, y + STEP - 28, x + 40, down)
    d.text(x + 48, y + STEP - 28 + 17, "no", 11, colour=PALE)
    place(d, data, no, x, down)


def leaf(d, data, row, x, y):
    d.rect(x, y + 6, LEAF, STEP - 40, "#e9f5ec", "#7fb896", 6)
    d.text(x + LEAF / 2, y + 27, row.title, 14, "middle", weight="bold")
    d.text(x + LEAF / 2, y + 45, figures.in_short(data.get(row.name)), 10.5, "middle", PALE)


ALL = {"decision": decision, "latency": latency, "throughput": throughput, "fault-kill": fault_kill, "fault-stop": fault_stop,
       "fault-restart": fault_restart, "fault-member": fault_member, "fault-outage": fault_outage}
