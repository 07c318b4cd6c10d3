"""The map (book/map.yml) and the catalog (book/methods.md) agree, and every link explains."""

import re

import pytest
import yaml
from conftest import ROOT

TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
PAGES = {page["file"] for part in TOC["parts"] for page in part["chapters"]}
MAP = (ROOT / "book" / "map.yml").read_text("utf-8")
CATALOG = (ROOT / "book" / "methods.md").read_text("utf-8")
HERE = "book/methods"
METHODS = [(name, row[4]) for row in yaml.safe_load(MAP)["methods"] for name in row[3]]


def dead_end(name: str, page: str, catalog: str = CATALOG, pages: set[str] = PAGES) -> str:
    """Return why the link of a method leads to no explanation; "" if it does."""
    if page not in pages:
        return f"{page} is not in _toc.yml"
    rows, reasons = catalog.split("### Without a chapter")
    if page == HERE:
        sentence = re.search(rf"^- \*\*{re.escape(name)}\*\* .+?: (.+)$", reasons, flags=re.M)
        is_reason = sentence and len(sentence[1].split()) > 5
        return "" if is_reason else "no sentence says why it has no chapter"
    row = [line for line in rows.splitlines() if line.startswith("| ") and name in line]
    linked = any(f"(../{page}.ipynb)" in line for line in row)
    return "" if linked else f"no row of the catalog links to {page}"


@pytest.mark.parametrize(("name", "page"), METHODS)
def test_a_method_on_the_map_has_a_page_or_a_reason(name: str, page: str):
    assert dead_end(name, page) == ""


def test_a_dead_end_is_reported():
    chapter = "notebooks/05_draft_then_verify"
    assert dead_end("SpecDec", chapter) == ""
    assert "not in _toc.yml" in dead_end("SpecDec", "notebooks/05_gone")
    assert "no row" in dead_end("SpecDec", "notebooks/07_how_fast")
    assert "no row" in dead_end("unknown method", chapter)
    assert "no sentence" in dead_end("SpecDec", HERE)
    assert "no sentence" in dead_end("FLy", HERE, CATALOG.replace("**FLy**", "**Fly**"))


def test_each_method_occurs_once_in_a_cell_of_the_map():
    data = yaml.safe_load(MAP)
    for source, shape, rule, names, _ in data["methods"]:
        is_known = source in data["sources"] and shape in data["shapes"]
        assert is_known and rule in ("exact", "lossy"), names
    names = [name for name, _ in METHODS]
    assert sorted(set(names)) == sorted(names)


def test_every_stop_of_a_route_is_a_page():
    for route in yaml.safe_load(MAP)["routes"]:
        stops = [] if route["stops"] == "chapters" else route["stops"]
        assert set(stops) <= PAGES, route["name"]


def test_the_catalog_uses_no_color_of_a_role():
    """Blue is the target and amber the draft, also on this page; letters and shapes tell groups apart."""
    style = CATALOG.partition("</style>")[0]
    assert "<style>" in style and not re.findall(r"#[0-9a-f]{3,6}\b", style)


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_the_catalog_and_the_map_agree_on_chains_and_trees(shape):
    other = {"chain": "tree", "tree": "chain"}[shape]
    for _, kind, _, names, page in yaml.safe_load(MAP)["methods"]:
        for name in names if kind == shape and page != HERE else ():
            rows = [
                line
                for line in CATALOG.splitlines()
                if re.match(rf"\| .*\b{re.escape(name)}", line)
            ]
            forms = [line.split(" | ")[2] for line in rows if line.count(" | ") == 4]
            assert any(shape in form for form in forms), name
            assert all(f"{shape} or {other}" not in form for form in forms), name


def unlisted(pages: dict[str, str], bibliography: str) -> dict[str, list[str]]:
    """Return page → arXiv numbers that it links to and the bibliography lacks."""
    link = re.compile(r"arxiv\.org/(?:abs|pdf)/(\d{4}\.\d{4,5})")
    missing = {page: set(link.findall(text)) for page, text in pages.items()}
    listed = set(link.findall(bibliography))
    return {page: sorted(ids - listed) for page, ids in missing.items() if ids - listed}


def test_each_paper_that_a_page_links_is_in_the_bibliography():
    files = [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "book").glob("*.md")]
    pages = {path.name: path.read_text("utf-8") for path in files}
    bibliography = (ROOT / "book" / "references.bib").read_text("utf-8")
    assert unlisted(pages, bibliography) == {}
    without = bibliography.replace("arxiv.org/abs/2211.17192", "arxiv.org/abs/0000.00000")
    assert unlisted(pages, without)["20_claims.ipynb"] == ["2211.17192"]


def test_the_hours_of_all_chapters_are_the_sum_of_their_minutes():
    book = ROOT / "book"
    pages = [*(ROOT / "notebooks").glob("[0-9]*.ipynb"), *book.glob("03_*.md"), book / "live.md"]
    found = (re.search(r"\*(\d+) minutes · ", page.read_text("utf-8")) for page in pages)
    hours = f"{round(sum(int(minutes[1]) for minutes in found) / 60)} hours"
    assert all(hours in (book / name).read_text("utf-8") for name in ("routes.md", "preface.md"))
