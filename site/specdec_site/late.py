"""Directives whose content is known only when every page has been read: titles, minutes, times of
execution.
"""

from collections.abc import Callable

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

METADATA = "sdl_late"


class LateNode(nodes.General, nodes.Element):
    """Stands where the content of the directive `kind` will be."""


def directive(app: Sphinx, name: str, content: Callable[[Sphinx, str], list[nodes.Node]]) -> None:
    """Adds the directive ```{name}```; content(app, page) gives its nodes when the page is written."""

    class Late(SphinxDirective):
        def run(self) -> list[nodes.Node]:
            return [LateNode(kind=name)]

    def fill(app: Sphinx, doctree: nodes.document, page: str) -> None:
        for place in [node for node in doctree.findall(LateNode) if node["kind"] == name]:
            place.replace_self(content(app, page))

    app.add_directive(name, Late)
    app.connect("doctree-resolved", fill)


def note(app: Sphinx, doctree: nodes.document) -> None:
    app.env.metadata[app.env.docname][METADATA] = (
        next(iter(doctree.findall(LateNode)), None) is not None
    )


def write_again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """A page with such a directive is written in every build: what it shows may have changed
    elsewhere.
    """
    return [page for page in env.found_docs if env.metadata[page].get(METADATA)]


def register(app: Sphinx) -> None:
    app.add_node(LateNode)
    app.connect("doctree-read", note)
    app.connect("env-updated", write_again)
