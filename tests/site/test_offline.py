"""The book requests nothing from other hosts, and its archive works from a folder."""

import base64
import json
import zipfile
from datetime import date
from pathlib import Path

import pytest
from browsing import PAGES, START, drawing_faults, parsed, scroll_through
from conftest import patience
from mounting import settle
from specdec_site import archive

ARCHIVE = "specdec-lite-book"
ROUTES = "book/routes.html"


@pytest.fixture(scope="session")
def unpacked(book: Path, tmp_path_factory) -> Path:
    """The archive, unpacked in a folder outside the built book."""
    folder = tmp_path_factory.mktemp("download")
    with zipfile.ZipFile(book / f"{ARCHIVE}.zip") as archive:
        assert archive.testzip() is None
        archive.extractall(folder)
    return folder / ARCHIVE


@pytest.mark.browser
@pytest.mark.parametrize("url", ["https://example.com/", "/_static/card.png"])
def test_a_request_to_another_host_is_reported(open_page, url: str):
    """A request outside the book's folder is reported too: on GitHub Pages a host has many books."""
    page = open_page(START)
    page.evaluate("url => fetch(url).catch(() => null)", url)
    page.wait_for_function("true")
    assert any("request to another place" in problem for problem in page.problems)
    page.problems.clear()


@pytest.mark.browser
@pytest.mark.parametrize("page_name", PAGES)
def test_page_opens_from_the_archive(open_page, unpacked: Path, page_name: str):
    page = open_page(page_name, origin=f"{unpacked.as_uri()}/")
    scroll_through(page)
    assert drawing_faults(page) == []


@pytest.mark.browser
def test_index_html_of_the_archive_leads_to_the_start_page(new_page, unpacked: Path):
    """Over http the browser may request an icon, because the redirect names none."""
    origin = f"{unpacked.as_uri()}/"
    page = new_page((origin,))
    page.goto(f"{origin}index.html")
    page.wait_for_url(origin + START)
    settle(page)
    assert drawing_faults(page) == []


@pytest.mark.browser
@pytest.mark.parametrize("from_archive", [False, True])
def test_search_works_offline(open_page, unpacked: Path, server: str, from_archive: bool):
    origin = f"{unpacked.as_uri()}/" if from_archive else server
    page = open_page("search.html?q=residual", origin=origin)
    page.wait_for_selector(
        "#search-results li a[href*='symbols.html']"
    )  # results appear one by one


@pytest.mark.browser
def test_the_live_page_decodes_from_the_archive(open_page, unpacked: Path):
    page = open_page("book/live.html", origin=f"{unpacked.as_uri()}/")
    page.get_by_label("Prompt").fill("def add(a, b):\n    return")
    page.locator(".sdl-live-run").click()
    page.wait_for_function("document.querySelector('.sdl-live').dataset.runs === '1'")


def test_the_archive_is_complete_and_does_not_contain_itself(book: Path, unpacked: Path):
    """The archive contains all pages and what they load; the link states its size, and the copy
    states that it is a copy.
    """
    names = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    built = {str(path.relative_to(book)) for path in book.rglob("*") if path.is_file()}
    shards = {name for name in built if name.startswith("_static/live/smollm2")}
    assert (
        built - names - shards
        <= {f"{ARCHIVE}.zip", "_static/live/weights.bin", ".buildinfo", ".buildinfo.bak"}
        and names <= built
    )
    offer = parsed(book / ROUTES).select_one(".sdl-download")
    assert offer.a["href"] == f"../{ARCHIVE}.zip"
    assert f"{(book / f'{ARCHIVE}.zip').stat().st_size / 1e6:.1f} MB" in offer.get_text()
    inside = parsed(unpacked / ROUTES).select_one(".sdl-download")
    assert inside.a is None and "downloaded copy" in inside.get_text()


def test_the_larger_archive_carries_smollm2_in_scripts(tmp_path: Path):
    """Without the option nothing of it is in the archive; without the weights the command says so."""
    live = tmp_path / "book" / "_static" / "live"
    live.mkdir(parents=True)
    (live / "engine.js").write_text("globalThis.sdlLive = {};\n")
    with pytest.raises(ValueError, match="without SmolLM2"):
        archive.pack(tmp_path / "book", date.today(), smollm2=True)
    (live / "smollm2-0.bin").write_bytes(b"weights")
    (live / "smollm2.json").write_text(json.dumps({"shards": [{"name": "smollm2-0.bin"}]}))
    folder = f"{ARCHIVE}/_static/live/"
    with zipfile.ZipFile(archive.pack(tmp_path / "book", date.today())) as small:
        assert small.namelist() == [f"{folder}engine.js"]
    with zipfile.ZipFile(archive.pack(tmp_path / "book", date.today(), smollm2=True)) as large:
        names = ("smollm2-0.js", "smollm2-1.js", "engine.js")
        assert sorted(large.namelist()) == sorted(f"{folder}{name}" for name in names)
        shard = large.read(f"{folder}smollm2-1.js").decode().split('"')[1]
        assert base64.b64decode(shard) == b"weights"
        assert "smollm2.scripts = 2;" in large.read(f"{folder}engine.js").decode()


@pytest.mark.browser
@pytest.mark.slow
def test_smollm2_answers_from_the_larger_archive(open_page, book: Path, tmp_path: Path):
    with zipfile.ZipFile(archive.pack(book, date.today(), smollm2=True)) as large:
        large.extractall(tmp_path)
    page = open_page("book/live.html", origin=f"{(tmp_path / ARCHIVE).as_uri()}/")
    page.get_by_label("Your question").fill("Write the word tea five times.")
    page.locator(".sdl-ask-run").click()
    page.wait_for_function(
        "document.querySelector('.sdl-ask').dataset.runs || document.querySelector('.sdl-ask-bad')",
        timeout=patience(15),
    )
    assert page.locator(".sdl-ask-status").inner_text() == ""
    assert page.evaluate("document.querySelector('.sdl-ask').sdlResult.same")
