"""Will it pay: its task is solved by its sliders, and its drawing stays in its frame."""

import pytest
from mounting import press_until, says

from specdec_book.viz import Payoff
from specdec_book.viz.payoff import MACHINES, PAIRS


@pytest.mark.browser
def test_the_task_is_solved_by_keyboard_and_menu(used):
    page = used(Payoff())
    says(page, ".sdl-task-state", "Choose the mixture")
    page.get_by_label("Pair").select_option(index=4)
    says(page, ".sdl-task-state", "a smaller α still pays")
    press_until(page, "alpha", "ArrowLeft", "Solved")


@pytest.mark.browser
def test_a_measured_round_sets_the_engine(mounted):
    page = mounted(Payoff(pair=6, gamma=3, batch=8), 1000)
    before = page.locator("dl").first.inner_text()
    page.get_by_text("I measured").click()
    values = {"measured-tau": 2.5, "measured-gamma": 3, "measured-batch": 8}
    for name, value in (values | {"plain-rate": 1000, "drafted-rate": 1400}).items():
        page.locator(f"[data-name={name}]").fill(str(value))
    says(page, ".sdl-note[aria-live]", "times the usual ones")
    assert page.locator("dl").first.inner_text() != before
    page.locator("[data-name=drafted-rate]").fill("3000")
    says(page, ".sdl-note[aria-live]", "Ignored")


@pytest.mark.browser
def test_four_bits_get_a_command_until_the_table_is_given(mounted):
    page = mounted(Payoff(pair=8, machine=5, gamma=2), 1000)
    assert "measure T(k)" in page.locator("dl").first.inner_text()
    says(page, ".sdl-note[aria-live]", "llama-bench")
    page.locator("[data-name=growth]").fill("1.2")
    page.locator("[data-name=draft-cost]").fill("0.27")
    says(page, "dl", "1.26×")


def test_the_menus_are_bounds_of_the_traits():
    assert Payoff.pair.max + 1 == len(PAIRS) and Payoff.machine.max + 1 == len(MACHINES)
    labels = [each["label"] for each in [*PAIRS, *MACHINES]]
    assert len(set(labels)) == len(labels) and all(labels)
