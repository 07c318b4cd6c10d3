"""The box of "You serve a model": its cards are the library's, and a measured round changes them."""

import random

import pytest
from javascript import evaluate
from mounting import says

from specdec_book.viz import Advice
from specdec_lite.simulation.advice import INPUTS, TABLE, card


def test_the_cards_are_the_librarys():
    rng = random.Random(0)
    key = lambda entry: entry if isinstance(entry, int) else entry["key"]
    cases = [each["inputs"] for each in TABLE["situations"]]
    cases += [{name: key(rng.choice(menu)) for name, menu in INPUTS.items()} for _ in range(60)]
    measured = {"tau": 2.2, "gamma": 3, "speedup": 0.8}
    cases += [case | measured | {"alpha": rng.choice([0, 0.7])} for case in cases[:20]]
    found = evaluate("advice", [{"name": "card", "args": [case]} for case in cases])
    for case, rows in zip(cases, found, strict=True):
        assert rows == [list(row) for row in card(case)], case


@pytest.mark.browser
def test_a_menu_changes_the_card_and_a_measured_round_its_schedule(mounted):
    page = mounted(Advice(), 1000)
    says(page, ".sdl-card", "Llama-3.3-70B-Instruct")
    page.get_by_label("Engine").focus()
    page.keyboard.press("ArrowDown")
    says(page, ".sdl-card", "sglang.launch_server")
    assert page.evaluate("heard.length") == 0, "its keys must not reach the notebook"
    before = page.locator(".sdl-card").inner_text()
    for name, value in (("tau", "2.2"), ("gamma", "3"), ("speedup", "1.2")):
        page.locator(f"[data-name={name}]").fill(value)
    says(page, ".sdl-summary", "times the fitted ones")
    says(page, ".sdl-card", "One measured round")
    assert page.locator(".sdl-card").inner_text() != before
