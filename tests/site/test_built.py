"""What every built page has, and a few pages alone; `make linkcheck` checks external links."""

import copy
import json
import re
from functools import cache
from html import unescape
from itertools import combinations
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from browsing import CHAPTERS, FIGURES, PAGES, START, look, parsed
from bs4 import BeautifulSoup
from conftest import ROOT
from specdec_site import bundle
from specdec_site.addresses import prefixes
from specdec_site.numbering import number
from specdec_site.policy import HEADER, POLICY


@cache
def anchors(path: Path) -> set[str]:
    """Return the ids on a page, and its interactives' names, which handles such as #round:at=3 set.

    Its text is searched, since most pages are asked in every process.
    """
    ids = re.findall(r'<[^>]*\s(?:id|data-module)="([^"]+)"', path.read_text("utf-8"))
    return set(map(unescape, ids))


def check_links(page: Path, soup: BeautifulSoup) -> None:
    """Internal links have a target; a page loads nothing from another host, and leads to no published
    copy of the page beside it.
    """
    loaded = [
        tag.get("src") or tag.get("href")
        for tag in soup.select("script[src], img[src], iframe[src], link[href]")
    ]
    assert [url for url in loaded if url.startswith(("http:", "https:", "//"))] == []
    links, broken = [a["href"] for a in soup.select("a[href]")], []
    assert [url for url in links if url.startswith(f"{prefixes()[0]}book/")] == []
    for url in loaded + links:
        if url.startswith(("http:", "https:", "mailto:", "data:")):
            continue
        path, anchor = urldefrag(unquote(url).split("?")[0])
        target = (page.parent / path).resolve() if path else page
        handle = re.fullmatch(r"([a-z_]+)(?:-\d+)?:[\w=,.-]+", anchor)
        name = handle[1] if handle else anchor
        if not target.is_file() or (anchor and name not in anchors(target)):
            broken.append(url)
    assert broken == []


MARKUP = re.compile(r"\]\([^()\s]+\)|\$[^$\n]{1,60}\$|\*\*\w|(?<![\w*])\*\w[^*\n]{0,60}\*(?!\w)")
"""Markdown that was not converted: a link, a formula, bold text or emphasis."""


def check_markup(page: Path, soup: BeautifulSoup) -> None:
    """A text that follows `</details>` without an empty line, or a comment, would not be converted."""
    for article in map(copy.copy, soup.select("article")):
        for node in article.select(
            "pre, code, script, style, .math, mjx-container, .sdl-interactive"
        ):
            node.decompose()
        assert [match[0] for match in MARKUP.finditer(article.get_text(" "))] == []


def check_formulas(page: Path, soup: BeautifulSoup) -> None:
    """Formulas are drawings with MathML, whose glyphs the page has."""
    for formula in soup.select(".math"):
        assert formula.select("mjx-container > svg")
        assert formula.select_one("mjx-assistive-mml > math")
    glyphs = {path["id"] for path in soup.select("body > svg path[id]")}
    assert {use["href"][1:] for use in soup.select(".math use")} <= glyphs
    assert "mathjax" not in " ".join(s.get("src", "") for s in soup.select("script")).lower()


def check_head(page: Path, soup: BeautifulSoup) -> None:
    """The policy precedes all that loads, the theme's script any sheet; there is one sheet."""
    first = soup.head.find(["script", "link", "style"])
    (policy,) = soup.head.find_all("meta", attrs={"http-equiv": HEADER})
    assert policy["content"] == POLICY and policy in first.find_all_previous("meta")
    assert first.name == "script" and "prefers-color-scheme" in first.string
    sheets = [link["href"].partition("?")[0] for link in soup.select("link[rel=stylesheet]")]
    own = [sheet.rpartition("/")[2] for sheet in sheets if "sphinx-design" not in sheet]
    assert own == [bundle.SHEET] and len(soup.select(".logo__image")) == 1
    texts = [(page.parent / sheet).read_text("utf-8") for sheet in sheets]
    assert not any(bundle.ICON_FONT in text for text in texts)


def check_figures(page: Path, soup: BeautifulSoup) -> None:
    """A figure states its finding, and traces in its legend differ in line, symbol, pattern or width."""
    for figure in soup.select(".sdl-figure"):
        assert len(figure.select_one(".sdl-finding").get_text().split()) >= 4, figure.figcaption
    for plot in soup.select(FIGURES):
        traces = json.loads(plot.script.string)["data"]
        named = [trace for trace in traces if trace.get("showlegend", True)]
        for a, b in combinations(named, 2):
            assert look(a) != look(b), (plot["aria-label"], a.get("name"), b.get("name"))


CHECKS = check_links, check_markup, check_formulas, check_head, check_figures


@pytest.mark.parametrize("page_name", PAGES)
def test_a_page_is_whole(book: Path, page_name: str):
    for check in CHECKS:
        check(book / page_name, parsed(book / page_name))


def test_the_first_page_leads_to_one_that_is_there(book: Path):
    check_links(book / "index.html", parsed(book / "index.html"))


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
    for name in ("Last executed on", "Python 3.", "specdec_lite ", "torch ", "transformers "):
        assert name in run


@pytest.mark.parametrize("page_name", CHAPTERS)
def test_a_chapter_shows_its_number_and_links_its_terms(book: Path, page_name: str):
    page, prefix = parsed(book / page_name), f"{number(page_name, ROOT)}. "
    assert page.h1.get_text().startswith(prefix)
    current = page.select_one(".bd-sidebar-primary a.current.reference")
    assert current.get_text(strip=True).startswith(prefix.strip())
    links = page.select("article a.sdl-term")
    assert links and len({link["href"] for link in links}) == len(links)
    assert all(link["data-definition"].strip() for link in links)


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


def test_the_glossary_is_sorted_and_has_every_name_of_its_table(book: Path):
    soup = parsed(book / "book" / "glossary.html")
    terms = [term.find(string=True).strip() for term in soup.select("dl.glossary dt")]
    assert terms == sorted(terms, key=str.lower) and len(terms) == len(set(terms)) > 60
    named = [row.td.get_text(" ", strip=True) for row in soup.select("article table tbody tr")]
    plain = [re.sub(r"ed tokens$| [^ ]$", "", name) for name in named if "÷" not in name]
    assert named and [name for name in plain if name not in " ".join(terms)] == []
