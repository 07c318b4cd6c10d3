"""Internal links and anchors of the built pages; `make linkcheck` checks external links."""

import re
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from browsing import CHAPTERS, PAGES, START, parsed


@cache
def anchors(path: Path) -> set[str]:
    """Return the ids on a page, and its interactives' names, which handles such as #round:at=3 set.

    Its text is searched, since most pages are asked in every process.
    """
    ids = re.findall(r'<[^>]*\s(?:id|data-module)="([^"]+)"', path.read_text("utf-8"))
    return set(map(unescape, ids))


@pytest.mark.parametrize("page_name", [*PAGES, "index.html"])
def test_links_resolve(book: Path, page_name: str):
    """Internal links and anchors have a target, and a page loads nothing from another host."""
    soup = parsed(book / page_name)
    loaded = [
        tag.get("src") or tag.get("href")
        for tag in soup.select("script[src], img[src], iframe[src], link[href]")
    ]
    assert [url for url in loaded if url.startswith(("http:", "https:", "//"))] == []
    broken = []
    for url in loaded + [a["href"] for a in soup.select("a[href]")]:
        if url.startswith(("http:", "https:", "mailto:", "data:")):
            continue
        path, anchor = urldefrag(unquote(url).split("?")[0])
        target = ((book / page_name).parent / path).resolve() if path else book / page_name
        handle = re.fullmatch(r"([a-z_]+)(?:-\d+)?:[\w=,.-]+", anchor)
        name = handle[1] if handle else anchor
        if not target.is_file() or (anchor and name not in anchors(target)):
            broken.append(url)
    assert broken == []


@pytest.mark.parametrize("page_name", CHAPTERS)
def test_every_chapter_states_its_prerequisites_and_opens_elsewhere(book: Path, page_name: str):
    """Minutes and prerequisites are below the title, links in the header, and the run at the end.

    The links open Colab, JupyterLab, the notebook's source and the issue tracker.
    """
    soup = parsed(book / page_name)
    stem = Path(page_name).stem
    line = next(
        line.get_text() for line in soup.select("article em") if "minutes" in line.get_text()
    )
    assert line.split(" minutes")[0].isdigit() and "before this" in line
    links = [a["href"] for a in soup.select(".article-header-buttons a[href]")]
    for part in ("colab.research.google.com/github/", "localhost:8888/lab/tree/"):
        assert any(part in url and url.endswith(f"{stem}.ipynb") for url in links), part
    assert any("/issues/new" in url for url in links)
    assert any(url.startswith("../_sources/") and url.endswith(f"{stem}.ipynb") for url in links)
    run = soup.select_one("article .sdl-executed").get_text()
    assert all(
        name in run
        for name in ("Last executed on", "Python 3.", "specdec_lite ", "torch ", "transformers ")
    )


ROUTES = "book/routes.html"


def test_the_route_map_links_to_every_page(book: Path):
    soup = parsed(book / ROUTES)
    on_the_map = {
        ((book / ROUTES).parent / (a["href"] or "routes.html")).resolve()
        for a in soup.select(".sdl-routes a")
    }
    assert on_the_map == {(book / name).resolve() for name in PAGES} - {
        (book / START).resolve(),
        (book / "search.html").resolve(),
    }
    routes = soup.select_one(".sdl-routes > ul").get_text(" ").split()
    assert " ".join(routes) == (
        "an hour three hours a week of evenings you serve a model the reference"
    )


def test_the_start_page_has_a_card_for_each_route(book: Path):
    cards = parsed(book / START).select(".sdl-cards > div")
    names = " ".join(card.select_one("strong").get_text() for card in cards)
    assert names == "An hour, or three A week of evenings You serve a model The reference"
    assert [len(card.select("a")) for card in cards] == [3, 2, 2, 2]


def test_one_table_has_the_times_of_all_chapters(book: Path):
    rows = parsed(book / "book" / "runs.html").select("article table tbody tr")
    assert len(rows) == len(CHAPTERS) + 1
    seconds = [float(row.select("td")[2].get_text()) for row in rows]
    assert min(seconds) > 0
    assert seconds[-1] == pytest.approx(sum(seconds[:-1]), abs=0.1 * len(seconds))


def test_equations_and_theorems_are_numbered(book: Path):
    soup = parsed(book / "book" / "06_proofs.html")
    numbers = [span.find(string=True).strip() for span in soup.select("div.math > .eqno")]
    assert numbers == [f"({i})" for i in range(1, len(soup.select("div.math")) + 1)]
    assert len(numbers) >= 8
    theorems = [
        title.select_one(".caption-number").get_text()
        for title in soup.select("div.proof.theorem > .admonition-title")
    ]
    assert [name.split()[-1] for name in theorems] == [str(i) for i in range(1, len(theorems) + 1)]
    assert theorems


def test_every_entry_of_the_bibliography_has_its_year_and_a_link(book: Path):
    """A label is authors and year; a printed report may have a number instead of a link."""
    entries = parsed(book / "book" / "bibliography.html").select(".citation-list > .citation")
    labels = [entry.select_one(".label").get_text().strip("[]") for entry in entries]
    assert len(labels) > 40 and len(set(labels)) == len(labels)
    assert [
        label for label in labels if not re.fullmatch(r"[^{}\\]+, (19|20)\d\d[a-z]?", label)
    ] == []
    assert [
        entry.get_text()
        for entry in entries
        if not entry.select_one("a[href^=http]") and "Technical Report" not in entry.get_text()
    ] == []


def test_the_glossary_has_every_kind_of_token_and_its_table_of_names(book: Path):
    """Terms are in alphabetical order and include every kind of token and every name in the table."""
    soup = parsed(book / "book" / "glossary.html")
    terms = [term.find(string=True).strip() for term in soup.select("dl.glossary dt")]
    assert terms == sorted(terms, key=str.lower) and len(terms) == len(set(terms)) > 60
    assert {
        f"{kind} token"
        for kind in (
            "recovered",
            "bonus",
            "sampled",
            "tested",
            "rejected",
            "unused",
            "committed",
            "drawn",
            "chosen",
        )
    } <= set(terms)
    assert {
        "speculative decoding",
        "speculative sampling",
        "rejection sampling",
        "node",
        "draw",
        "proposal",
        "verification",
    } <= set(terms)
    named = [row.td.get_text(" ", strip=True) for row in soup.select("article table tbody tr")]
    known = " ".join(terms)
    assert [
        name
        for name in named
        if re.sub(r"ed tokens$| [^ ]$", "", name) not in known and "÷" not in name
    ] == []
