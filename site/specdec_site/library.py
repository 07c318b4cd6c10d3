"""The directive `reading-order`: the files of the library in the order in which to read them."""

import reading_order
from docutils import nodes
from sphinx.application import Sphinx

from . import deferred
from .docutils_tables import table


def inline(text: str) -> nodes.inline:
    """Return a sentence in which words between backticks are code."""
    parts = text.split("`")
    return nodes.inline(
        "",
        "",
        *(nodes.literal("", part) if i % 2 else nodes.Text(part) for i, part in enumerate(parts)),
    )


def content(app: Sphinx, page: str) -> list[nodes.Node]:
    """Return the table of files, each linked to its source in the repository."""
    options = app.config.html_theme_options
    folder = f"{options['repository_url']}/blob/{options['repository_branch']}/specdec_lite"
    rows = reading_order.rows()
    files = table(
        ("file", "what it does", "lines", "of code"),
        (
            (
                nodes.reference("", "", nodes.literal("", row.path), refuri=f"{folder}/{row.path}"),
                inline(row.summary),
                str(row.lines),
                str(row.code),
            )
            for row in rows
        ),
    )
    lines, code = sum(row.lines for row in rows), sum(row.code for row in rows)
    text = f"{len(rows)} files, {lines:,} lines in all: {code:,} of code, and their documentation."
    return [files, nodes.paragraph(text=text)]


def register(app: Sphinx) -> None:
    """Add the directive to a Sphinx application."""
    deferred.add_directive(app, "reading-order", content)
