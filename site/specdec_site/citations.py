"""Citations at hand: each says which of an author's papers of a year it means, and carries the
paper's title and address, which terms.js shows in a card.

Runs on finished pages. A chapter's plain link to a paper of the bibliography is a citation too.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from bs4 import BeautifulSoup

BIBLIOGRAPHY = "bibliography.html"
YEAR = re.compile(r"(.*\b)?\d{4}")


@dataclass(frozen=True, slots=True)
class Reference:
    """anchor: of its entry. letter: behind its year, where the label has one. words: authors, title
    and where it appeared. address: the first link of the entry; empty without one.
    """

    anchor: str
    letter: str
    words: str
    address: str


def bibliography(page: Path) -> list[Reference]:
    """The entries of a built bibliography; none where there is no such page."""
    if not page.is_file():
        return []
    soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
    return [_reference(entry) for entry in soup.select(".citation[id]")]


def _reference(entry) -> Reference:
    label = entry.select_one(".label").get_text().strip("[] \n")
    link = entry.select_one("p a.external")
    words = " ".join(entry.p.get_text().split()).partition(" URL: ")[0]
    return Reference(
        entry["id"], label[-1] if label[-1].isalpha() else "", words, link["href"] if link else ""
    )


def show(soup: BeautifulSoup, references: list[Reference]) -> None:
    """Give every citation of a page its letter and its card."""
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
        link["data-definition"] = reference.words
        if reference.address:
            link["data-address"] = reference.address
