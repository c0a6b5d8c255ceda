"""document.py: docs/choosing.md from choosing.md.in, the figures, and docs/guarantees.md.

In the template and in the words of rows.py {{STORE.key}} is a figure (figures.of), {{table NAME}} a table, {{stores}} the
sections of the stores, {{machine}} on what it was measured. A digit that is not from there is refused: no sentence can say
what was not measured.
"""
import json
import os
import re

from . import cases, faults, figures, plots, rows

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "choosing.md.in")


class Wrong(Exception):
    pass


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def save(path, data):
    text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False)
    # lists of plain values in one line: a time line is read as one
    text = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s*\n\s*", " ", m.group(1)) + "]", text)
    put(path, text + "\n")


def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".new", path)


# ---- what the guarantees say -----------------------------------------------------------------

class Guarantees:
    """The table "Per store" of docs/guarantees.md, and its headings."""

    def __init__(self, root):
        text = read(os.path.join(root, "docs/guarantees.md"))
        self.lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines()
                      if line.startswith("| ")]
        self.head = next(cells for cells in self.lines if cells[0] == "store")
        self.anchors = {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-")
                        for h in re.findall(r"^#+ (.*)$", text, re.M)}

    def cell(self, row, guarantee):
        for cells in self.lines:
            if cells[0] == row.scheme:
                return re.sub(r" \(\w{1,2}\)", "", cells[self.head.index(guarantee)])
        raise Wrong(f"docs/guarantees.md has no row that begins with {row.scheme}")

    def link(self, row):
        if row.anchor not in self.anchors:
            raise Wrong(f"docs/guarantees.md has no heading #{row.anchor}")
        return f"guarantees.md#{row.anchor}"


# ---- tables ----------------------------------------------------------------------------------

def table(head, lines):
    """Columns after the first are figures or words, as they come."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines])


def promises(data, g):
    head = ["store", "exclusion (G1)", "first come, first served (G3)", "a holder that dies (G5)", "the server is replaced", "its clock is stepped"]
    once = {(r.scheme, r.failover): r for r in reversed(rows.ROWS)}.values()  # the first row of each
    return table(head, [[f"[{r.title}]({g.link(r)})", g.cell(r, "G1"), g.cell(r, "G3"), g.cell(r, "G5"), r.failover, r.clock]
                        for r in rows.ROWS if any(r is o for o in once)])


def measured_table(data, columns):
    """columns: heading -> pattern with keys of figures.of in braces."""
    return table(["store", *columns], [[f"[{r.title}](#{r.name})", *(c.format(**figures.of(data.get(r.name))) for c in columns.values())]
                                       for r in rows.ROWS])


def speed(data, _):
    one, some, many = cases.CLIENTS
    return measured_table(data, {
        "pair, p50": "{pair_p50}", "pair, p99": "{pair_p99}", "hand-off, p50": "{handoff_p50}", "hand-off, p99": "{handoff_p99}",
        f"pairs/s, {one} client": f"{{rate_own_{one}}}", f"{some} clients": f"{{rate_own_{some}}}",
        f"{many} clients": f"{{rate_own_{many}}}", f"{some} on one name": f"{{rate_one_{some}}}",
        f"{many} on one name": f"{{rate_one_{many}}}", f"hand-offs/s, {cases.CROWD:,} waiters": "{crowd_rate}",
        "fairness": "{spread}"})


def fault_times(data, _):
    return measured_table(data, {
        "holder killed: next one after": "{kill}", "holder stopped: next one after": "{stop}",
        "and check says lost": "{stop_lost}", "server restarted: answers after": "{restart_up}",
        "holder keeps the lock": "{restart_keeps}", "next one after the release": "{restart_next}",
        "one of several servers killed: holder keeps the lock": "{member_keeps}",
        "next one after that release": "{member_next}",
        "server stands still: holder told lost after": "{outage_lost}", "next one, once it answers, after": "{outage_next}"})


def costs(data, _):
    one, some, _ = cases.CLIENTS
    return measured_table(data, {
        "server CPU, pair": f"{{cpu_own_{one}}}", "server CPU, hand-off": f"{{cpu_one_{some}}}",
        "messages, pair": f"{{work_own_{one}}}", "messages, hand-off": f"{{work_one_{some}}}",
        "connections, client alone": f"{{connections_own_{one}}}",
        "connections, client that waits": f"{{connections_one_{some}}}",
        f"connections, client with {cases.CROWD:,} waiters": "{crowd_connections}", "server memory": "{memory}"})


def operation(data, _):
    return table(["store", "what has to be run", "what is counted as a message"],
                 [[f"[{r.title}](#{r.name})", fill(r.operate, data, r.name), r.counts] for r in rows.ROWS])


def versions(data, _):
    return measured_table(data, {"version": "{version}", "measured": "{date}", "processors in use by others before": "{busy}"})


TABLES = {"promises": promises, "speed": speed, "faults": fault_times, "costs": costs, "operation": operation,
          "versions": versions}


# ---- prose -----------------------------------------------------------------------------------

def machine(data):
    """On what; one sentence for each that was different."""
    said = []
    for f in data.values():
        about, n = f["about"], len(f.get("kill", []))
        text = (f"holdfast {about['holdfast']} on {about['system']}, Linux {about['kernel']}, {about['machine']}, "
                f"{about['processors']} × {about['processor']}; {f['time_s']:g} s for each case, a ttl of {f['ttl_s']:g} s in the "
                f"faults, {n} runs of those that depend on the moment; niceness {about['nice']}.")
        if text not in said:
            said.append(text)
    return " ".join(said) or "Nothing has been measured yet."


def about_disk(data):
    return figures.time_us(figures.middle([f["about"]["fsync_us"] for f in data.values()]))


def no_figures(text, where):
    """Digits may stand in placeholders, code, links and names of manual pages only."""
    bare = re.sub(r"\{\{.*?\}\}|`[^`]*`|\]\([^)]*\)|[a-z]\(\d\)", "", text)
    found = re.search(r".{0,40}\d.{0,20}", bare)
    if found:
        raise Wrong(f"{where}: a figure that is not measured: {found.group(0)!r}")


def fill(text, data, own=None):
    """The text with its figures; {{key}} is of the store `own`."""
    constants = {"clients": str(cases.CLIENTS[1]), "many": str(cases.CLIENTS[2]), "waiters": f"{cases.CROWD:,}",
                 "disk": about_disk(data), "ttl": figures.time_s(figures.middle([f["ttl_s"] for f in data.values()])), "machine": machine(data), "outage": f"{faults.OUTAGE:g}"}

    def word(m):
        store, _, key = m.group(1).rpartition(".")
        store = store or own
        if store:
            known = figures.of(data.get(rows.find(store).name))
            if key in known:
                return known[key]
        if key in constants:
            return constants[key]
        raise Wrong(f"nothing is known of {{{{{m.group(1)}}}}}")
    return re.sub(r"\{\{([\w.-]+)\}\}", word, text)


def sentences(text, data, own):
    """The text of a store, without sentences of which a figure was not measured."""
    whole = []
    for sentence in re.split(r"(?<=\.) ", text):
        filled = fill(sentence, data, own)
        if figures.NONE not in filled or figures.NONE in sentence:
            whole.append(filled)
    return " ".join(whole)


def stores(data, g):
    parts = []
    for r in rows.ROWS:
        for text in r.good, r.bad, r.take, r.operate, r.failover, r.clock, r.counts:
            no_figures(text, f"rows.py, {r.name}")
        parts.append(f"### {r.name}\n\n**Good.** {sentences(r.good, data, r.name)}\n\n**Bad.** {sentences(r.bad, data, r.name)}\n\n"
                     f"**Take it when:** {sentences(r.take, data, r.name)} [What it guarantees]({g.link(r)}).")
    return "\n\n".join(parts)


def write(data, root, out):
    g, text = Guarantees(root), read(TEMPLATE)
    no_figures(text, "choosing.md.in")
    text = re.sub(r"\{\{table (\w+)\}\}", lambda m: TABLES[m.group(1)](data, g), text)
    text = text.replace("{{stores}}", stores(data, g))
    put(os.path.join(out, "choosing.md"), fill(text, data))
    for name, plot in plots.ALL.items():
        put(os.path.join(out, "choosing", f"{name}.svg"), plot(data))
