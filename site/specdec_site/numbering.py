"""Numbers of pages, before their titles (in the page, the sidebar, the maps, the search), and of figures.

The number comes from the file name: notebooks/04_… is chapter 4, 07b_… is 7b, a1_… is appendix A1. A
page in book/ that accompanies a notebook of the same number (the proofs of chapter 6) has none. On
finished pages drawings and plots are counted together, in the order of the page; interactives have
no number. A handle is a link such as #explorer:gamma=20, which sets an interactive of its page;
#explorer-2:gamma=20 sets the page's second explorer.
"""

import re
from pathlib import Path

from bs4 import BeautifulSoup
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

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


def number_figures(soup: BeautifulSoup, chapter: str) -> None:
    """Number the figures of a page: "Figure 7.3" is the third figure of chapter "7"."""
    for i, caption in enumerate(soup.select("article figure > figcaption"), 1):
        number = f"Figure {chapter}.{i}"
        mark = soup.new_tag("span", attrs={"class": "sdl-number"}, string=f"{number}.")
        caption.insert(0, mark)
        mark.insert_after(" ")
        if name := caption.parent.get("id"):
            for link in soup.select(f'article a[href="#{name}"]'):
                link.string = number
    targets = [link["href"] for link in soup.select('article a[href^="#fig-"]')]
    missing = [href for href in targets if soup.find(id=href[1:]) is None]
    interactives = [part["data-module"] for part in soup.select(".sdl-interactive")]
    for link in soup.select('article a[href^="#"][href*="="]'):
        module, _, number = link["href"][1:].partition(":")[0].partition("-")
        if interactives.count(module) < int(number or 1):
            missing.append(link["href"])
    if missing:
        raise ExtensionError(f"chapter {chapter} has no figure or interactive {', '.join(missing)}")


def register(app: Sphinx) -> None:
    """Insert numbers before Sphinx collects the titles, so that every list of titles has them."""
    app.connect("doctree-read", insert_number, priority=100)
