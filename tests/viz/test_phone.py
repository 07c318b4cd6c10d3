"""On a phone an interactive is short: its controls and what they change are seen together."""

import pytest
from browsing import accessibility_faults
from chosen import one_of

from specdec_book.viz import Bench, TreeExplorer
from specdec_book.viz.roofline import Roofline

PHONE, LAPTOP = 390, 1366
MOST = 1000  # px; a phone shows about 750 at a time


@pytest.mark.browser
@pytest.mark.parametrize("kind", one_of(__name__, [Bench, Roofline, TreeExplorer]))
def test_a_phone_shows_the_rest_in_folds(mounted, kind):
    widget = kind(siblings=True) if kind is Bench else kind()
    page = mounted(widget, PHONE)
    folds = page.locator(".sdl-phone-fold")
    assert page.locator("section.sdl").bounding_box()["height"] <= MOST
    assert folds.count() and page.locator(".sdl-phone-fold[open]").count() == 0
    folds.first.locator("summary").first.click()
    page.wait_for_function(
        """() => [...document.querySelectorAll(".sdl-phone-fold[open] svg")].every(
        (svg) => svg.clientWidth > 0 && svg.childElementCount > 0)"""
    )
    assert accessibility_faults(page) == []


@pytest.mark.browser
def test_a_laptop_shows_everything_without_folds(mounted):
    page = mounted(TreeExplorer(), LAPTOP)
    folds = page.locator(".sdl-phone-fold")
    assert page.locator(".sdl-phone-fold[open]").count() == folds.count() > 0
    assert not any(fold.locator("> summary").is_visible() for fold in folds.all())
