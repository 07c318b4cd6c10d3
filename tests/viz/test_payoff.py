"""Will it pay: its task is solved by its sliders, and its drawing stays in its frame."""

import pytest
import traitlets
from javascript import evaluate
from mounting import outside_the_frame, says

from specdec_book.viz import Payoff
from specdec_book.viz.interactive import MIME

SLIDERS = ("alpha", "gamma", "batch", "context", "layer", "price")


@pytest.mark.browser
def test_the_task_is_solved_by_keyboard_and_menu(mounted):
    page = mounted(Payoff(), 1000)
    page.get_by_label("Pair").select_option(index=3)
    says(page, ".sdl-task-state", "Not yet")
    assert "hurts" in page.locator("dl").inner_text()
    alpha = page.locator("[data-name=alpha]")
    alpha.focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    says(page, ".sdl-task-state", "a smaller α still pays")
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(160)
        if "Solved" in page.locator(".sdl-task-state").inner_text():
            break
    says(page, ".sdl-task-state", "Solved")
    assert page.evaluate("heard.length") == 0, "its keys must not reach the notebook"


@pytest.mark.browser
@pytest.mark.parametrize("width", [1000, 374])
def test_it_stays_in_its_frame_and_fits_a_screen(mounted, width):
    page = mounted(Payoff(), width)
    settings = [
        {"alpha": 0.0, "gamma": 16, "layer": 100.0},
        {"alpha": 1.0, "gamma": 16, "pair": 2},
        {"batch": 256, "context": 131072, "pair": 3, "machine": 3},
        {"gamma": 1, "alpha": 0.3, "pair": 5},
    ]
    for setting in settings:
        assert outside_the_frame(page, setting) == [], setting
    if width == 1000:
        assert page.locator(".sdl").bounding_box()["height"] <= 640


@pytest.mark.browser
def test_a_drag_over_the_batches_sets_the_batch(mounted):
    page = mounted(Payoff(), 1000)
    box = page.get_by_role("img", name="Speedup by batch").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 20, box["y"] + 80)
    assert page.evaluate("model.get('batch')") == 256


def test_menu_indices_are_the_bounds_of_the_traits():
    presets = evaluate("payoff", [{"name": "presets", "args": []}])[0]
    assert len(presets) == Payoff.pair.max + 1 + Payoff.machine.max + 1
    assert all(preset["label"] for preset in presets)
    data, _ = Payoff(pair=3)._repr_mimebundle_()
    assert data[MIME]["state"].keys() == {"pair", "machine", *SLIDERS}
    for bad in ({"alpha": 1.1}, {"gamma": 0}, {"batch": 300}, {"pair": 6}):
        with pytest.raises(traitlets.TraitError):
            Payoff(**bad)
