"""Numbers of figures: before each caption of a chapter, and where its text refers to one by name.

Runs on finished pages. Drawings and plots are counted together, from the chapter's first to its
last; interactives have none.
"""

from bs4 import BeautifulSoup
from sphinx.errors import ExtensionError


def number_figures(soup: BeautifulSoup, chapter: str) -> None:
    """Figure 7.3 is the third of chapter "7". ExtensionError where the text refers to none of them."""
    for i, caption in enumerate(soup.select("article figure > figcaption"), 1):
        number = f"Figure {chapter}.{i}"
        if not caption.select_one(".sdl-number"):
            mark = soup.new_tag("span", attrs={"class": "sdl-number"}, string=f"{number}.")
            caption.insert(0, mark)
            mark.insert_after(" ")
        if name := caption.parent.get("id"):
            for link in soup.select(f'article a[href="#{name}"]'):
                link.string = number
    lost = [link["href"] for link in soup.select('article a[href^="#fig-"]')]
    lost = [href for href in lost if soup.find(id=href[1:]) is None]
    if lost:
        raise ExtensionError(f"chapter {chapter} has no figure {', '.join(lost)}")
