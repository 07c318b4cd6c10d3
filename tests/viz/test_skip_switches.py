"""The skip switches: the module's formulas against Python's, and their use by keyboard and mouse."""

import random
from functools import partial

import pytest
import traitlets
from javascript import evaluate, formula
from mounting import says

from specdec_book.viz.interactives import SkipSwitches, hundredths
from specdec_lite import theory

LAYERS = 3
SETS = 4**LAYERS
COSTS = {"attention": 1.0, "mlp": 2.0, "head": 3.0}
DRAWS = random.Random(0)
PERMILLE = [999, *(round(999 * DRAWS.uniform(0.6, 1)) for _ in range(SETS - 1))]
RATES = "".join(f"{rate:03d}" for rate in PERMILLE)
SHOWN = hundredths(RATES)


ask = partial(evaluate, "skip_switches")
of = partial(formula, "skip_switches")


def rate(mask):
    return min(99, round(PERMILLE[mask] / 10)) / 100 if mask else 1.0


def left_out(mask):
    """Return the number of skipped attentions and MLPs: alternating binary digits of the mask."""
    digits = f"{mask:0{2 * LAYERS}b}"
    return digits[::2].count("1"), digits[1::2].count("1")


def cost(mask):
    attentions, mlps = left_out(mask)
    return 1 - (attentions + 2 * mlps) / (3 + 3 * LAYERS)


def speed(mask):
    """Return the predicted speedup at the best draft length."""
    return max(theory.walltime_improvement(rate(mask), g, cost(mask)) for g in range(1, 17))


def test_formulas_equal_pythons():
    points = [(a, c) for a in (0, 0.3, 0.81, 0.97, 1) for c in (0.05, 0.4, 0.9)]
    for (alpha, c), (gamma, speed) in zip(points, ask("best", points)):
        right = max(theory.walltime_improvement(alpha, g, c) for g in range(1, 17))
        assert speed == pytest.approx(right, rel=1e-12)
        assert theory.walltime_improvement(alpha, gamma, c) == pytest.approx(right, rel=1e-12)
    masks = range(SETS)
    assert ask("rate", [(SHOWN, mask) for mask in masks]) == [rate(mask) for mask in masks]
    counts = ask("counts", [(LAYERS, mask) for mask in masks])
    assert [tuple(found) for found in counts] == [left_out(mask) for mask in masks]
    costs = ask("cost", [(COSTS, LAYERS, found) for found in counts])
    assert costs == pytest.approx([cost(mask) for mask in masks], rel=1e-12)


def test_the_best_set_of_the_frontier_is_the_best_of_all():
    frontier = of("frontier", SHOWN, COSTS, LAYERS)
    speeds = [speed(mask) for mask in range(1, SETS)]
    best = max(frontier, key=lambda found: found["speed"])
    assert best["speed"] == pytest.approx(max(speeds), rel=1e-12)
    assert speeds[best["mask"] - 1] == pytest.approx(max(speeds), rel=1e-12)


def test_the_first_blocks_attention_is_the_highest_bit():
    bits = ask("bit", [(LAYERS, 0, "attention"), (LAYERS, 0, "mlp"), (LAYERS, 2, "mlp")])
    assert bits == [0b100000, 0b010000, 0b000001]


ONE = dict(layers=LAYERS, group=1, rates=RATES, costs=COSTS)
TWO = dict(layers=2, group=6, rates=RATES[: 3 * 16], costs=COSTS)


def test_a_page_gets_hundredths_below_one():
    assert hundredths("999995994123004") == "9999991200"
    assert SkipSwitches({"tiny": ONE}).targets["tiny"]["rates"] == SHOWN


def test_the_first_target_is_the_default():
    assert SkipSwitches({"tiny": ONE, "two": TWO}).target == "tiny"
    with pytest.raises(traitlets.TraitError, match=r"target='x'"):
        SkipSwitches({"tiny": ONE}, target="x")


@pytest.mark.browser
def test_used_by_keyboard_and_mouse(used):
    page = used(SkipSwitches({"tiny": ONE, "two": TWO}))
    says(page, ".sdl-task-state", "so far")  # it opens with one sublayer off
    page.get_by_role("button", name="all on").click()
    says(page, ".sdl-task-state", "Skip a first sublayer")
    change = speed(0b001000) - 1
    written = f"{change:+.2f}".replace("0.", ".").replace("-", "−")
    assert written in page.get_by_role("button", name="A of block 2").inner_text()
    page.get_by_role("button", name="A of block 2").click()
    says(page, ".sdl-summary", f"acceptance rate is {rate(0b001000):.2f}")
    assert page.evaluate("model.get('mask')") == 0b001000
    page.get_by_role("button", name="M of block 3").press("Enter")
    assert page.evaluate("model.get('mask')") == 0b001001
    assert page.get_by_role("button", name="M of block 3").get_attribute("aria-pressed") == "false"
    frontier = of("frontier", SHOWN, COSTS, LAYERS)
    best = max(frontier, key=lambda found: found["speed"])
    page.evaluate(f"model.set('mask', {best['mask']})")
    says(page, ".sdl-task-state", "Solved")
    page.get_by_role("button", name="all on").click()
    assert page.evaluate("model.get('mask')") == 0
    page.get_by_role("button", name="A of block 2").click()
    page.get_by_label("Target", exact=True).select_option("two")
    says(page, ".sdl-task-state", "Skip a first sublayer")
    page.get_by_role("button", name="M of blocks 7 to 12").click()
    says(page, ".sdl-summary", f"acceptance rate is {rate(1):.2f}")
    assert page.evaluate("[model.get('target'), model.get('mask')]") == ["two", 1]
