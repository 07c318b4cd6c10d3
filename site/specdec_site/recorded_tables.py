"""The directives that show what was recorded, as tables with the source of the recording.

On the page about losslessness that is what the tests found (one of them compares matrix.json with a
new run of the enumeration), on others the effect of other programs on a measurement, the races of
the live page, and the best method for each kind of text.
"""

import re
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from specdec_book import recordings
from specdec_book.recordings import Recording
from specdec_book.viz.board_figures import advice
from specdec_book.viz.captions import source_note

from . import deferred
from .deferred import table

OUTCOMES = ("exact", "refused", "not tried")
TREES = {
    "one pass": "a tree is verified in one pass",
    "path by path": "a tree is verified path by path",
}
MODELS = {
    "pair": "shipped pair with its draft, float32",
    "smollm2": "SmolLM2 without a draft, bfloat16",
}


def note(text: str) -> nodes.paragraph:
    """Return what is written below a table."""
    return nodes.paragraph("", "", nodes.emphasis(text=text))


def grouped(pairs: Iterable[tuple]) -> dict[Any, list]:
    """Return the values of each key, in order."""
    groups: dict[Any, list] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


# What the tests found lossless


def definitions(entries: Iterable[tuple[str, list[nodes.Node]]]) -> nodes.definition_list:
    """Return a list of definitions from (term, content) pairs."""
    items = nodes.definition_list()
    for term, content in entries:
        definition = nodes.definition("", nodes.paragraph("", "", *content))
        items += nodes.definition_list_item("", nodes.term(text=term), definition)
    return items


def counted(names: list, noun: str) -> str:
    """Return how many names there are, such as "1 type" or "3 types"."""
    return f"{len(names)} {noun}{'s' * (len(names) > 1)}"


def architectures(data: dict) -> nodes.definition_list:
    """Return one entry for each outcome and reason, with its model types as code.

    Lines may break between the types.
    """

    def reason(row: dict) -> str:
        trees = row["trees"]
        return TREES[trees] if trees else re.split(":|, which cannot be", row["reason"])[0]

    def code(kinds: list[str]) -> list[nodes.Node]:
        parts = [part for kind in kinds for part in (nodes.literal("", kind), nodes.Text(" "))]
        return [nodes.inline("", "", *parts[:-1])]

    rows = (((row["outcome"], reason(row)), row["kind"]) for row in data["architectures"])
    groups = sorted(
        grouped(rows).items(), key=lambda group: (OUTCOMES.index(group[0][0]), -len(group[1]))
    )
    return definitions(
        (f"{outcome}, {counted(kinds, 'type')}: {why}", code(kinds))
        for (outcome, why), kinds in groups
    )


def distance(rows: list[dict], label: str) -> str:
    """Return the largest total variation from the target's distribution; None is not allowed."""
    if rows[0][label] is None:
        return "refused"
    largest = max(row[label] for row in rows)
    return "exact" if largest == 0 else f"off {largest:.2f}"


def rules(data: dict) -> nodes.table:
    """Return one row for each rule on chains and on trees, merged into one if both agree.

    Each cell states the largest distance over the ways of drafting.
    """
    labels = list(data["rules"][0]["distance"])
    rows = (((row["rule"], row["draft"].split(",")[0]), row["distance"]) for row in data["rules"])
    cells = (
        ((rule, *(distance(distances, label) for label in labels)), draft)
        for (rule, draft), distances in grouped(rows).items()
    )
    return table(
        ("rule", "draft", *labels),
        (
            (nodes.literal("", rule), ", ".join(drafts), *texts)
            for (rule, *texts), drafts in grouped(cells).items()
        ),
    )


def drafters(data: dict) -> nodes.definition_list:
    """Return one entry for each outcome and set of rules, with its drafters."""
    labels = list(data["drafters"][0]["distance"])

    def outcome(row: dict) -> str:
        text = "exact" if row["greedy text"] else "differs"
        cells = [text, *(distance([row["distance"]], label) for label in labels)]
        return "exact" if {*cells} == {"exact"} else "; ".join(map(": ".join, zip(heads, cells)))

    heads = ("T = 0", *labels)
    rows = (((row["drafter"], outcome(row)), row["rule"]) for row in data["drafters"])
    by_rules = (
        ((outcome, ", ".join(rules).replace("_", " ")), drafter)
        for (drafter, outcome), rules in grouped(rows).items()
    )
    return definitions(
        (
            f"{outcome}, {counted(group, 'drafter')}, under each of: {rules}",
            [nodes.Text(" · ".join(group))],
        )
        for (outcome, rules), group in grouped(by_rules).items()
    )


def refusals(data: dict) -> nodes.table:
    """Return one row for each request that the library refuses, with its error."""
    asked = lambda text: nodes.literal("", text.strip("`")) if "`" in text else text
    rows = ((asked(r["asked"]), f"{r['error']}: {r['message']}") for r in data["refused"])
    return table(("asked for", "answer"), rows)


def mutants(data: dict) -> nodes.container:
    """Return a table of changes by room (killed, survived, untested), and one of the survivors."""
    heads = ("killed", "survived", "untested", "timed out")
    rooms = (
        (nodes.literal("", room), *(str(counts[head]) for head in heads))
        for room, counts in data["rooms"].items()
    )
    survivors = (
        [nodes.literal("", row[key]) for key in ("name", "line", "change")]
        for row in data["survivors"]
    )
    columns = ("function", "a line", "a change of it that was not detected")
    return nodes.container("", table(("room", *heads), rooms), table(columns, survivors))


def found(build: Callable[[dict], nodes.Element]) -> Callable[[Recording], list[nodes.Node]]:
    """Return what shows a recording of the tests: its table and its source."""
    source = lambda recording: f"Recorded by the tests: {recording.source.replace('`', '')}."
    return lambda recording: [build(recording.data), note(source(recording))]


# The speed of decoding beside other busy programs


def speed(rows: list[dict]) -> str:
    """Return the median tokens per second over all repetitions, and their range if there are more."""
    values = sorted(row["tokens"] / seconds for row in rows for seconds in row["seconds"])
    span = f" ({values[0]:.1f} to {values[-1]:.1f})" if len(values) > 1 else ""
    return f"{median(values):.1f}{span}"


def busy_machine(recording: Recording) -> list[nodes.Node]:
    """Return a table of one row per model and setting, and the source of the recording."""
    data, lines = recording.data, []
    groups = grouped(((row["model"], row["setting"]), row) for row in data["rows"])
    order = lambda key: ([*MODELS].index(key[0]), [*data["settings"]].index(key[1]))
    for model, setting in sorted(groups, key=order):
        rows = groups[model, setting]
        loads = ([row for row in rows if row["load"] == load] for load in ("quiet", "busy"))
        lines.append((MODELS[model], setting, str(rows[0]["threads"]), *map(speed, loads)))
    busy = f"{data['programs']} busy programs"
    heads = ("model", "OpenMP", "threads", "quiet, tokens/s", f"{busy}, tokens/s")
    load = max(each[0] for part, each in data["load_averages"].items() if part.startswith("quiet"))
    is_single = all(len(row["seconds"]) == 1 for row in data["rows"])
    measured = "One run of each" if is_single else "Medians and ranges"
    source = (
        f"{measured}, {data['cores']} cores; load average before the quiet turns at most"
        f" {load:.1f}; {recording.source.replace('`', '')}."
    )
    return [table(heads, lines), note(source)]


# The races of SmolLM2 in a browser


def race_row(threads: int, kind: str, races: list[dict]) -> tuple[str, ...]:
    """Return the row of a number of threads and a kind of text."""
    turns = [value for race in races for value in race["speedups"]]
    speeds = (
        f"{median(race['per_second'][lane] for race in races):.0f}"
        for lane in ("plain", "speculative")
    )
    speedup = f"{median(turns):.2f}×", f"{min(turns):.2f} to {max(turns):.2f}"
    tau = f"{median(race['tau'] for race in races):.2f}"
    return kind, str(threads), *speedup, *speeds, tau, str(len(races))


def cost_row(threads: int, races: list[dict]) -> tuple[str, ...]:
    """Return T(1) in milliseconds, T(k)/T(1) and c for a number of threads."""
    one = median(race["target_ms"][0] for race in races)
    ratios = (
        median(([*race["target_ms"], race["draft_ms"]])[k] / race["target_ms"][0] for race in races)
        for k in range(1, 9)
    )
    return str(threads), f"{one:.1f}", *(f"{ratio:.2f}" for ratio in ratios)


def live_speed(recording: Recording) -> list[nodes.Node]:
    """Return two tables and the source of the recording."""
    races = recording.data["races"]
    kinds = grouped(((race["threads"], race["kind"]), race) for race in races)
    threads = grouped((race["threads"], race) for race in races)
    speeds = ("kind", "threads", "speedup", "range of the turns")
    speeds += ("plain, tokens/s", "speculative, tokens/s", "τ", "requests")
    times = ("threads", "T(1), ms", *(f"T({k})" for k in range(2, 9)), "c")
    source = source_note(f"{recording.data['browser']}; {recording.source}")
    return [
        table(speeds, (race_row(*key, group) for key, group in kinds.items())),
        table(times, (cost_row(number, group) for number, group in threads.items())),
        nodes.raw("", f'<div class="sdl-caption">{source}</div>', format="html"),
    ]


def best_methods(app: Sphinx, page: str) -> list[nodes.Node]:
    """Return the scoreboard's best method for each kind of text, and what its numbers are."""
    heads, rows, sentence = advice()
    return [table(heads, rows), note(sentence)]


DIRECTIVES = {
    "promise-architectures": ("losslessness", found(architectures)),
    "promise-rules": ("losslessness", found(rules)),
    "promise-drafters": ("losslessness", found(drafters)),
    "promise-refusals": ("losslessness", found(refusals)),
    "promise-mutation": ("mutation-testing", found(mutants)),
    "busy-machine": ("busy-machine", busy_machine),
    "live-speed": ("live-smollm2", live_speed),
}
"""Directive → its recording, and what shows that."""


def register(app: Sphinx) -> None:
    """Add the directives to a Sphinx application."""
    shown = lambda name, show: lambda app, page: show(recordings.load(name))
    for directive, (name, show) in DIRECTIVES.items():
        deferred.add_directive(app, directive, shown(name, show))
    deferred.add_directive(app, "which-draft", best_methods)
