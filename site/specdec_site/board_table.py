"""The directive ```{which-draft}```: the best method for each kind of text, from the scoreboard."""

from docutils import nodes
from sphinx.application import Sphinx

from specdec_book.viz.board_figures import advice

from . import deferred
from .docutils_tables import table


def content(app: Sphinx, page: str) -> list[nodes.Node]:
    """Return the table and a sentence that says what its numbers are."""
    heads, rows, sentence = advice()
    return [table(heads, rows), nodes.paragraph("", "", nodes.emphasis(text=sentence))]


def register(app: Sphinx) -> None:
    """Add the directive to a Sphinx application."""
    deferred.add_directive(app, "which-draft", content)
