"""The next word: its JavaScript against `Sampling`, its recording, its state and its task."""

import pytest
from javascript import evaluate
from mounting import says

from specdec_book import recordings
from specdec_book.viz import NextWord

CONTEXTS = recordings.load("next-words").data["contexts"]


def test_u_selects_the_word_whose_interval_contains_it():
    probs, points = [0.665, 0.0, 0.245], [0.0, 0.664, 0.666, 0.9, 0.95]
    hits = evaluate("next_word", "hit", [[probs, u] for u in points])
    assert hits == [0, 0, 2, 2, 3]


def test_a_label_avoids_the_mark_if_there_is_room():
    labels = [(10, 100, 40, 12), (10, 100, 40, 50), (10, 100, 40, 75), (10, 60, 40, 40)]
    assert evaluate("next_word", "labelMiddle", labels) == [60, 80, 42.5, 40]


@pytest.mark.browser
def test_the_task_is_solved_by_keyboard(used):
    page = used(NextWord(contexts=CONTEXTS))
    says(page, ".sdl-task-state", "raise the temperature")
    page.locator("input[data-name=temperature]").focus()
    page.keyboard.press("End")
    says(page, ".sdl-task-state", "Now lower top-p")
    page.locator("input[data-name=top_p]").focus()
    page.keyboard.press("Home")
    says(page, ".sdl-task-state", "Solved")
    says(page, ".sdl-summary", "falls on")
