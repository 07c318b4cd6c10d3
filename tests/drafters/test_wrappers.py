"""Every wrapper around every kind of drafter, two levels deep, keeps the distribution or is refused.

`Grid` makes shared noise enumerable: the noise of a position is one of ten equally likely
numbers, from which every draw at that position takes its token. So the distribution of the text is
exact, with coupled drafters too.
"""

from contextlib import suppress

import pytest
import torch
from chosen import one_in
from models_zoo import Constant
from text_laws import TooManyOutcomes, distance, exact_text_law, own_text_law

from specdec_lite import stream
from specdec_lite.contract import Drafter, Limits, Session
from specdec_lite.drafters import (
    BanditDrafter,
    CascadeDrafter,
    CoupledDrafter,
    MergedDrafter,
    ModelDrafter,
    RelayDrafter,
    TemperedDrafter,
    same_noise,
)
from specdec_lite.drafters.combined import CompositeDrafter
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.sampling import Sampling, outcomes
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


class Siblings(Drafter, Session):
    """Draw two siblings independently."""

    def start(self, context):
        return self

    def limits(self):
        return Limits(1, 2)

    def propose(self, context):
        if context.wanted < 2:
            return NOTHING
        tokens = [context.rng.draw(Q), context.rng.draw(Q)]
        return Proposal(TokenTree(tokens, [-1, -1]), torch.stack((Q, Q)))


BASES = {
    "chain": lambda: ModelDrafter(DRAFT, 1),
    "tree": lambda: Siblings(),
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


@pytest.mark.parametrize("name", one_in(32, PAIRS))
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
