"""Tables as docutils nodes, for the directives of this extension."""

from collections.abc import Iterable

from docutils import nodes

Cell = str | nodes.Node


def _entry(cell: Cell) -> nodes.entry:
    content = cell if isinstance(cell, nodes.Node) else nodes.Text(cell)
    return nodes.entry("", nodes.paragraph("", "", content))


def table(heads: Iterable[str], rows: Iterable[Iterable[Cell]]) -> nodes.table:
    """Return a table."""
    heads = list(heads)
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in heads), cols=len(heads))
    lines = [nodes.row("", *map(_entry, line)) for line in (heads, *rows)]
    group += [nodes.thead("", lines[0]), nodes.tbody("", *lines[1:])]
    return nodes.table("", group, classes=["colwidths-auto"])
