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

from specdec_lite import theory


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
def test_interactive_moves_by_keyboard_and_mouse(open_page, page_name: str):
    """Every slider moves by arrow keys and by a click; without sliders, the first button reacts.

    Everything that Tab reaches shows its focus.
    """
    page = open_page(page_name)
    unfold(page)
    scroll_through(page)
    for interactive in page.locator(INTERACTIVES).all():
        if interactive.locator(".sdl-ask-closed").count():
            continue  # its button loads a model; test_live_smollm2.py presses it
        assert unseen_focus(page, interactive) == []
        sliders = [
            slider
            for slider in interactive.locator("input[type=range]").all()
            if slider.is_visible()
        ]
        for slider in sliders:
            drawing = interactive.inner_html()
            value = slider.input_value()
            slider.focus()
            page.keyboard.press(
                "ArrowLeft" if value == slider.get_attribute("max") else "ArrowRight"
            )
            by_keyboard = slider.input_value()
            assert by_keyboard != value and interactive.inner_html() != drawing
            drawing = interactive.inner_html()
            box = slider.bounding_box()
            at = 0.25 if float(by_keyboard) > float(slider.get_attribute("max")) / 2 else 0.9
            page.mouse.click(box["x"] + at * box["width"], box["y"] + box["height"] / 2)
            assert slider.input_value() != by_keyboard and interactive.inner_html() != drawing
        # a brick of the race opens a round elsewhere: test_start_page.py presses it
        buttons = interactive.locator("button:not(.sdl-share, .sdl-race-brick):visible:enabled")
        if not sliders and not buttons.count():
            drawing = interactive.inner_html()
            if menus := interactive.locator("select").all():
                menus[0].press("ArrowDown")
            else:
                interactive.locator("textarea").first.fill("accept_len: 2.5")
            assert interactive.inner_html() != drawing
        elif not sliders:
            switch = buttons.first
            for press in (lambda: switch.press("Space"), switch.click):
                drawing = interactive.inner_html()
                press()
                assert interactive.inner_html() != drawing


@pytest.mark.browser
def test_explorer_shows_what_the_library_computes(open_page):
    page = open_page("notebooks/07_how_fast.html")
    scroll_through(page)
    explorer = page.locator(f"{INTERACTIVES}[data-module=explorer]").first
    for alpha, gamma, c in [(0.8, 4, 0.1), (0.9, 10, 0.02), (0.5, 3, 0.6)]:
        explorer.evaluate(
            "(explorer, values) => Object.entries(values).forEach(([name, value]) =>"
            " explorer.sdlModel.set(name, value))",
            {"alpha": alpha, "gamma": gamma, "c": c},
        )
        expected = f"{theory.walltime_improvement(alpha, gamma, c):.2f}"
        assert expected in explorer.locator("dl").first.text_content()
