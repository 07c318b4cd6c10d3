"""Put a page's number before its title: in the page, the sidebar, the maps and the search.

The number comes from the file name: notebooks/04_… is chapter 4, 07b_… is 7b, a1_… is appendix A1. A
page in book/ that accompanies a notebook of the same number (the proofs of chapter 6) has none.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

NUMBERED = re.compile(r"(notebooks|book)/(a?)0*(\d+)([a-z]?)_")


def number(page: str, source: Path) -> str | None:
    """Return the number of a page, such as "7b"; None for a page without one."""
    name = NUMBERED.match(page)
    if name is None:
        return None
    prefix = page.split("/")[1].split("_")[0]
    if name[1] == "book" and any(source.glob(f"notebooks/{prefix}_*.ipynb")):
        return None
    return name[2].upper() + name[3] + name[4]


def insert_number(app: Sphinx, doctree: nodes.document) -> None:
    """Insert a page's number into its title."""
    title = doctree.next_node(nodes.title)
    prefix = number(app.env.docname, Path(app.srcdir))
    if title is not None and prefix is not None:
        title.insert(0, nodes.Text(f"{prefix}. "))


def register(app: Sphinx) -> None:
    """Insert numbers before Sphinx collects the titles, so that every list of titles has them."""
    app.connect("doctree-read", insert_number, priority=100)
