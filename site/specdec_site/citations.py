"""Citation cards: a citation carries the paper's title and address, which terms.js shows.

Runs on finished pages. A citation also gets the letter that tells apart several papers by one author
in one year. A plain link to a paper of the bibliography counts as a citation.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from bs4 import BeautifulSoup, Tag

BIBLIOGRAPHY = "bibliography.html"
YEAR = re.compile(r"(.*\b)?\d{4}")


@dataclass(frozen=True, slots=True)
class Reference:
    """One entry of the bibliography.

    Attributes:
        anchor: HTML id of the entry.
        letter: letter after the year in its label; "" if there is none.
        text: authors, title and where it appeared.
        address: the entry's first link; "" if there is none.
    """

    anchor: str
    letter: str
    text: str
    address: str


def bibliography(page: Path) -> list[Reference]:
    """Return the entries of a built bibliography; an empty list if the page does not exist."""
    if not page.is_file():
        return []
    soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
    return [_reference(entry) for entry in soup.select(".citation[id]")]


def _reference(entry: Tag) -> Reference:
    label = entry.select_one(".label").get_text().strip("[] \n")
    link = entry.select_one("p a.external")
    text = " ".join(entry.p.get_text().split()).partition(" URL: ")[0]
    return Reference(
        entry["id"], label[-1] if label[-1].isalpha() else "", text, link["href"] if link else ""
    )


def add_cards(soup: BeautifulSoup, references: list[Reference]) -> None:
    """Add its letter and its card to every citation of a page."""
    by_anchor = {reference.anchor: reference for reference in references}
    by_address = {reference.address: reference for reference in references if reference.address}
    for link in soup.select("article a[href]:not(.citation a, .sdl-cite)"):
        page, _, anchor = link["href"].partition("#")
        inside = page.rpartition("/")[2] == BIBLIOGRAPHY and by_anchor.get(anchor)
        reference = inside or by_address.get(link["href"])
        if not reference:
            continue
        if inside and YEAR.fullmatch(link.get_text()):
            link.string = link.get_text() + reference.letter
        link.attrs.pop("title", None)
        link["class"] = [*link.get("class", []), "sdl-cite"]
        link["data-definition"] = reference.text
        if reference.address:
            link["data-address"] = reference.address
