"""Every interactive fits a screen, opens with something to see, and plays with the same three buttons."""

import functools

import gallery
import pytest
from browsing import INTERACTIVES, pages_with, unfold
from chosen import one_in
from mounting import bare_page

BOOK, PHONE = 870, 358
"""Widths of an interactive in the book, on a laptop (1366 px) and on a phone (390 px)."""
MOST = {BOOK: 640, PHONE: 800}
"""Heights that fit below the header, in px: of 700 on the laptop, of 844 on the phone."""
WITHOUT_TASK = {"advice", "log_line", "race", "round"}
"""They ask something else: a line to read, a request, whether a word is accepted."""


@functools.cache
def shown(name: str) -> str:
    """Return the page of an interactive as it opens."""
    return bare_page(gallery.GALLERY[name](), "light")


@pytest.fixture
def opened(new_page):
    def open_at(name: str, width: int):
        page = new_page(viewport={"width": width + 16, "height": 844})  # the page has two margins
        page.set_content(shown(name))
        page.locator(".sdl-summary:not(:empty)").first.wait_for(state="attached")
        return page

    return open_at


def check_that_it_fits(page, width: int):
    """Question, controls and answer are in view together; on a phone the rest is in folds."""
    box = page.locator("section.sdl").bounding_box()
    assert box["width"] == width and box["height"] <= MOST[width]
    assert page.evaluate("document.documentElement.scrollWidth") <= width + 16


@pytest.mark.browser
@pytest.mark.parametrize("window, width", [(1366, BOOK), (390, PHONE)])
@pytest.mark.parametrize("page_name", pages_with(INTERACTIVES))
def test_the_interactives_of_a_page_fit_the_screen(open_page, page_name, window: int, width: int):
    """A page fills its interactives with data of its own."""
    page = open_page(page_name, window)
    unfold(page, "article details:not(.sdl *)")
    boxes = page.locator(f"{INTERACTIVES} section.sdl").all()
    heights = [(box.get_attribute("class"), box.bounding_box()["height"]) for box in boxes]
    assert heights and [(name, h) for name, h in heights if h > MOST[width]] == []


@pytest.mark.browser
@pytest.mark.parametrize("name", one_in(4, sorted(gallery.GALLERY)))
def test_on_a_phone_it_fits_the_screen(opened, name: str):
    check_that_it_fits(opened(name, PHONE), PHONE)


@pytest.mark.browser
@pytest.mark.parametrize("name", sorted(gallery.GALLERY))
def test_it_fits_the_screen_with_something_to_see_and_the_same_buttons(opened, name: str):
    """It shows at most three tiles; what plays has the buttons of every other one."""
    page = opened(name, BOOK)
    check_that_it_fits(page, BOOK)
    tiles = [text for text in page.locator(".sdl-readouts dd").all() if text.is_visible()]
    assert len(tiles) <= 3 and "–" not in [tile.inner_text() for tile in tiles]
    assert page.locator("section.sdl :is(svg *, td, dd, .sdl-race-pass, .sdl-token)").count() > 5
    module = name.split("_of_")[0]
    assert (page.locator(".sdl-task").count() == 1) != (module in WITHOUT_TASK)
    buttons = page.locator(".sdl-move").all_inner_texts()
    assert buttons in ([], ["Play", "Step", "Reset"], ["Pause", "Step", "Reset"])
    others = page.locator("section.sdl .sdl-button:not(.sdl-move)").all_inner_texts()
    assert not {"Play", "Pause", "Step", "Back", "First", "Last"} & {*others}
