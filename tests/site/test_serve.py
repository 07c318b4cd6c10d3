"""`make serve` watches the sources alone, and serves nothing but the book."""

import http.client
import os
import re

import browser
import pytest
import serve

# times of the files, and of one changed file, in seconds since 1970
PAGE = 1_000
NEW = 2_000
SOURCES = (
    "book/preface.md",
    "book/figures/tree.svg",
    "notebooks/01_a.ipynb",
    "site/static/page.css",
    "site/live/worker.js",
    "specdec_lite/theory.py",
    "specdec_book/viz/panel.py",
    "specdec_book/viz/static/bench.js",
    "results/race/intel-r-xeon-r-processor.json",
    "_config.yml",
    "_toc.yml",
)
OTHER_FILES = (
    "_build/html/index.html",
    "site/specdec_site/__pycache__/live.pyc",
    "specdec_lite/__pycache__/theory.pyc",
    "tests/test_tree.py",
)


@pytest.mark.parametrize("changed", SOURCES + OTHER_FILES)
def test_only_sources_are_watched_and_not_what_a_build_writes(monkeypatch, tmp_path, changed: str):
    for name in SOURCES + OTHER_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, times=(0, NEW if name == changed else PAGE))
    monkeypatch.setattr(serve, "ROOT", tmp_path)
    assert serve.newest() == (NEW if changed in SOURCES else PAGE)


@pytest.fixture
def ask(tmp_path):
    """ask(path, host) -> (status, body) of a server whose folder holds links and a folder."""
    book = tmp_path / "book"
    (book / "images").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    for name in ("index.html", "images/tree.svg"):
        (book / name).write_text("shown")
    (book / "link.txt").symlink_to(tmp_path / "secret.txt")
    (book / "above").symlink_to(tmp_path)
    (book / "circle").symlink_to("circle")
    with browser.served(book, handler=browser.Isolating) as address:
        port = int(re.search(r":(\d+)/", address)[1])

        def answer(path: str, host: str | None = None) -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", path, headers={"Host": host} if host else {})
            response = connection.getresponse()
            return response.status, response.read().decode()

        yield answer


@pytest.mark.parametrize("path", ["/", "/index.html", "/images/tree.svg", "/index.html?v=1"])
def test_the_files_of_the_folder_are_served(ask, path: str):
    assert ask(path) == ask(path, "localhost:8000") == (200, "shown")


@pytest.mark.parametrize(
    "path",
    [
        *("/link.txt", "/above/secret.txt", "/circle"),
        *("/../secret.txt", "/%2e%2e/secret.txt", "//secret.txt", "/%00", "/index.html%00"),
        "/images/",  # a folder without an index is not listed
    ],
)
def test_nothing_else_is_served_and_every_request_has_an_answer(ask, path: str):
    status, body = ask(path)
    assert status == 404 and "secret" not in body and "tree" not in body
    assert ask("/")[0] == 200, "the server goes on"


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org", "example.org:8000", "x"])
def test_a_page_of_another_host_gets_no_answer(ask, host: str):
    """Its name may lead to this machine; the browser then takes the book's server for its own."""
    assert ask("/", host)[0] == 403
