"""The first screen of the start page: a race that runs at load and fits the window."""

import re

import pytest
from browsing import START, parsed
from chosen import one_of
from mounting import says, settle

from specdec_book import recordings

BETWEEN = pytest.mark.registry  # the lowest window and the phone are the hardest
WINDOWS = [
    *one_of(__name__, [(1280, 632), (390, 844)]),
    *(pytest.param(*window, marks=BETWEEN) for window in [(1366, 700), (1440, 789)]),
]
IN_VIEW = """(selector) => [...document.querySelectorAll(selector)].every((part) => {
  const { top, bottom } = part.getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight;
})"""


@pytest.fixture
def start(new_page, server: str):
    def open_start(width: int, height: int):
        page = new_page((server,), viewport={"width": width, "height": height})
        page.goto(server + START)
        settle(page)
        return page

    return open_start


@pytest.mark.browser
@pytest.mark.parametrize("width, height", WINDOWS)
def test_the_race_runs_on_the_first_screen(start, width: int, height: int):
    """It runs without a click or a scroll, and both lanes and the verdict are in view at the end."""
    page = start(width, height)
    page.get_by_role("button", name="Pause").first.wait_for()  # it runs after a second in view
    page.wait_for_function(
        "() => document.querySelector('.sdl-race-verdict').textContent.includes('word for word')"
    )
    assert page.evaluate("scrollY") == 0
    assert page.evaluate(IN_VIEW, ".sdl-race-verdict, .sdl-race-count, .sdl-race-text")


@pytest.mark.browser
def test_a_click_on_a_pass_of_the_race_opens_it_below(start):
    page = start(1366, 700)
    page.get_by_role("button", name="Reset").first.click()
    for _ in range(3):
        page.get_by_role("button", name="Step").first.click()
    page.locator(".sdl-race-speculative .sdl-race-brick").first.click()
    round_ = page.locator(".sdl-round")
    round_.get_by_role("button", name="the race's round").wait_for()
    lane = recordings.load("race").data["races"][5]["lanes"]["speculative"]
    assert lane[0]["words"][0][1] in round_.locator(".sdl-round-grid").get_attribute("aria-label")
    says(page, ".sdl-round .sdl-summary", "helper")
    assert len({round_.locator(f".sdl-round-{part}").count() for part in ("guess", "row")}) == 1
    words = " ".join(page.locator(".sdl-round, .sdl-race").all_inner_texts())
    assert not re.search(r"\b(draft|target|cache|residual)|\b[pqu] ", words)


def test_one_field_stands_below_the_race(book):
    modules = [part["data-module"] for part in parsed(book / START).select("[data-module]")]
    assert modules == ["race", "ask", "round"]


@pytest.mark.browser
def test_the_field_loads_nothing_before_it_is_used(start):
    page = start(1366, 700)
    field = page.get_by_label("Race your own question")
    assert field.input_value() and page.get_by_role("button", name="Race it here").count() == 1
    names = page.evaluate("performance.getEntriesByType('resource').map((file) => file.name)")
    assert names and not any("/live/" in name for name in names)
