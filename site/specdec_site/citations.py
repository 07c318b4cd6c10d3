"""Citation cards: a citation carries the paper's title and address, which terms.js shows.

Runs on finished pages. A citation also gets the letter that tells apart several papers by one author
in one year. A plain link to a paper of the bibliography counts as a citation.
"""

import re
from pathlib import Path

from bs4 import BeautifulSoup

BIBLIOGRAPHY = "bibliography.html"
YEAR = re.compile(r"(.*\b)?\d{4}")


def bibliography(page: Path) -> dict[str, dict[str, str]]:
    """Return the entries of a built bibliography by HTML id and by address; none if it does not exist.

    An entry is its text without the address, its address, and the letter after its year, or "".
    """
    if not page.is_file():
        return {}
    references = {}
    for entry in BeautifulSoup(page.read_text("utf-8"), "html.parser").select(".citation[id]"):
        last = entry.select_one(".label").get_text().strip("[] \n")[-1]
        link = entry.select_one("p a.external")
        reference = {
            "letter": last if last.isalpha() else "",
            "text": " ".join(entry.p.get_text().split()).partition(" URL: ")[0],
            "address": link["href"] if link else "",
        }
        references |= {key: reference for key in (entry["id"], reference["address"]) if key}
    return references


def add_cards(soup: BeautifulSoup, references: dict[str, dict[str, str]]) -> None:
    """Add its letter and its card to every citation of a page."""
    for link in soup.select("article a[href]:not(.citation a, .sdl-cite)"):
        page, _, anchor = link["href"].partition("#")
        is_inside = page.rpartition("/")[2] == BIBLIOGRAPHY
        reference = references.get(anchor if is_inside else link["href"])
        if not reference:
            continue
        if is_inside and YEAR.fullmatch(link.get_text()):
            link.string = link.get_text() + reference["letter"]
        link.attrs.pop("title", None)
        link["class"] = [*link.get("class", []), "sdl-cite"]
        link["data-definition"] = reference["text"]
        if reference["address"]:
            link["data-address"] = reference["address"]
