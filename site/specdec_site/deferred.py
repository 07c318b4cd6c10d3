"""Directives whose content is known only after all pages are read: titles, reading times, runs."""

from collections.abc import Callable, Iterable

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

METADATA = "sdl_deferred"
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
            return [DeferredNode(kind=name)]

    def fill(app: Sphinx, doctree: nodes.document, page: str) -> None:
        placeholders = [node for node in doctree.findall(DeferredNode) if node["kind"] == name]
        for placeholder in placeholders:
            placeholder.replace_self(content(app, page))

    app.add_directive(name, Deferred)
    app.connect("doctree-resolved", fill)


def mark_page(app: Sphinx, doctree: nodes.document) -> None:
    """Record in a page's metadata whether it has a deferred directive."""
    app.env.metadata[app.env.docname][METADATA] = (
        next(iter(doctree.findall(DeferredNode)), None) is not None
    )


def pages_to_rewrite(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Return the pages with a deferred directive.

    They are written in every build, because a change of another page may change their content.
    """
    return [page for page in env.found_docs if env.metadata[page].get(METADATA)]


def register(app: Sphinx) -> None:
    """Connect the bookkeeping of deferred directives to a Sphinx application."""
    app.add_node(DeferredNode)
    app.connect("doctree-read", mark_page)
    app.connect("env-updated", pages_to_rewrite)
