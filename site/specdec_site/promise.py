"""What is promised, as tables of results/matrix.json and mutation.json: the tests hold the first
against a fresh run, the book shows both.
"""

import re
from collections.abc import Callable, Iterable

from docutils import nodes
from sphinx.application import Sphinx

from specdec_lite import results

from . import late

Cell = str | nodes.Node


def entry(cell: Cell) -> nodes.entry:
    return nodes.entry(
        "", nodes.paragraph("", "", cell if isinstance(cell, nodes.Node) else nodes.Text(cell))
    )


def table(heads: Iterable[str], rows: Iterable[Iterable[Cell]]) -> nodes.table:
    heads = list(heads)
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in heads), cols=len(heads))
    lines = [nodes.row("", *map(entry, line)) for line in (heads, *rows)]
    group += [nodes.thead("", lines[0]), nodes.tbody("", *lines[1:])]
    return nodes.table("", group, classes=["colwidths-auto"])


def names(kinds: Iterable[str]) -> nodes.inline:
    """Model types as code, one after another, with breaks allowed between them."""
    parts: list[nodes.Node] = []
    for kind in kinds:
        parts += [nodes.literal("", kind), nodes.Text(" ")]
    return nodes.inline("", "", *parts[:-1])


TREES = {
    "one pass": "a tree is verified in one pass",
    "path by path": "a tree is verified path by path",
}


def architectures(data: dict) -> nodes.definition_list:
    """One entry for each outcome and reason, with the model types it holds for."""
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
    made = nodes.definition_list()
    for outcome, why in order:
        kinds = groups[outcome, why]
        made += nodes.definition_list_item(
            "",
            nodes.term(text=f"{outcome}, {len(kinds)} type{'s' * (len(kinds) > 1)}: {why}"),
            nodes.definition("", nodes.paragraph("", "", names(kinds))),
        )
    return made


def distance(worst: float | None) -> str:
    return "refused" if worst is None else "exact" if worst == 0 else f"off {worst:.2f}"


def rules(data: dict) -> nodes.table:
    """One row for each rule on chains and on trees, or on both where they agree: the largest
    distance over the ways of drafting.
    """
    merged: dict[tuple[str, str], list[dict]] = {}
    for row in data["rules"]:
        merged.setdefault((row["rule"], row["draft"].split(",")[0]), []).append(row["distance"])
    labels = list(data["rules"][0]["distance"])
    worst = lambda found, label: (
        None if found[0][label] is None else max(each[label] for each in found)
    )
    shared: dict[tuple, list[str]] = {}
    for (rule, draft), found in merged.items():
        cells = tuple(distance(worst(found, label)) for label in labels)
        shared.setdefault((rule, cells), []).append(draft)
    return table(
        ("rule", "draft", *labels),
        (
            (nodes.literal("", rule), ", ".join(drafts), *cells)
            for (rule, cells), drafts in shared.items()
        ),
    )


def drafters(data: dict) -> nodes.definition_list:
    """One entry for each outcome and the rules that judged it, with the drafters it holds for."""
    labels, merged = list(data["drafters"][0]["distance"]), {}
    for row in data["drafters"]:
        cells = (
            "exact" if row["greedy text"] else "differs",
            *(distance(row["distance"][label]) for label in labels),
        )
        merged.setdefault((row["drafter"], cells), []).append(row["rule"].replace("_", " "))
    groups: dict[tuple, list[str]] = {}
    for (drafter, cells), judges in merged.items():
        groups.setdefault((cells, tuple(judges)), []).append(drafter)
    made = nodes.definition_list()
    for (cells, judges), group in groups.items():
        outcome = (
            "exact"
            if set(cells) == {"exact"}
            else "; ".join(map(": ".join, zip(("T = 0", *labels), cells, strict=True)))
        )
        made += nodes.definition_list_item(
            "",
            nodes.term(
                text=f"{outcome}, {len(group)} drafter{'s' * (len(group) > 1)}, under each of: "
                + ", ".join(judges)
            ),
            nodes.definition("", nodes.paragraph(text=" · ".join(group))),
        )
    return made


def refusals(data: dict) -> nodes.table:
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
    """One row for each module: how many changes were killed, survived, or are reached by no test;
    then the survivors.
    """
    heads = ("killed", "survived", "untested", "timed out")
    counted = table(
        ("module", *heads),
        (
            (nodes.literal("", module), *(str(counts[head]) for head in heads))
            for module, counts in data["modules"].items()
        ),
    )
    bare = re.compile(r"^specdec_lite\.|__mutmut_\d+$|(?<=\.)x(?:_|ǁ)")  # mutmut's own marks
    function = lambda name: bare.sub("", name).replace("ǁ", ".")
    change = re.compile(r"- ((\S+ ).+?) \+ (\2.+)")  # both begin with one word
    survivors = (
        (nodes.literal("", function(row["name"])), nodes.literal("", old), nodes.literal("", new))
        for row in data["survivors"]
        for old, _, new in [change.fullmatch(row["change"]).groups()]
    )
    heads = ("function", "a line", "a change of it that survived")
    return nodes.container("", counted, table(heads, survivors))


def content(make: Callable[[dict], nodes.Element], name: str = "matrix"):
    def made(app: Sphinx, page: str) -> list[nodes.Node]:
        if name not in results.names():
            return [nodes.paragraph(text=f"Nothing is recorded in results/{name}.json yet.")]
        found = results.load(name)
        note = (
            f" {found.data['run']} changes were run; the tests noticed {found.data['score']:.0%} of"
            " them."
            if "score" in found.data
            else ""
        )
        words = (
            f"Made by the suite itself: {found.source.replace('`', '')}.{note}",
            found.data.get("note", ""),
        )
        return [
            make(found.data),
            nodes.paragraph("", "", nodes.emphasis(text=" ".join(filter(None, words)))),
        ]

    return made


def register(app: Sphinx) -> None:
    for name, make in (
        ("promise-architectures", architectures),
        ("promise-rules", rules),
        ("promise-drafters", drafters),
        ("promise-refusals", refusals),
    ):
        late.directive(app, name, content(make))
    late.directive(app, "promise-mutation", content(mutants, "mutation"))
