"""Directives whose content is known only after all pages are read: titles, reading times, runs."""

from collections.abc import Callable, Iterable

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

Cell = str | nodes.Node


def _entry(cell: Cell) -> nodes.entry:
    content = cell if isinstance(cell, nodes.Node) else nodes.Text(cell)
    return nodes.entry("", nodes.paragraph("", "", content))


def table(heads: Iterable[str], rows: Iterable[Iterable[Cell]]) -> nodes.table:
    """Return a table for the content of a directive."""
    heads = list(heads)
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in heads), cols=len(heads))
    lines = [nodes.row("", *map(_entry, line)) for line in (heads, *rows)]
    group += [nodes.thead("", lines[0]), nodes.tbody("", *lines[1:])]
    return nodes.table("", group, classes=["colwidths-auto"])


class DeferredNode(nodes.General, nodes.Element):
    """A placeholder for the content of the directive named in its attribute `kind`."""


def add_directive(
    app: Sphinx, name: str, content: Callable[[Sphinx, str], list[nodes.Node]]
) -> None:
    """Add the directive ```{name}```."""

    class Deferred(SphinxDirective):
        def run(self) -> list[nodes.Node]:
            self.env.note_reread()  # a change of another page may change the content
            return [DeferredNode(kind=name)]

    def fill(app: Sphinx, doctree: nodes.document, page: str) -> None:
        placeholders = [node for node in doctree.findall(DeferredNode) if node["kind"] == name]
        for placeholder in placeholders:
            placeholder.replace_self(content(app, page))

    app.add_directive(name, Deferred)
    app.connect("doctree-resolved", fill)
