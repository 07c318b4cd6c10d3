"""The deck of the marked figures and predictions."""

import re

import deck
import pytest
from conftest import ROOT


def test_about_fifteen_figures_and_six_predictions_are_marked():
    marks = [mark for path in (ROOT / "notebooks").glob("*.ipynb") for mark in deck.marked(path)]
    assert marks.count(None) == 15 and len(marks) == 21


@pytest.mark.slow
@pytest.mark.browser
def test_the_deck_has_pictures_notes_and_keys(server, new_page):
    chapter = ROOT / "notebooks" / "05_draft_then_verify.ipynb"
    text = deck.deck(new_page((server,)), server, [chapter])
    assert not re.search(r'(?:src|href)="(?!data:)', text), "the deck loads nothing"
    page = new_page(viewport={"width": 1366, "height": 768})
    page.set_content(text)
    slides = page.locator("section")
    assert slides.count() == len(deck.marked(chapter)) == 6
    shown = lambda: [i for i in range(6) if slides.nth(i).is_visible()]
    assert shown() == [0] and not page.locator("aside").first.is_visible()
    for key, number in (("ArrowRight", 1), ("End", 5), ("ArrowRight", 5), ("Home", 0), (" ", 1)):
        page.keyboard.press(key)
        assert shown() == [number]
    page.keyboard.press("n")
    assert "Agree" in slides.nth(1).locator("aside").inner_text()
    assert slides.nth(1).locator("li").count() == 4
    page.keyboard.press("a")
    assert shown() == [*range(6)]
    images = page.locator("img")
    assert images.count() == 3 and all(images.nth(i).get_attribute("alt") for i in range(3))
