"""The automatic choice: draft lengths that follow from T(k), and no loss where nothing is accepted."""

import pytest
import torch
from models_zoo import PROMPT, native, shipped

from specdec_lite import generate
from specdec_lite.drafters import BanditDrafter, EagleDrafter, automatic
from specdec_lite.drafters.bandit import LONGEST, best_length

STAIRS = (1.0, 1.2, 1.4, 1.55, 2.1, 2.25, 2.45, 2.6, 3.2)
"""T(k) of a product that shares the unpacking between four rows (PyTorch's)."""
FLAT = (1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.12, 1.14, 1.16)
"""T(k) of a product that shares it between all."""


def cost(output, drafter: BanditDrafter) -> float:
    """Return what the rounds of a text cost, in plain passes, as the drafter counts."""
    steps = output.steps
    return sum(drafter.pass_cost(len(step.tree)) + drafter.c * step.draft_passes for step in steps)


def test_a_step_of_four_rows_is_filled_exactly():
    assert best_length(0.7, STAIRS)[0] == 3
    assert best_length(0.7, FLAT)[0] > 3
    assert best_length(0.95, FLAT)[0] == LONGEST
    assert best_length(0.7, FLAT, c=0.3)[0] < best_length(0.7, FLAT)[0]


def test_the_expected_gain_is_that_of_the_formula():
    gamma, gain = best_length(0.5, (1.0, 1.1), 0.2)
    assert gamma == 1 and gain == pytest.approx(1.5 / 1.3)
    assert best_length(0.5, (1.0,)) == (1, 0.0)


@pytest.mark.parametrize("passes", [STAIRS, FLAT])
def test_text_that_never_repeats_costs_next_to_nothing(passes):
    target = native()
    drafter = automatic(target, passes=passes)
    total = tokens = 0.0
    for seed in range(4):
        output = generate(target, PROMPT, drafter, 100, temperature=3.0, seed=seed)
        total += cost(output, drafter)
        tokens += len(output.tokens)
    assert tokens / total >= 0.97


def test_text_that_repeats_is_copied():
    target = native(scale=0.1)  # its greedy text soon runs in circles
    drafter = automatic(target, passes=FLAT)
    output = generate(target, PROMPT, drafter, 120)
    assert torch.equal(output.tokens, generate(target, PROMPT, None, 120).tokens)
    assert len(output.tokens) / cost(output, drafter) > 1.5


def test_costs_are_measured_without_a_table():
    drafter = automatic(native())
    assert drafter.passes[0] == 1.0 and len(drafter.passes) == LONGEST + 1
    assert drafter.passes == sorted(drafter.passes)
    assert not any(isinstance(each, EagleDrafter) for each in drafter.drafters)


def test_a_shipped_head_is_used_and_timed():
    target = shipped().target
    drafter = automatic(target)
    assert isinstance(drafter.drafters[-1], EagleDrafter) and 0 < drafter.c < 5
    given = automatic(target, passes=FLAT, c=0.1)  # nothing is measured
    assert given.c == 0.1 and given.passes == list(FLAT)
    plain = generate(target, PROMPT, None, 40).tokens
    assert torch.equal(generate(target, PROMPT, given, 40).tokens, plain)
