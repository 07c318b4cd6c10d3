"""Test shared noise: a seed gives one text with every drafter, and draws follow the distribution."""

import pytest
import torch
from chosen import one_in
from models_zoo import PROMPT, native, perturbed
from registry import DRAFTERS
from scipy import stats

from specdec_lite import generate, stream
from specdec_lite.drafters import CoupledDrafter, ModelDrafter, same_noise
from specdec_lite.sampling import PlacedRng, SeededRng

TARGET = native()


def text(drafter, seed=3, rule=same_noise, rng=None, wanted=40):
    steps = stream(TARGET, PROMPT, drafter, wanted, 1.0, rule=rule, rng=rng or SeededRng(seed))
    return [token for step in steps for token in step.tokens]


@pytest.mark.parametrize("name", one_in(8, DRAFTERS))
def test_a_seed_gives_the_same_text_with_every_drafter(name):
    for seed in (3, 4):
        assert text(DRAFTERS[name](TARGET), seed) == text(None, seed)
    assert text(None, 3) != text(None, 4)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1, 2, 3, 5, 8])
def test_a_seed_gives_the_same_text_at_any_gamma_and_coupling_accepts_more(gamma):
    draft = perturbed(TARGET, 0.15)
    apart, coupled = (
        generate(TARGET, PROMPT, drafter, 200, 1.0, rule=same_noise, seed=3)
        for drafter in (ModelDrafter(draft, gamma), CoupledDrafter(ModelDrafter(draft, gamma)))
    )
    assert coupled.tokens.tolist() == apart.tokens.tolist() == text(None, wanted=200)
    assert coupled.stats.acceptance_rate > apart.stats.acceptance_rate + 0.1
    same = generate(
        TARGET, PROMPT, CoupledDrafter(ModelDrafter(TARGET, gamma)), 60, 1.0, rule=same_noise
    )
    assert same.stats.acceptance_rate == 1.0


class Counting(SeededRng):
    """Broken: noise is keyed by the number of draws, which a rejection shifts, not by position."""

    def __init__(self, seed):
        super().__init__(seed)
        self.count = 0

    def at(self, position):
        self.count += 1
        return PlacedRng(self.generator.initial_seed(), self.count)


def test_noise_keyed_by_draws_makes_the_text_depend_on_the_drafter():
    drafter = ModelDrafter(perturbed(TARGET), 3)
    assert text(drafter, rng=Counting(3)) != text(None, rng=Counting(3))


@pytest.mark.statistical(rate=2e-6)
def test_the_noise_of_positions_draws_from_the_distribution():
    """A chi-square test at 1e-6, over positions and over seeds."""
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=torch.float64)
    rng = SeededRng(11).at(0)
    for draws in (
        [rng.draw(probs) for _ in range(4000)],
        [SeededRng(seed).at(7).draw(probs) for seed in range(4000)],
    ):
        counts = torch.bincount(torch.tensor(draws), minlength=5)
        assert counts[4] == 0
        assert stats.chisquare(counts[:4], 4000 * probs[:4]).pvalue > 1e-6


def test_the_agreement_rate_is_the_papers_formula():
    """Σ 1 / Σ max(p_y/p_x, q_y/q_x), here .7667; Σ min(p, q) is .8."""
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.3, 0.5, 0.2])
    exact = sum(1 / torch.maximum(p / p[x], q / q[x]).sum().item() for x in range(3))
    agree = [SeededRng(5).at(i).draw(p) == SeededRng(5).at(i).draw(q) for i in range(4000)]
    assert exact == pytest.approx(0.7667, abs=1e-4)
    assert sum(agree) / 4000 == pytest.approx(exact, abs=0.04)


def test_nested_coupling_equals_coupling():
    draft = perturbed(TARGET, 0.15)
    once = CoupledDrafter(ModelDrafter(draft, 3))
    steps = [
        [(step.tokens, step.path) for step in stream(TARGET, PROMPT, drafter, 40, 1.0, seed=3)]
        for drafter in (once, CoupledDrafter(once))
    ]
    assert steps[0] == steps[1]
