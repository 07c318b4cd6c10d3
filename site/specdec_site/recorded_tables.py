"""The directives that show what was recorded, as tables with the source of the recording.

On the page about losslessness that is what the tests found (one of them compares matrix.json with a
new run of the enumeration), on others the effect of other programs on a measurement, the races of
the live page, and the best method for each kind of text.
"""

import statistics
from collections.abc import Callable, Iterable

from docutils import nodes
from sphinx.application import Sphinx

from specdec_book import recordings
from specdec_book.recordings import Recording
from specdec_book.viz.board_figures import advice
from specdec_book.viz.captions import source_note

from . import deferred
from .deferred import table

TREES = {
    "one pass": "a tree is verified in one pass",
    "path by path": "a tree is verified path by path",
}
MODELS = {
    "pair": "shipped pair with its draft, float32",
    "smollm2": "SmolLM2 without a draft, bfloat16",
}


def note(*sentences: str) -> nodes.paragraph:
    """Return what is written below a table."""
    return nodes.paragraph("", "", nodes.emphasis(text=" ".join(filter(None, sentences))))


# What the tests found lossless


def names(kinds: Iterable[str]) -> nodes.inline:
    """Return model types as code, with line breaks allowed between them."""
    parts: list[nodes.Node] = []
    for kind in kinds:
        parts += [nodes.literal("", kind), nodes.Text(" ")]
    return nodes.inline("", "", *parts[:-1])


def definitions(entries: Iterable[tuple[str, nodes.Node | str]]) -> nodes.definition_list:
    """Return a list of definitions from (term, text) pairs."""
    items = nodes.definition_list()
    for term, text in entries:
        content = text if isinstance(text, nodes.Node) else nodes.Text(text)
        paragraph = nodes.paragraph("", "", content)
        items += nodes.definition_list_item(
            "", nodes.term(text=term), nodes.definition("", paragraph)
        )
    return items


def plural(count: int, noun: str) -> str:
    """Return a count and a noun, such as "1 type" or "3 types"."""
    return f"{count} {noun}{'s' * (count > 1)}"


def architectures(data: dict) -> nodes.definition_list:
    """Return one entry for each outcome and reason, with its model types."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in data["architectures"]:
        why = (
            TREES[row["trees"]]
            if row["trees"]
            else row["reason"].split(":")[0].split(", which cannot be cut back")[0]
        )
        groups.setdefault((row["outcome"], why), []).append(row["kind"])
    order = sorted(
        groups, key=lambda key: (("exact", "refused", "not tried").index(key[0]), -len(groups[key]))
    )
    return definitions(
        (
            f"{outcome}, {plural(len(groups[outcome, why]), 'type')}: {why}",
            names(groups[outcome, why]),
        )
        for outcome, why in order
    )


def distance(largest: float | None) -> str:
    """Return a total variation from the target's distribution as text; None: not allowed."""
    return "refused" if largest is None else "exact" if largest == 0 else f"off {largest:.2f}"


def largest_distance(rows: list[dict], label: str) -> float | None:
    """Return the largest distance under one sampling setting; None if the first row has none."""
    return None if rows[0][label] is None else max(row[label] for row in rows)


def rules(data: dict) -> nodes.table:
    """Return one row for each rule on chains and on trees, merged into one if both agree.

    Each cell states the largest distance over the ways of drafting.
    """
    by_draft: dict[tuple[str, str], list[dict]] = {}
    for row in data["rules"]:
        by_draft.setdefault((row["rule"], row["draft"].split(",")[0]), []).append(row["distance"])
    labels = list(data["rules"][0]["distance"])
    by_cells: dict[tuple, list[str]] = {}
    for (rule, draft), distances in by_draft.items():
        cells = tuple(distance(largest_distance(distances, label)) for label in labels)
        by_cells.setdefault((rule, cells), []).append(draft)
    return table(
        ("rule", "draft", *labels),
        (
            (nodes.literal("", rule), ", ".join(drafts), *cells)
            for (rule, cells), drafts in by_cells.items()
        ),
    )


def drafters(data: dict) -> nodes.definition_list:
    """Return one entry for each outcome and set of rules, with its drafters."""
    labels, rules_of = list(data["drafters"][0]["distance"]), {}
    for row in data["drafters"]:
        cells = (
            "exact" if row["greedy text"] else "differs",
            *(distance(row["distance"][label]) for label in labels),
        )
        rules_of.setdefault((row["drafter"], cells), []).append(row["rule"].replace("_", " "))
    groups: dict[tuple, list[str]] = {}
    for (drafter, cells), names_of_rules in rules_of.items():
        groups.setdefault((cells, tuple(names_of_rules)), []).append(drafter)

    def outcome(cells: tuple[str, ...]) -> str:
        if set(cells) == {"exact"}:
            return "exact"
        return "; ".join(map(": ".join, zip(("T = 0", *labels), cells, strict=True)))

    return definitions(
        (
            f"{outcome(cells)}, {plural(len(group), 'drafter')}, under each of: "
            + ", ".join(names_of_rules),
            " · ".join(group),
        )
        for (cells, names_of_rules), group in groups.items()
    )


def refusals(data: dict) -> nodes.table:
    """Return one row for each request that the library refuses, with its error."""
    return table(
        ("asked for", "answer"),
        (
            (
                nodes.literal("", row["asked"].strip("`")) if "`" in row["asked"] else row["asked"],
                f"{row['error']}: {row['message']}",
            )
            for row in data["refused"]
        ),
    )


def mutants(data: dict) -> nodes.container:
    """Return a table of changes by room (killed, survived, untested), and one of the survivors."""
    heads = ("killed", "survived", "untested", "timed out")
    counts = (
        (nodes.literal("", room), *(str(counts[head]) for head in heads))
        for room, counts in data["rooms"].items()
    )
    survivors = (
        [nodes.literal("", row[key]) for key in ("name", "line", "change")]
        for row in data["survivors"]
    )
    columns = ("function", "a line", "a change of it that was not detected")
    return nodes.container("", table(("room", *heads), counts), table(columns, survivors))


def found(build: Callable[[dict], nodes.Element]) -> Callable[[Recording], list[nodes.Node]]:
    """Return what shows a recording of the tests: its table and its source."""

    def shown(recording: Recording) -> list[nodes.Node]:
        data, score = recording.data, ""
        if "score" in data:
            score = (
                f"{data['run']} changes were run; the tests noticed {data['score']:.0%} of them."
            )
        source = f"Recorded by the tests: {recording.source.replace('`', '')}."
        return [build(data), note(source, score, data.get("note", ""))]

    return shown


# The speed of decoding beside other busy programs


def speed(rows: list[dict]) -> str:
    """Return the median tokens per second over all repetitions, and their range if there are more."""
    values = sorted(row["tokens"] / seconds for row in rows for seconds in row["seconds"])
    median = f"{statistics.median(values):.1f}"
    return f"{median} ({values[0]:.1f} to {values[-1]:.1f})" if len(values) > 1 else median


def busy_machine(recording: Recording) -> list[nodes.Node]:
    """Return a table of one row per model and setting, and the source of the recording."""
    data, lines = recording.data, []
    keys = dict.fromkeys((row["model"], row["setting"]) for row in data["rows"])
    order = lambda key: ([*MODELS].index(key[0]), [*data["settings"]].index(key[1]))
    for key in sorted(keys, key=order):
        own = [row for row in data["rows"] if (row["model"], row["setting"]) == key]
        loads = ([row for row in own if row["load"] == load] for load in ("quiet", "busy"))
        lines.append((MODELS[key[0]], key[1], str(own[0]["threads"]), *map(speed, loads)))
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


def race_rows(races: list[dict]) -> list[tuple[str, ...]]:
    """Return one row per number of threads and kind of text."""
    groups: dict[tuple, list[dict]] = {}
    for race in races:
        groups.setdefault((race["threads"], race["kind"]), []).append(race)
    rows = []
    for (threads, kind), group in groups.items():
        turns = [value for race in group for value in race["speedups"]]
        median = lambda get, group=group: statistics.median(map(get, group))
        plain, drafted = (
            f"{median(lambda race, lane=lane: race['per_second'][lane]):.0f}"
            for lane in ("plain", "speculative")
        )
        speedup = f"{statistics.median(turns):.2f}×", f"{min(turns):.2f} to {max(turns):.2f}"
        tau = f"{median(lambda race: race['tau']):.2f}"
        rows.append((kind, str(threads), *speedup, plain, drafted, tau, str(len(group))))
    return rows


def costs(races: list[dict]) -> list[tuple[str, ...]]:
    """Return T(1) in milliseconds, T(k)/T(1) and c for each number of threads."""
    lines = []
    for threads in dict.fromkeys(race["threads"] for race in races):
        group = [race for race in races if race["threads"] == threads]
        ratio = lambda get: statistics.median(get(race) / race["target_ms"][0] for race in group)
        one = statistics.median(race["target_ms"][0] for race in group)
        passes = (f"{ratio(lambda race, k=k: race['target_ms'][k]):.2f}" for k in range(1, 8))
        lines.append(
            (str(threads), f"{one:.1f}", *passes, f"{ratio(lambda race: race['draft_ms']):.2f}")
        )
    return lines


def live_speed(recording: Recording) -> list[nodes.Node]:
    """Return two tables and the source of the recording."""
    races = recording.data["races"]
    speeds = ("kind", "threads", "speedup", "range of the turns")
    speeds += ("plain, tokens/s", "speculative, tokens/s", "τ", "requests")
    times = ("threads", "T(1), ms", *(f"T({k})" for k in range(2, 9)), "c")
    source = source_note(f"{recording.data['browser']}; {recording.source}")
    return [
        table(speeds, race_rows(races)),
        table(times, costs(races)),
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
