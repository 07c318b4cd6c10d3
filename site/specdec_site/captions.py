"""Figure numbers: before each caption of a chapter, and in links of its text to a figure.

Runs on finished pages. Drawings and plots are counted together, in the order of the page;
interactives have no number. A handle is a link such as #explorer:gamma=20, which sets an interactive
of its page; #explorer-2:gamma=20 sets the page's second explorer.
"""

from bs4 import BeautifulSoup
from sphinx.errors import ExtensionError


def number_figures(soup: BeautifulSoup, chapter: str) -> None:
    """Number the figures of a page: "Figure 7.3" is the third figure of chapter "7"."""
    for i, caption in enumerate(soup.select("article figure > figcaption"), 1):
        number = f"Figure {chapter}.{i}"
        if not caption.select_one(".sdl-number"):
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
