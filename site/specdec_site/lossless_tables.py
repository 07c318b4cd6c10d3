"""The directives of the page on losslessness: tables of two recordings.

A test compares matrix.json with a new run of the enumeration.
"""

from collections.abc import Callable, Iterable

from docutils import nodes
from sphinx.application import Sphinx

from specdec_book import recordings

from . import deferred
from .docutils_tables import table


def names(kinds: Iterable[str]) -> nodes.inline:
    """Return model types as code, with line breaks allowed between them."""
    parts: list[nodes.Node] = []
    for kind in kinds:
        parts += [nodes.literal("", kind), nodes.Text(" ")]
    return nodes.inline("", "", *parts[:-1])


TREES = {
    "one pass": "a tree is verified in one pass",
    "path by path": "a tree is verified path by path",
}


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


def content(
    build: Callable[[dict], nodes.Element], name: str = "losslessness"
) -> Callable[[Sphinx, str], list[nodes.Node]]:
    """Return the content function of a directive: a recording's table and its source."""

    def fill(app: Sphinx, page: str) -> list[nodes.Node]:
        if not recordings.names(name):
            return [nodes.paragraph(text=f"Nothing is recorded in results/{name}/ yet.")]
        recording = recordings.load(name)
        score = (
            f" {recording.data['run']} changes were run; the tests noticed"
            f" {recording.data['score']:.0%} of them."
            if "score" in recording.data
            else ""
        )
        source = recording.source.replace("`", "")
        notes = (f"Recorded by the tests: {source}.{score}", recording.data.get("note", ""))
        return [
            build(recording.data),
            nodes.paragraph("", "", nodes.emphasis(text=" ".join(filter(None, notes)))),
        ]

    return fill


def register(app: Sphinx) -> None:
    """Add the directives to a Sphinx application."""
    for name, build in (
        ("promise-architectures", architectures),
        ("promise-rules", rules),
        ("promise-drafters", drafters),
        ("promise-refusals", refusals),
    ):
        deferred.add_directive(app, name, content(build))
    deferred.add_directive(app, "promise-mutation", content(mutants, "mutation-testing"))
