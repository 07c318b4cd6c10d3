"""What the tests of the built book share: where it stands, a server on localhost, and a browser in which every other host is blocked."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:   # before torch is imported: several processes with a thread for every core wait for each other
    os.environ["OMP_NUM_THREADS"] = "1"

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks import browser  # noqa: E402

BOOK = Path(os.environ.get("SPECDEC_BOOK", ROOT / "_build" / "html"))


@pytest.fixture(scope="session")
def book() -> Path:
    """The folder of the built book."""
    if not (BOOK / "index.html").exists():
        pytest.fail(f"no book in {BOOK}: run `make book` first")
    return BOOK


@pytest.fixture(scope="session")
def server(book: Path) -> Iterator[str]:
    """The built book over http; the address ends with a slash."""
    with browser.served(book) as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    """Headless Chromium. Module scope: Playwright keeps an event loop running while it lives."""
    with browser.chromium() as opened:
        yield opened


@pytest.fixture
def open_page(chromium, server: str) -> Iterator[Callable]:
    """open_page(path, width=1280, scheme="light", origin=server) -> page.

    Requests to any other origin are refused and recorded; so are console errors and uncaught exceptions.
    The list is `page.problems`, and a test that leaves anything in it fails.
    """
    contexts, pages = [], []

    def open_(path: str, width: int = 1280, scheme: str = "light", origin: str = server):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # a busy machine is no fault of the page
        page.problems = []
        own = (origin, "data:", "blob:")

        def judge(route) -> None:
            if route.request.url.startswith(own):
                route.continue_()
            else:
                page.problems.append(f"request to another host: {route.request.url}")
                route.abort()

        context.route("**/*", judge)
        page.on("console", lambda m: page.problems.append(f"console: {m.text}") if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.problems.append(f"exception: {error}"))
        page.on("response", lambda r: page.problems.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
        pages.append(page)
        page.goto(origin + path)
        page.wait_for_load_state("networkidle")
        return page

    yield open_
    problems = [problem for page in pages for problem in page.problems]
    for context in contexts:
        context.close()
    assert problems == []
