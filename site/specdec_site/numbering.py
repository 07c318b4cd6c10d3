"""A page's number before its title: in the page, in the sidebar, on the maps and in the search.

The number is the file's own: notebooks/04_… is chapter 4, 07b_… is 7b, a1_… is appendix A1. A page
in book/ beside a notebook of the same number (the proofs of chapter 6) has none.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

NUMBERED = re.compile(r"(notebooks|book)/(a?)0*(\d+)([a-z]?)_")


def number(page: str, source: Path) -> str | None:
    """What stands before the title of `page`; None for a page without a number. source: the book's
    root.
    """
    name = NUMBERED.match(page)
    if name is None:
        return None
    prefix = page.split("/")[1].split("_")[0]
    if name[1] == "book" and any(source.glob(f"notebooks/{prefix}_*.ipynb")):
        return None
    return name[2].upper() + name[3] + name[4]


def put(app: Sphinx, doctree: nodes.document) -> None:
    """Before the titles are collected, so that every list of them has the numbers too."""
    title = doctree.next_node(nodes.title)
    found = number(app.env.docname, Path(app.srcdir))
    if title is not None and found is not None:
        title.insert(0, nodes.Text(f"{found}. "))


def register(app: Sphinx) -> None:
    app.connect("doctree-read", put, priority=100)
