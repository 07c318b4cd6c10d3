"""The deck of the marked figures and predictions."""

import re

import deck
import pytest
from conftest import ROOT

CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_about_fifteen_figures_and_six_predictions_are_marked():
    marks = [mark for path in CHAPTERS for mark in deck.marked(path)]
    assert marks.count(None) == 15 and len(marks) == 21


@pytest.mark.slow
@pytest.mark.browser
def test_the_deck_has_pictures_notes_and_keys(server, new_page):
    text = deck.deck(new_page((server,)), server, CHAPTERS)
    assert not re.search(r'(?:src|href)="(?!data:)', text), "the deck loads nothing"
    page = new_page(viewport={"width": 1366, "height": 768})
    page.set_content(text)
    slides, images = page.locator("section"), page.locator("img")
    shown = lambda: [i for i in range(21) if slides.nth(i).is_visible()]
    assert (slides.count(), images.count(), shown()) == (21, 15, [0])
    assert not page.locator("aside").first.is_visible()
    for key, number in (("ArrowRight", 1), ("End", 20), ("ArrowRight", 20), ("Home", 0), (" ", 1)):
        page.keyboard.press(key)
        assert shown() == [number]
    page.keyboard.press("n")
    assert slides.nth(1).locator("aside").is_visible() and slides.nth(1).locator("li").count() == 3
    page.keyboard.press("a")
    assert shown() == [*range(21)]
    assert all(image.get_attribute("alt") for image in images.all())
