"""Printed pages: light, unfolded, and as wide as the paper."""

import re

import pytest
from browsing import CHAPTERS, FIRST_CHAPTER


@pytest.fixture
def printed(open_page):
    """printed(name, **settings) -> a page as it is when its printing begins."""

    def begin(name: str, **settings):
        page = open_page(name, **settings)
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        return page

    return begin


@pytest.mark.browser
def test_print_shows_only_the_article_without_the_code_that_the_page_hides(printed):
    """The set-up cell and the code of the figures stay hidden; code to read is printed."""
    page = printed(FIRST_CHAPTER, scheme="dark")
    assert not page.locator(".bd-sidebar-primary").is_visible()
    assert page.locator("article").is_visible()
    hidden = "article details.hide:not(:has(.cell_output)) .highlight"
    assert page.locator(hidden).count() > 3 and page.locator(f"{hidden}:visible").count() == 0
    assert page.locator("article .cell_input .highlight:visible").count() > 3
    assert "%pip install" not in page.locator("article").inner_text()
    assert page.locator("article details:not([open], .sdl-data, .hide)").count() == 0
    assert page.locator("article .sdl-data:visible").count() == 0
    page.wait_for_function(
        """[...document.querySelectorAll('.sdl-plot')].every((place) =>
        place.dataset.drawn === 'light'
        && place.querySelector('.main-svg').getBoundingClientRect().width <= 640)"""
    )
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("article details[open]").count() == 0
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
def test_paper_shows_the_first_rejection_of_a_run_and_drawings_that_can_shrink(open_page):
    page = open_page(next(name for name in CHAPTERS if "/05_" in name))
    slider = page.locator(".sdl-round input[type=range]").first
    opening = slider.input_value()
    bare = ".sdl svg:not([viewBox], .sdl-canvas *, .sdl-arcs)"
    drawings = page.locator(bare).count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert slider.input_value() != opening
    assert "is rejected" in page.locator(".sdl-round").first.inner_text()
    assert drawings > 0 and page.locator(f"{bare}:visible").count() == 0
    page.emulate_media(media="print")
    assert (
        page.locator(
            "details.hide > summary:visible, .sdl details:not(.sdl-phone-fold):visible"
        ).count()
        == 0
    )
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(bare).count() == drawings and slider.input_value() == opening


@pytest.mark.browser
def test_on_paper_the_scoreboard_names_its_methods(printed):
    """They are buttons on a screen."""
    page = printed(next(name for name in CHAPTERS if "/a3_" in name))
    board = page.locator(".sdl-scoreboard").first
    assert board.locator("tbody th :visible").count() > 20
    assert (
        board.evaluate("(e) => getComputedStyle(e.querySelector('.sdl-scroll')).maxHeight")
        == "none"
    )


@pytest.mark.browser
@pytest.mark.book
@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_the_cheat_sheet_is_one_page(printed, paper):
    page = printed("book/cheat_sheet.html")
    margin = dict.fromkeys(("top", "bottom", "left", "right"), "10mm")
    pdf = page.pdf(format=paper, margin=margin)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
