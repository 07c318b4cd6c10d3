"""Fixtures: the built book, a server on localhost, and a browser that reaches no other host."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote as quote_shell
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, settings

# Before torch is imported: the tests' models are small, and a second thread would only wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["SPECDEC_CHECK"] = "1"  # check every row of every proposal
# jsonschema would compile 38 grammars of addresses, two seconds a process; no schema needs them
sys.modules.setdefault("rfc3987_syntax", None)

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "site")]
import browser  # noqa: E402
from chosen import one_of  # noqa: E402
from mounting import bare_page, patience, settle  # noqa: E402

import specdec_lite  # noqa: E402, F401  (before torch: it bounds the spin of OpenMP's threads)

settings.register_profile(
    "untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # a slow machine is not a failure
settings.load_profile("untimed")
BOOK = Path(os.environ.get("SPECDEC_BOOK", ROOT / "_build" / "html")).resolve()


RATES = pytest.StashKey[list[float]]()
"""The false-alarm rates of the suite's statistical tests, selected or not."""
NEEDS = {"book": pytest.mark.book, "chromium": pytest.mark.browser}
"""The mark of a test that uses a fixture, directly or through another fixture."""
REQUIRE_BOOK = "SPECDEC_REQUIRE_BOOK"
"""The variable that `make test-pages` sets: a missing book then fails instead of skipping."""


def find_book() -> Path:
    """Return the folder of the built book; skip the test, or fail under `make test-pages`, if none is."""
    if not (BOOK / "index.html").exists():
        missing = pytest.fail if os.environ.get(REQUIRE_BOOK) else pytest.skip
        missing(f"there is no built book in {BOOK}: run `make book` first")
    return BOOK


@pytest.fixture(scope="session", autouse=True)
def no_measured_bandwidth() -> Iterator[None]:
    """Every recording would read hundreds of megabytes for seconds, and no test asks for the result."""
    from specdec_lite.measure import machine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "_bandwidth", lambda device: 1e9)
        yield


TEXTS = ["def f(x):\n    return x\n", "It was 25 °C in Zürich – 東京 🙂"] * 20


@pytest.fixture(scope="session")
def tokenizer():
    """A tokenizer of 280 tokens, trained on `TEXTS`."""
    from specdec_lite.training import train_tokenizer

    return train_tokenizer(TEXTS, vocabulary=280)


@pytest.fixture(scope="session")
def book() -> Path:
    """The folder of the built book."""
    return find_book()


def pytest_pycollect_makeitem(collector, obj) -> list | None:
    """Build no test from a weekly function that is not selected: there are thousands of cases."""
    weekly = any(mark.name == "weekly" for mark in getattr(obj, "pytestmark", ()))
    return [] if weekly and "not weekly" in collector.config.option.markexpr else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs the built book or a browser, and keep the rates of all statistical tests."""
    for item in items:
        for fixture, mark in NEEDS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
    marks = (mark for item in items for mark in item.iter_markers("statistical"))
    config.stash[RATES] = [mark.kwargs["rate"] for mark in marks]


def pytest_terminal_summary(terminalreporter) -> None:
    """Print, for each test that failed, the command that runs it again."""
    reports = (terminalreporter.stats.get(kind, ()) for kind in ("failed", "error"))
    names = dict.fromkeys(report.nodeid for each in reports for report in each)
    if names:
        terminalreporter.section("to run it again")
    book = f"SPECDEC_BOOK={quote_shell(str(BOOK))} " if "SPECDEC_BOOK" in os.environ else ""
    for name in names:
        terminalreporter.line(f"{book}.venv/bin/python -m pytest -m '' {quote_shell(name)}")


@pytest.fixture(scope="session")
def server(book: Path) -> Iterator[str]:
    """The address of the built book over http, ending with a slash.

    The book is in a folder of its host, as on GitHub Pages.
    """
    with browser.served(book.parent) as address:
        yield f"{address}{quote(book.name)}/"


@pytest.fixture(scope="session")
def chromium() -> Iterator:
    """Headless Chromium, shared by all tests; it reaches only localhost."""
    with browser.chromium() as opened:
        yield opened


@pytest.fixture
def new_page(chromium) -> Iterator[Callable]:
    """new_page(own=(), **options of a browser context) -> an empty page in a new context.

    `page.problems` records requests to addresses that do not begin with one of `own`, warnings and
    errors in the console, error statuses and uncaught exceptions. A test fails if the list is not
    empty at its end.
    """
    pages = []

    def new(own: tuple[str, ...] = (), **options):
        # Playwright's waits evaluate strings, which the pages' own policy refuses; test_policy opens
        # pages that keep it.
        page = chromium.new_context(**{"bypass_csp": True} | options).new_page()
        page.set_default_timeout(patience())
        page.problems = []
        report, allowed = page.problems.append, (*own, "data:", "blob:")
        page.on(
            "request",
            lambda r: (
                None if r.url.startswith(allowed) else report(f"request to another place: {r.url}")
            ),
        )
        page.on(
            "console",
            lambda m: (
                report(f"console: {m.text}") if m.type in ("error", "warning", "trace") else None
            ),
        )
        page.on("pageerror", lambda error: report(f"exception: {error}"))
        page.on("response", lambda r: report(f"{r.status}: {r.url}") if r.status >= 400 else None)
        pages.append(page)
        return page

    yield new
    problems = [problem for page in pages for problem in page.problems]
    for page in pages:
        page.context.close()
    assert problems == []


@pytest.fixture
def open_page(new_page, server: str) -> Callable:
    """open_page(path, width=1280, scheme="light", origin=server) -> a page of the book.

    Its formulas and interactives are drawn.
    """

    def open_(path: str, width: int = 1280, scheme: str = "light", origin: str = server):
        page = new_page((origin,), viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.goto(origin + path)
        settle(page)
        return page

    return open_


@pytest.fixture
def mounted(new_page) -> Callable:
    """mounted(widget, width=1280, theme="light", **options) -> a page with only that interactive."""

    def mount(widget, width: int = 1280, theme: str = "light", **options):
        page = new_page(viewport={"width": width, "height": 900}, **options)
        page.set_content(bare_page(widget, theme))
        assert page.problems == []
        page.locator(".sdl-summary:not(:empty)").wait_for()
        return page

    return mount


@pytest.fixture(params=one_of("used", [((1280, "light"),), ((390, "dark"),)]))
def used(mounted, request) -> Iterator[Callable]:
    """used(widget, **options) -> the same on a laptop, or on a phone in the dark.

    Whatever the test did with it, it is no wider than its page, no key but Enter was heard outside,
    and axe finds no fault.
    """
    from browsing import accessibility_faults  # it needs what is above

    pages, (width, theme) = [], request.param

    def use(widget, **options):
        pages.append(mounted(widget, width, theme, **options))
        return pages[-1]

    yield use
    for page in pages:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert {*page.evaluate("heard")} <= {"Enter"}, "its keys must not reach the notebook"
        assert accessibility_faults(page) == []


def pytest_make_parametrize_id(config, val, argname):
    """Return a function's name as its id, because its address differs between processes."""
    return getattr(val, "__name__", None) if callable(val) else None
