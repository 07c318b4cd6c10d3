"""Quizzes, predictions, progress and interactives in the published pages."""

import pytest
from browsing import (
    CHAPTERS,
    INTERACTIVES,
    START,
    accessibility_faults,
    pages_with,
    scroll_through,
    show,
    unfold,
    unseen_focus,
)


def solve(page) -> None:
    """Give the right answer to every quiz of a page."""
    for quiz in page.locator(".sdl-quiz").all():
        quiz.locator(".sdl-option").nth("abcde".index(quiz.get_attribute("data-answer"))).click()


def answer_quizzes(page) -> None:
    """Give every answer of every quiz, the right one by keyboard: each shows its explanation."""
    for quiz in page.locator(".sdl-quiz").all():
        right = "abcde".index(quiz.get_attribute("data-answer"))
        options = quiz.locator(".sdl-option").all()
        for index, option in enumerate(options):
            if index == right:
                option.focus()
                page.keyboard.press("Enter")
            else:
                option.click()
            assert option.get_attribute("data-verdict") == ("right" if index == right else "wrong")
        reasons = [reason.inner_text() for reason in quiz.locator(".sdl-why").all()]
        assert len(reasons) == len(options) and all(reason.strip() for reason in reasons)
        assert reasons[right].removeprefix(f"({'abcde'[right]})").strip().startswith("Right")


def answer_predictions(page) -> None:
    """Predict in every box: its answer is hidden until then."""
    for box in page.locator(".sdl-predict-box").all():
        details = box.locator("details").first
        assert details.get_attribute("open") is None
        choices = box.locator(".sdl-choice")
        if choices.count():
            choices.first.focus()
            page.keyboard.press("Enter")
            assert choices.first.get_attribute("aria-pressed") == "true"
            verdicts = []
            for choice in choices.all():
                choice.click()
                verdicts.append(choice.get_attribute("data-verdict"))
                said = box.locator(".sdl-said").inner_text()
                assert choice.inner_text() in said
                assert said[0] == ("✓" if verdicts[-1] == "right" else "✗")
            assert verdicts.count("right") == 1 == len(verdicts) - verdicts.count("wrong")
            assert " / " not in box.locator(".sdl-question").inner_text(), "the choices are buttons"
        else:
            box.locator("summary").first.click()
        assert details.get_attribute("open") is not None


@pytest.mark.browser
@pytest.mark.parametrize("page_name", pages_with(".sdl-quiz, .sdl-predict"))
def test_predictions_and_quizzes(open_page, page_name: str):
    """Both answer by keyboard, and quizzes by mouse too; a solved quiz is remembered."""
    page = open_page(page_name)
    answer_predictions(page)
    answer_quizzes(page)
    faults = accessibility_faults(page, "light")
    if page_name in CHAPTERS[:3]:  # the answered boxes look the same everywhere
        show(page, "dark")
        faults += accessibility_faults(page, "dark")
    assert faults == []
    has_quiz = page.locator(".sdl-quiz").count() > 0
    page.reload()
    assert page.locator(".sdl-done").count() == has_quiz


@pytest.mark.browser
def test_progress_is_summed_on_the_start_page_and_can_be_forgotten(open_page, server: str):
    page = open_page(START)
    summary = page.locator(".sdl-progress")
    assert not summary.is_visible()
    page.goto(server + CHAPTERS[0])
    solve(page)
    page.goto(server + START)
    with_quiz = len(pages_with(".sdl-quiz"))
    assert f"1 of {with_quiz} chapters" in summary.inner_text()
    assert "continue with" in summary.inner_text()
    assert CHAPTERS[0] not in summary.locator("a").get_attribute("href")
    summary.get_by_role("button", name="Forget my progress").click()
    assert page.evaluate("localStorage.getItem('sdl-progress')") is None
    assert page.locator(".sdl-done").count() == 0 and not summary.is_visible()
    assert page.context.cookies() == []


@pytest.mark.browser
@pytest.mark.parametrize("page_name", pages_with(INTERACTIVES))
def test_an_interactive_moves_by_keyboard_and_shows_its_focus(open_page, page_name: str):
    """Every slider moves by arrow keys, and everything that Tab reaches shows its focus."""
    page = open_page(page_name)
    page.emulate_media(
        reduced_motion="reduce"
    )  # else a race runs, and gets buttons, while Tab moves
    page.reload()
    unfold(page)
    scroll_through(page)
    # the button of a closed question loads a model; test_live_smollm2.py presses it
    for interactive in page.locator(f"{INTERACTIVES}:not(:has(.sdl-ask-closed))").all():
        assert unseen_focus(page, interactive) == []
        for slider in interactive.locator("input[type=range]:visible").all():
            drawing, value = interactive.inner_html(), slider.input_value()
            slider.press("ArrowLeft" if value == slider.get_attribute("max") else "ArrowRight")
            assert slider.input_value() != value and interactive.inner_html() != drawing
