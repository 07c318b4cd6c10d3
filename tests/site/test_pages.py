"""Every page of the published book, in a real browser with every other host blocked: drawn, readable, accessible, light."""

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks import browser
from benchmarks.site import weight
from specdec_lite import results

from browsing import (CHAPTERS, FIGURES, FIRST_CHAPTER, PAGES, START, accessibility_faults, drawing_faults, figure_faults, inks,
                      layout_faults, look, pages_with, parsed, scroll_through, show, unfold)


@pytest.mark.parametrize("page_name", PAGES)
def test_page_is_built(book: Path, page_name: str):
    assert (book / page_name).is_file()


@pytest.mark.browser
@pytest.mark.parametrize("page_name", PAGES)
def test_page_is_sound(open_page, page_name: str):
    """Light, dark and on a phone, with every fold open: all is drawn, nothing scrolls sideways, axe-core finds nothing at any level;
    figures have words and numbers, and follow the theme."""
    page = open_page(page_name, width=1280, scheme="light")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    unfold(page)
    scroll_through(page)
    faults, light = drawing_faults(page) + layout_faults(page) + accessibility_faults(page, "light"), inks(page)
    show(page, "dark")
    faults += drawing_faults(page) + accessibility_faults(page, "dark")
    faults += [f"figure {i} keeps its ink in the dark" for i, (before, after) in enumerate(zip(light, inks(page), strict=True), 1) if before == after]
    page.set_viewport_size({"width": 390, "height": 844})
    unfold(page)
    scroll_through(page)
    faults += figure_faults(page) + layout_faults(page) + accessibility_faults(page, "390 px")
    assert faults == []


@pytest.mark.parametrize("page_name", pages_with(FIGURES))
def test_no_two_traces_differ_by_colour_alone(book: Path, page_name: str):
    """Of those that the legend names: another line, symbol, pattern or width tells each from the others."""
    same = []
    for place in parsed(book / page_name).select(FIGURES):
        named = [trace for trace in json.loads(place.script.string)["data"] if trace.get("showlegend", True)]
        same += [f"{place['aria-label'][:60]}: {a.get('name')} and {b.get('name')}" for a, b in combinations(named, 2) if look(a) == look(b)]
    assert same == []


@pytest.mark.browser
def test_a_reader_who_prefers_dark_gets_it_at_once(open_page):
    assert open_page(START, scheme="dark").evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
def test_print_shows_the_text_alone(open_page):
    page = open_page(FIRST_CHAPTER, scheme="dark")
    page.emulate_media(media="print")
    assert not page.locator(".bd-sidebar-primary").is_visible()
    assert page.locator("article").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("article details:not([open], .sdl-data)").count() == 0 and page.locator("article .sdl-data:visible").count() == 0
    page.wait_for_function("""[...document.querySelectorAll('.sdl-plot')].every((place) =>
        place.dataset.drawn === 'light' && place.querySelector('.main-svg').getBoundingClientRect().width <= 640)""")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("article details[open]").count() == 0
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
def test_less_motion_for_those_who_ask(open_page):
    """With the reader's wish for reduced motion, nothing on a page moves for longer than a hundredth of a second."""
    page = open_page(CHAPTERS[-1])
    page.emulate_media(reduced_motion="reduce")
    slow = page.evaluate("""() => [...document.querySelectorAll('*')].filter((element) => {
      const style = getComputedStyle(element);
      return [style.transitionDuration, style.animationDuration].some((all) => all.split(',').some((one) => parseFloat(one) > 0.01));
    }).map((element) => element.outerHTML.slice(0, 80))""")
    assert slow == []


@pytest.fixture(scope="module")
def top(book: Path) -> Iterator[str]:
    """The book at the top of its host, where `benchmarks.site` weighs it."""
    with browser.served(book) as address:
        yield address


@pytest.mark.browser
def test_first_chapter_is_light(chromium, top: str, book: Path):
    """All that the first chapter's page loads, compressed as a web server would, stays within 2 MB."""
    assert weight(chromium, top, book, FIRST_CHAPTER)["wire_bytes"] <= 2_000_000


@pytest.mark.browser
@pytest.mark.parametrize("page_name", [START, "book/06_proofs.html"])
def test_plotly_comes_only_where_a_figure_is(chromium, top: str, book: Path, page_name: str):
    found = weight(chromium, top, book, page_name)
    assert found["files"] > 5 and not found["plotly"]


def test_the_recording_of_the_site_covers_its_pages(book: Path):
    """results/site.json: light first chapter, plotly only beside figures, interactives drawn within 200 ms of the load event."""
    rows = {row["page"]: row for row in results.load("site").data["pages"]}
    assert rows[FIRST_CHAPTER]["wire_bytes"] <= 2_000_000
    assert all(row["plotly"] == bool(row["figures"]) for row in rows.values())
    drawn = {name: row["drawn_ms"] for name, row in rows.items() if row["drawn_ms"] is not None}
    assert drawn and max(drawn.values()) < 200
    assert {name for name in rows if parsed(book / name).select(".sdl-interactive")} == set(drawn)
