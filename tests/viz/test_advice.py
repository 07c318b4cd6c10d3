"""The box of "You serve a model": its cards are the library's, and a measured round changes them."""

import pytest
from mounting import says

from specdec_book.viz import Advice


@pytest.mark.browser
def test_a_menu_changes_the_card_and_a_measured_round_its_schedule(used):
    page = used(Advice())
    says(page, ".sdl-card", "Llama-3.3-70B-Instruct")
    page.get_by_label("Engine").focus()
    page.keyboard.press("ArrowDown")
    says(page, ".sdl-card", "sglang.launch_server")
    before = page.locator(".sdl-card").inner_text()
    for name, value in (("tau", "2.2"), ("gamma", "3"), ("speedup", "1.2")):
        page.locator(f"[data-name={name}]").fill(value)
    says(page, ".sdl-summary", "times the fitted ones")
    says(page, ".sdl-card", "One measured round")
    assert page.locator(".sdl-card").inner_text() != before
