"""Every wrapper around every kind of drafter, two levels deep, keeps the distribution or is refused.

`Grid` makes shared noise enumerable: the noise of a position is one of ten equally likely
numbers, from which every draw at that position takes its token. So the distribution of the text is
exact, with coupled drafters too.
"""

from contextlib import suppress

import pytest
import torch
from chosen import one_in
from models_zoo import PROMPT, Constant, native, perturbed
from registry import DRAFTERS
from scipy import stats
from text_laws import TooManyOutcomes, distance, exact_text_law, own_text_law

from specdec_lite import generate, stream
from specdec_lite.drafters import (
    BanditDrafter,
    CascadeDrafter,
    CoupledDrafter,
    FixedTreeDrafter,
    MergedDrafter,
    ModelDrafter,
    RelayDrafter,
    TemperedDrafter,
    same_noise,
)
from specdec_lite.drafters.combined import CompositeDrafter
from specdec_lite.drafters.trees import with_replacement
from specdec_lite.sampling import PlacedRng, Sampling, SeededRng, outcomes
from specdec_lite.tree import TokenTree

GRID = 10
CELLS = torch.full((GRID,), 1 / GRID, dtype=torch.float64)
P = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
Q = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
MIDDLE = torch.tensor([0.2, 0.4, 0.1, 0.3], dtype=torch.float64)
MOST = {3: 500, 2: 20_000}
"""Outcomes to enumerate for texts of this length; else shorter texts are enumerated."""


TARGET, DRAFT, BETWEEN = Constant(P), Constant(Q), Constant(MIDDLE)


class Grid:
    """Draw with the noise of a position, which is the same for all draws there."""

    def __init__(self, rng, noise=None, position=None):
        self.rng, self.position = rng, position
        self.noise = {} if noise is None else noise

    def at(self, position):
        return Grid(self.rng, self.noise, position)

    def flip(self, prob):
        return self.rng.flip(prob)

    def draw(self, probs):
        if self.position is None:
            return self.rng.draw(probs)
        if self.position not in self.noise:
            self.noise[self.position] = self.rng.draw(CELLS)
        cell = (self.noise[self.position] + 0.5) / GRID
        self.position += 1
        return int(torch.searchsorted(probs.cumsum(0), cell * probs.sum().item()))


def error(drafter, rule=None, lengths=(3, 2)):
    """Return the exact distance from the target's own texts, of three tokens or of two."""
    for length in lengths:
        options = dict(rule=rule, prompt=[0], most=MOST[length], noise=Grid)
        with suppress(TooManyOutcomes):
            law = exact_text_law(TARGET, drafter, Sampling(), length, **options)
            assert sum(law.values()) == pytest.approx(1)
            own = own_text_law(TARGET, Sampling(), length, logits=lambda target, ids: P.log())
            return distance(law, own)
    raise AssertionError("too many outcomes to enumerate")


BASES = {
    "chain": lambda: ModelDrafter(DRAFT, 1),
    "tree": lambda: FixedTreeDrafter(DRAFT, TokenTree([0, 0], [-1, -1]), with_replacement),
    "chosen": lambda: TemperedDrafter(ModelDrafter(DRAFT, 1), 0.0),
}
WRAPPERS = {
    "coupled": CoupledDrafter,
    "tempered": lambda inner: TemperedDrafter(inner, 1.0),
    "merged": lambda inner: MergedDrafter([inner, inner]),
    "relay": lambda inner: RelayDrafter([(inner, 1)]),
    "bandit": lambda inner: BanditDrafter([inner]),
    "cascade": lambda inner: CascadeDrafter(BETWEEN, inner, 1),
}
PAIRS = {
    f"{outer} {inner} {base}": (WRAPPERS[outer], WRAPPERS[inner], BASES[base])
    for outer in WRAPPERS
    for inner in WRAPPERS
    for base in BASES
    if (outer, inner, base) != ("merged", "merged", "tree")  # eight draws: too many outcomes
}


def test_every_composite_drafter_is_a_wrapper_here():
    made = {type(make(ModelDrafter(DRAFT, 1))) for make in WRAPPERS.values()}
    assert all(issubclass(kind, CompositeDrafter) for kind in made)

    def below(kind):
        return {kind}.union(*(below(each) for each in kind.__subclasses__()))

    library = {kind for kind in below(CompositeDrafter) if kind.__module__.startswith("specdec_")}
    bases = {"CompositeDrafter", "GroupDrafter", "WrapperDrafter", "Watch"}  # of check_lossless
    assert {kind.__name__ for kind in library - made} <= bases


@pytest.mark.parametrize(
    "name", one_in(32, PAIRS, ["coupled merged chosen", "cascade coupled chosen"])
)
def test_two_wrappers_keep_the_distribution_or_are_refused(name):
    outer, inner, base = PAIRS[name]
    try:
        drafter = outer(inner(base()))
    except ValueError as refusal:
        assert "which drafts a tree" in str(refusal)
        return
    try:
        found = error(drafter)
    except ValueError as refusal:
        assert "is lossless only under same_noise" in str(refusal)
        found = error(drafter, same_noise)
    assert found < 1e-9


SLOW = pytest.mark.weekly
BIASED = {
    "a merge of coupled drafts": (lambda: MergedDrafter([CoupledDrafter(BASES["chain"]())] * 2),),
    "a coupled merge": (lambda: CoupledDrafter(MergedDrafter([BASES["chain"]()] * 2)), SLOW),
    "a coupled tree": (lambda: CoupledDrafter(BASES["tree"]()), SLOW),
}


@pytest.mark.parametrize(
    "make", [pytest.param(make, id=name, marks=marks) for name, (make, *marks) in BIASED.items()]
)
def test_a_refused_pair_would_change_the_distribution(make, monkeypatch):
    monkeypatch.setattr(CompositeDrafter, "check_rule", lambda self, rule: None)
    monkeypatch.setitem(MOST, 3, 60_000)
    assert error(make()) > 0.003


def test_the_noise_of_the_grid_couples_drafts():
    """A coupled draft with the target's own distribution is always the target's draw."""
    kept = []
    for drafter in (ModelDrafter(TARGET, 1), CoupledDrafter(ModelDrafter(TARGET, 1))):
        options = dict(rule=same_noise)
        first = lambda rng: next(stream(TARGET, [0], drafter, 2, 1.0, rng=Grid(rng), **options))  # noqa: B023
        kept.append(sum(step.accepted * weight for step, weight in outcomes(first)))
    alone, coupled = kept
    assert alone == pytest.approx((P * P).sum().item()) and coupled == pytest.approx(1)


# Shared noise on models: a seed gives one text with every drafter ---------------------------------

MODEL = native()


def text(drafter, seed=3, rule=same_noise, rng=None, wanted=40):
    steps = stream(MODEL, PROMPT, drafter, wanted, 1.0, rule=rule, rng=rng or SeededRng(seed))
    return [token for step in steps for token in step.tokens]


@pytest.mark.parametrize("name", one_in(8, DRAFTERS))
def test_a_seed_gives_the_same_text_with_every_drafter(name):
    for seed in (3, 4):
        assert text(DRAFTERS[name](MODEL), seed) == text(None, seed)
    assert text(None, 3) != text(None, 4)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1, 2, 3, 5, 8])
def test_a_seed_gives_the_same_text_at_any_gamma_and_coupling_accepts_more(gamma):
    draft = perturbed(MODEL, 0.15)
    apart, coupled = (
        generate(MODEL, PROMPT, drafter, 200, 1.0, rule=same_noise, seed=3)
        for drafter in (ModelDrafter(draft, gamma), CoupledDrafter(ModelDrafter(draft, gamma)))
    )
    assert coupled.tokens.tolist() == apart.tokens.tolist() == text(None, wanted=200)
    assert coupled.stats.acceptance_rate > apart.stats.acceptance_rate + 0.1


class Counting(SeededRng):
    """Broken: noise is keyed by the number of draws, which a rejection shifts, not by position."""

    def __init__(self, seed):
        super().__init__(seed)
        self.count = 0

    def at(self, position):
        self.count += 1
        return PlacedRng(self.generator.initial_seed(), self.count)


def test_noise_keyed_by_draws_makes_the_text_depend_on_the_drafter():
    drafter = ModelDrafter(perturbed(MODEL), 3)
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
    draft = perturbed(MODEL, 0.15)
    once = CoupledDrafter(ModelDrafter(draft, 3))
    steps = [
        [(step.tokens, step.path) for step in stream(MODEL, PROMPT, drafter, 40, 1.0, seed=3)]
        for drafter in (once, CoupledDrafter(once))
    ]
    assert steps[0] == steps[1]
