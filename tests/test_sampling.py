"""The adjusted distribution, and the sources of chance."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from specdec_lite.gpu import on_device
from specdec_lite.sampling import (
    EnumeratingRng,
    PlacedRng,
    Sampling,
    SeededRng,
    invert,
    nucleus,
    outcomes,
)

FINITE = st.lists(st.floats(-30, 30), min_size=1, max_size=8).map(
    lambda xs: torch.tensor(xs, dtype=torch.float64)
)
SETTINGS = st.builds(
    Sampling, st.floats(0.05, 5), st.none() | st.integers(1, 9), st.none() | st.floats(0.01, 1)
)


EVEN, FALLING = [0.0] * 4, [math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]
BY_HAND = {
    "greedy: the first of equals": (Sampling(0), [1, 3, 3, -2], [0, 1, 0, 0]),
    "greedy with top-k and top-p": (Sampling(0.0, 3, 0.1), [1, 3, 3, -2], [0, 1, 0, 0]),
    "temperature": (Sampling(0.5), FALLING, [x / 0.365 for x in (0.25, 0.09, 0.0225, 0.0025)]),
    "an impossible token": (Sampling(), [0.0, -math.inf, 0.0], [0.5, 0, 0.5]),
    "top-k": (Sampling(top_k=1), [0.0, 2.0, 1.0], [0, 1, 0]),
    "top-k of all": (Sampling(top_k=4), FALLING, [0.5, 0.3, 0.15, 0.05]),
    "top-k beyond all": (Sampling(top_k=99), FALLING, [0.5, 0.3, 0.15, 0.05]),
    "top-p exactly reached: no third token": (Sampling(top_p=0.5), EVEN, [0.5, 0.5, 0, 0]),
    "top-p just not reached": (Sampling(top_p=0.50001), EVEN, [1 / 3, 1 / 3, 1 / 3, 0]),
    "top-p keeps at least one token": (Sampling(top_p=1e-300), EVEN, [1, 0, 0, 0]),
    "top-p of all": (Sampling(top_p=1.0), FALLING, [0.5, 0.3, 0.15, 0.05]),
    "temperature, top-k, top-p in this order": (
        Sampling(2.0, 3, 0.7),
        FALLING,
        [0.5**0.5 / (0.5**0.5 + 0.3**0.5), 0.3**0.5 / (0.5**0.5 + 0.3**0.5), 0, 0],
    ),
    "other kinds of numbers": (
        Sampling(Fraction(1, 2), top_p=Fraction(1, 2)),
        FALLING,
        [1, 0, 0, 0],
    ),
    "a huge temperature": (Sampling(2**70), FALLING, [0.25] * 4),
}


@pytest.mark.parametrize("sampling, logits, probs", BY_HAND.values(), ids=BY_HAND)
def test_adjusted_by_hand(sampling, logits, probs):
    assert sampling(torch.tensor(logits)).tolist() == pytest.approx(probs)
    assert sampling.greedy == (sampling.temperature == 0)
    assert Sampling(top_k=1)(torch.zeros(4)).count_nonzero() == 1, "of equals, exactly k stay"


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-39, 1e-46, 1e-300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tiny_temperature_does_not_overflow(temperature, dtype):
    adjusted = lambda *row: Sampling(temperature)(torch.tensor(row, dtype=dtype)).tolist()
    assert adjusted(1.0, 3.0, 2.0) == [0, 1, 0] and adjusted(1.0, 3.0, 3.0) == [0, 0.5, 0.5]
    assert adjusted(1.0, 30.0, 20.0) == [0, 1, 0]  # 30 over the smallest number there is overflows


@given(FINITE, SETTINGS)
@settings(deadline=None)
def test_an_adjusted_distribution_is_one_and_keeps_the_order(logits, sampling):
    probs = sampling(logits)
    assert probs.dtype == torch.float64
    assert probs.sum().item() == pytest.approx(1)
    assert (probs >= 0).all()
    kept = probs > 0
    assert kept.any() and (sampling.top_k is None or kept.sum() <= sampling.top_k)
    assert (
        kept.all() or logits[kept].min() >= logits[~kept].max() - 1e-9
    )  # what is dropped was never likelier


@given(FINITE, st.floats(0.01, 1))
@settings(deadline=None)
def test_the_nucleus_is_the_fewest_tokens_that_reach_top_p(logits, top_p):
    probs = logits.softmax(-1)
    kept = nucleus(probs, top_p) > 0
    mass = probs[kept]
    assert mass.sum() >= top_p - 1e-9
    assert mass.sum() - mass.min() < top_p + 1e-9


def test_rows_are_adjusted_one_by_one_and_half_precision_is_lifted():
    rows = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
    sampling = Sampling(0.7, 4, 0.8)
    assert torch.equal(sampling(rows)[1, 2], sampling(rows[1, 2]))
    assert torch.equal(Sampling(0)(rows)[1, 2], Sampling(0)(rows[1, 2]))
    assert sampling(rows.bfloat16()).dtype == torch.float32 == sampling(rows.half()).dtype


# Chance -------------------------------------------------------------------------------------------


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1)), min_size=1, max_size=9).filter(
        lambda xs: sum(xs) > 0
    ),
    st.floats(0, 1, exclude_max=True),
)
def test_inversion_finds_the_token_and_never_an_impossible_one(weights, uniform):
    probs = torch.tensor(weights, dtype=torch.float64)
    token = invert(probs, uniform)
    below, upto = probs[:token].sum().item(), probs[: token + 1].sum().item()
    assert probs[token] > 0
    assert below <= uniform * probs.sum().item() + 1e-12
    assert uniform * probs.sum().item() <= upto + 1e-12


def test_inversion_at_the_ends():
    probs = torch.tensor([0.0, 0.3, 0.0, 0.7, 0.0])
    assert invert(probs, 0.0) == 1 and invert(probs, 1 - 2**-53) == 3 and invert(probs, 1.0) == 3


def test_every_token_of_a_large_vocabulary_has_its_own_probability():
    """A token whose interval is hit at both ends, within 1e-13, is drawn with its probability within
    2e-13. All tokens together are then at most 3e-8 from the row. Accumulated in float32 the distance
    is 1e-3, and about 19,000 tokens are never drawn.
    """
    size = 151_936
    logits = torch.randn(size, generator=torch.Generator().manual_seed(0))
    probs = Sampling()(2.5 * logits)
    upper = np.cumsum(probs.numpy(), dtype=np.longdouble)  # 64 bits of precision, not 53
    upper /= upper[-1]
    lower = np.append(np.longdouble(0), upper[:-1])
    starts, ends = ((lower + 1e-13).astype(float), (upper - 1e-13).astype(float))
    assert np.all(starts < ends)
    every = torch.arange(size)
    for edges in (starts, ends):
        assert torch.equal(on_device.invert(probs, torch.tensor(edges)), every)
    rarest = probs.argsort()[:200].tolist()
    for token in [*rarest, *range(0, size, 500), size - 1]:
        assert invert(probs, starts[token]) == token == invert(probs, ends[token])


def test_a_draw_reads_the_device_once(monkeypatch):
    reads = []
    for name in ("item", "tolist", "__int__", "__float__", "__bool__", "__index__"):
        read = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor, name, lambda self, read=read, name=name: reads.append(name) or read(self)
        )
    assert invert(torch.tensor([0.25, 0.75]), 0.5) == 1 and reads == ["tolist"]


@pytest.mark.parametrize("probs", [[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_drawing_from_nothing_or_nan_is_an_error(probs):
    with pytest.raises(ValueError, match="NaN"):
        SeededRng(0).draw(torch.tensor(probs))


@pytest.mark.statistical(rate=1.6e-6)
def test_draws_follow_their_probabilities():
    """A correct rng exceeds the bound of chi-square (three degrees of freedom) once in 10⁶ runs.

    It exceeds five standard deviations with probability 6·10⁻⁷.
    """
    probs, rng, count = torch.tensor([0.1, 0.2, 0.3, 0.4]), SeededRng(5), 4000
    drawn = torch.bincount(torch.tensor([rng.draw(probs) for _ in range(count)]), minlength=4)
    assert ((drawn - count * probs) ** 2 / (count * probs)).sum() < 30.7
    heads = sum(rng.flip(0.3) for _ in range(count))
    assert abs(heads - 0.3 * count) < 5 * math.sqrt(count * 0.21)
    assert not any(rng.flip(0.0) for _ in range(100))
    assert all(rng.flip(1.0) for _ in range(100))
    assert all(rng.flip(1.5) for _ in range(10))


def test_seeds_repeat_and_differ():
    first, again, other = (
        [rng.uniform() for _ in range(5)] for rng in (SeededRng(3), SeededRng(3), SeededRng(4))
    )
    assert first == again != other
    probs = torch.full((50,), 1 / 50)
    placed = [[PlacedRng(seed, 2).draw(probs) for _ in range(3)] for seed in (3, 4)]
    assert [len(set(tokens)) for tokens in placed] == [1, 1] and placed[0] != placed[1]
    assert SeededRng().uniform() != SeededRng().uniform()


def test_enumeration_walks_every_outcome_once_and_weighs_it():
    def experiment(rng):
        first = rng.draw(torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64))
        return (first, rng.flip(0.25)) if first else (first,)

    assert sorted(outcomes(experiment)) == [((0,), 0.5), ((2, False), 0.375), ((2, True), 0.125)]
    assert list(outcomes(lambda rng: rng.flip(3.0))) == [(True, 1.0)], "certain: no second branch"
    assert EnumeratingRng((1,)).draw(torch.tensor([0.5, 0.5])) == 1
    row = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    three = list(outcomes(lambda rng: (rng.draw(row), rng.draw(row[:2] * 2), rng.draw(row))))
    assert len({outcome for outcome, _ in three}) == len(three) == 18
    assert sum(weight for _, weight in three) == pytest.approx(1, abs=1e-12)


def sorted_nucleus(probs, top_p):
    """Return the nucleus by sorting the whole vocabulary."""
    ordered, ids = probs.sort(dim=-1, descending=True, stable=True)
    ordered = ordered.where(ordered.cumsum(-1) - ordered < top_p, 0.0)
    return torch.zeros_like(probs).scatter_(-1, ids, ordered / ordered.sum(-1, keepdim=True))


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999, 0.9999999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0, 8.0])
def test_top_p_of_a_large_vocabulary_equals_the_full_sort_to_the_last_bit(top_p, dtype, scale):
    generator = torch.Generator().manual_seed(3)
    logits = scale * torch.randn((4, 20_000), generator=generator, dtype=dtype)
    logits[1] = logits[1].round()  # ties at every level
    logits[2, 100:] = -math.inf
    logits[3, :] = logits[3, 0]
    two = torch.stack((logits[0], logits[0].flip(0)))  # one row of ties sends all to the sort
    for rows in (logits, two, logits[0], logits[1], logits[2], logits[3]):
        probs = rows.softmax(-1)
        assert torch.equal(nucleus(probs, top_p), sorted_nucleus(probs, top_p))


def test_top_p_of_a_peaked_row_does_not_sort_the_vocabulary(monkeypatch):
    probs = (3 * torch.randn(50_000, generator=torch.Generator().manual_seed(0))).softmax(-1)
    expected = sorted_nucleus(probs, 0.5)
    monkeypatch.setattr(torch.Tensor, "sort", None)
    assert torch.equal(nucleus(probs, 0.5), expected) and 1 < int((expected > 0).sum()) < 1024


def test_top_p_keeps_rows_of_nan():
    probs = torch.full((5000,), math.nan)
    assert bool(nucleus(probs, 0.9).isnan().all())
