"""Shared noise: the text is a function of the seed, whatever drafts; the noise of a place is a fair
draw; and noise that is counted by draws instead of places, which the texts show.
"""

import pytest
import torch
from models_zoo import PROMPT, native, perturbed
from registry import DRAFTERS
from scipy import stats

from specdec_lite import generate, stream
from specdec_lite.drafters import CoupledDrafter, ModelDrafter, TemperedDrafter, same_noise
from specdec_lite.sampling import PlacedRng, SeededRng

TARGET = native()


def text(drafter, seed=3, rule=same_noise, rng=None, wanted=40):
    steps = stream(TARGET, PROMPT, drafter, wanted, 1.0, rule=rule, rng=rng or SeededRng(seed))
    return [token for step in steps for token in step.tokens]


@pytest.mark.parametrize("name", DRAFTERS)
def test_one_seed_is_one_text_whatever_drafts(name):
    for seed in (3, 4):
        assert text(DRAFTERS[name](TARGET), seed) == text(None, seed)
    assert text(None, 3) != text(None, 4)


@pytest.mark.parametrize("gamma", [1, 2, 3, 5, 8])
def test_one_seed_is_one_text_at_any_length_and_the_same_noise_agrees_more_often(gamma):
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
    """Noise keyed by how many draws were made, not by where: a rejection shifts it."""

    def __init__(self, seed):
        super().__init__(seed)
        self.count = 0

    def at(self, position):
        self.count += 1
        return PlacedRng(self.generator.initial_seed(), self.count)


def test_noise_counted_by_draws_gives_every_drafter_a_text_of_its_own():
    drafter = ModelDrafter(perturbed(TARGET), 3)
    assert text(drafter, rng=Counting(3)) != text(None, rng=Counting(3))


@pytest.mark.statistical(rate=2e-6)
def test_the_noise_of_places_draws_from_the_distribution():
    """Chi-square at 1e-6 over places, and over seeds."""
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=torch.float64)
    rng = SeededRng(11).at(0)
    for draws in (
        [rng.draw(probs) for _ in range(4000)],
        [SeededRng(seed).at(7).draw(probs) for seed in range(4000)],
    ):
        counts = torch.bincount(torch.tensor(draws), minlength=5)
        assert counts[4] == 0
        assert stats.chisquare(counts[:4], 4000 * probs[:4]).pvalue > 1e-6


def test_agreement_is_the_papers_formula():
    """Σ 1 / Σ max(p_y/p_x, q_y/q_x), here .7667; Σ min(p, q) is .8."""
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.3, 0.5, 0.2])
    exact = sum(1 / torch.maximum(p / p[x], q / q[x]).sum().item() for x in range(3))
    agree = [SeededRng(5).at(i).draw(p) == SeededRng(5).at(i).draw(q) for i in range(4000)]
    assert exact == pytest.approx(0.7667, abs=1e-4)
    assert sum(agree) / 4000 == pytest.approx(exact, abs=0.04)


def test_a_temperature_of_its_own_changes_acceptance_not_the_text_at_zero():
    draft = ModelDrafter(perturbed(TARGET), 3)
    cold = generate(TARGET, PROMPT, TemperedDrafter(draft), 60, 1.0, seed=0)
    assert {q for step in cold.steps for q in step.q} == {1.0}, "argmax drafts are point masses"
    with pytest.raises(ValueError, match="temperature=-1"):
        TemperedDrafter(draft, -1)
    with pytest.raises(TypeError, match="inner is a CausalLM: must be a drafter"):
        TemperedDrafter(TARGET)
