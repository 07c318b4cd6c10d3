"""Closed forms against their theorems, against simulation by sums, and against what was published."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize, special

from specdec_lite import roofline, theory

PUBLISHED = json.loads(
    (Path(__file__).parents[1] / "results" / "published.json").read_text(encoding="utf-8")
)
ALPHA = st.floats(0, 1)
GAMMA = st.integers(1, 40)
COST = st.floats(0, 2)


@st.composite
def pairs(draw, size=None):
    """Draw two distributions over 1–8 tokens, zeros and equal pairs included."""
    size = size or draw(st.integers(1, 8))
    weights = arrays(float, size, elements=st.one_of(st.just(0.0), st.floats(1e-3, 1)))
    p, q = (draw(weights.filter(lambda w: w.sum() > 0)) for _ in range(2))
    p = p / p.sum()
    return (p, p.copy()) if draw(st.integers(0, 9)) == 0 else (p, q / q.sum())


LENIENCE = st.floats(0.01, 1)


# Distributions -----------------------------------------------------------------------------------


@given(pairs(size=5), pairs(size=5))
def test_total_variation_has_all_its_forms(first, second):
    (p, q), (r, _) = first, second
    distance = theory.total_variation(p, q)
    sets = np.array(list(product((0, 1), repeat=5)))
    forms = {
        "the largest difference over token sets": (sets @ (p - q)).max(),
        "the papers' divergence": np.abs(p - (p + q) / 2).sum(),
        "what speculative sampling rejects": 1 - theory.acceptance_rate(p, q),
        "by the rule": 1 - sum(b * min(1, a / b) for a, b in zip(p, q) if b > 0),
    }
    assert forms == {name: pytest.approx(distance, abs=1e-12) for name in forms}
    assert distance == theory.total_variation(q, p)
    assert distance <= theory.total_variation(p, r) + theory.total_variation(r, q) + 1e-12
    assert (distance < 1e-12) == np.allclose(p, q, atol=1e-12)
    assert (distance > 1 - 1e-12) == (not np.any((p > 0) & (q > 0)))


@given(pairs())
def test_accepted_mass_and_residual_add_up_to_the_target(pair):
    p, q = pair
    emitted = np.minimum(p, q) + (1 - theory.acceptance_rate(p, q)) * theory.residual(p, q)
    np.testing.assert_allclose(emitted, p, atol=1e-12)


def most_agreement(p, q):
    """Return the largest trace of a joint distribution of (drafted, emitted) with marginals q and p.

    No procedure can accept more often.
    """
    n = len(p)
    sums = np.concatenate([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    return -optimize.linprog(-np.eye(n).ravel(), A_eq=sums, b_eq=np.concatenate([q, p])).fun


@given(pairs())
@settings(max_examples=60)
def test_no_joint_distribution_agrees_more_than_speculative_sampling(pair):
    p, q = pair
    ours = np.diag(np.minimum(p, q)) + np.outer(np.maximum(q - p, 0), theory.residual(p, q))
    assert ours.sum(1) == pytest.approx(q, abs=1e-12) and ours.sum(0) == pytest.approx(p, abs=1e-12)
    assert (
        np.trace(ours)
        == pytest.approx(theory.acceptance_rate(p, q), abs=1e-12)
        == pytest.approx(most_agreement(p, q), abs=1e-6)
    )


def test_residual_of_equal_distributions_is_the_target():
    p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    assert np.array_equal(theory.residual(p, p.clone()), p)
    mixed = theory.residual(p, torch.tensor([[0.5, 0.3, 0.2], [0.7, 0.2, 0.1]]))
    assert np.array_equal(mixed[0], p[0]) and mixed[1].tolist() == [0, 0, 1]


@given(pairs())
def test_the_two_simpler_rules_never_accept_more(pair):
    p, q = pair
    once = min(b / a for a, b in zip(p, q) if a > 0)  # 1/M with M = max p/q
    assert max(once, p @ q) <= theory.acceptance_rate(p, q) + 1e-12


@given(pairs(), LENIENCE)
def test_lenience_raises_acceptance_and_bounds_every_token(pair, lenience):
    p, q = pair
    rate = theory.lenient_acceptance_rate(p, q, lenience)
    assert (
        theory.acceptance_rate(p, q) - 1e-12
        <= rate
        <= min(1, theory.acceptance_rate(p, q) / lenience) + 1e-12
    )
    assert rate == pytest.approx(
        sum(b * min(1, a / (lenience * b)) for a, b in zip(p, q) if b > 0), abs=1e-12
    )
    for emitted in lenient_laws(p, q, lenience):
        assert emitted.sum() == pytest.approx(1)
        assert np.all(emitted <= p / lenience + 1e-12)


def lenient_laws(p, q, lenience):
    """Return what is emitted if the token is recovered from the residual of p − q, and of p − l·q."""
    accepted = np.minimum(p / lenience, q)
    scaled = np.maximum(p - lenience * q, 0)
    scaled = scaled / scaled.sum() if scaled.sum() > 1e-15 else p
    rejected = max(0.0, 1 - accepted.sum())  # the sum may round to just above 1
    return [accepted + rejected * leftover for leftover in (theory.residual(p, q), scaled)]


@given(pairs(size=6), LENIENCE, st.data())
def test_the_residual_of_p_minus_q_reaches_the_smallest_lenient_distance(pair, lenience, data):
    p, q = pair
    least = theory.lenient_distance(p, q, lenience)
    assert theory.lenient_distance(p, q, 1) == 0, "no lenience, no distance"
    assert least == pytest.approx(
        1 - theory.acceptance_rate(p, q) - (1 - theory.lenient_acceptance_rate(p, q, lenience)),
        abs=1e-12,
    )
    unscaled, scaled = lenient_laws(p, q, lenience)
    assert theory.total_variation(p, unscaled) == pytest.approx(least, abs=1e-9)
    assert theory.total_variation(p, scaled) >= least - 1e-9
    other = data.draw(arrays(float, 6, elements=st.floats(1e-3, 1)))
    accepted = np.minimum(p / lenience, q)
    emitted = accepted + max(0.0, 1 - accepted.sum()) * other / other.sum()
    assert theory.total_variation(p, emitted / emitted.sum()) >= least - 1e-9


def test_tensors_of_every_dtype_are_read_as_arrays_and_numbers_come_back():
    p, q = torch.tensor([[0.5, 0.3, 0.2], [0.0, 1, 0]]), torch.tensor([0.25, 0.5, 0.25]).bfloat16()
    hot = torch.nn.functional.one_hot(torch.tensor(1), 3)
    lenient = lambda p, q: theory.lenient_acceptance_rate(p, q, 0.5)
    for function in (theory.acceptance_rate, theory.total_variation, theory.residual, lenient):
        array = function(p.double().numpy(), [0.25, 0.5, 0.25])
        for first in (p, p.clone().requires_grad_()):
            np.testing.assert_array_equal(function(first, q), array)
        for one in (hot, [0, 1, 0]):
            assert np.array_equal(function(one, q.tolist()), array[1])
    rate = theory.acceptance_rate(p[0], q)
    assert isinstance(array, np.ndarray) and isinstance(rate, float) and rate.item() == rate
    assert isinstance(theory.total_variation(p[0], q), float)


def test_rows_may_miss_one_only_by_the_rounding_of_a_float32_softmax():
    size = 262_208  # the largest vocabulary in use
    torch.manual_seed(0)
    flat = (torch.randn(2, size) / 100).softmax(-1)
    assert 0 < theory.acceptance_rate(*flat) < 1


# Tokens, time, arithmetic ------------------------------------------------------------------------


def count_law(profile):
    """Return P(k tokens), k = 1 … γ+1: k − 1 drafts accepted and the k-th rejected, or all accepted."""
    return np.append(np.cumprod([1, *profile[:-1]]) * (1 - profile), profile.prod())


@given(ALPHA, GAMMA, COST)
def test_every_formula_is_its_sum(alpha, gamma, c):
    law, counts = count_law(np.full(gamma, alpha)), np.arange(1, gamma + 2)
    tokens, ours = sum(alpha**i for i in range(gamma + 1)), theory.expected_tokens(alpha, gamma)
    costs = (gamma, c, 1.2, 0.1, 0.05)
    formulas = {
        "tokens": (ours, tokens),
        "the mean of their distribution": (law @ counts, tokens),
        "tokens of a flat profile": (theory.tokens_from_profile([alpha] * gamma), tokens),
        "accepted = α · tested": (alpha * (law @ np.minimum(counts, gamma)), tokens - 1),
        "accepted ÷ drafted": (gamma * theory.drafted_acceptance(alpha, gamma), tokens - 1),
        "time": (theory.walltime_improvement(alpha, gamma, c), tokens / (gamma * c + 1)),
        "time of a tree": (theory.corrected_improvement(ours, gamma, c), tokens / (gamma * c + 1)),
        "break-even": (theory.break_even_tokens(*costs), (1.3 + gamma * c) / 1.05),
        "time with overheads": (
            theory.corrected_improvement(ours, *costs) * theory.break_even_tokens(*costs),
            tokens,
        ),
        "operations": (theory.operations_factor(alpha, gamma, c), (gamma * (c + 1) + 1) / tokens),
    }
    for name, (formula, value) in formulas.items():
        assert formula == pytest.approx(value, rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9, 1e-12, 1e-15])
def test_expected_tokens_keeps_its_digits_near_one(distance):
    assert theory.expected_tokens(1 - distance, 10) == pytest.approx(
        11 - 55 * distance, abs=200 * distance**2 + 1e-14 * 11
    )


def test_the_implied_rate_is_that_of_the_expected_tokens():
    for alpha, gamma in product([0, 1e-6, 0.3, 0.72, 1], [1, 4, 64]):
        tau = theory.expected_tokens(alpha, gamma)
        assert theory.implied_alpha(tau, gamma) == pytest.approx(alpha, abs=1e-9)
    mixed = (3 * theory.expected_tokens(0.7, 4) + theory.expected_tokens(0.7, 5)) / 4
    assert theory.implied_alpha(mixed, 4.25) == pytest.approx(0.7)


@given(arrays(float, st.integers(1, 8), elements=ALPHA))
def test_tokens_of_a_profile_are_the_mean_of_its_count_distribution(profile):
    law = count_law(profile)
    assert law.sum() == pytest.approx(1)
    assert theory.tokens_from_profile(profile) == pytest.approx(
        law @ np.arange(1, len(profile) + 2), rel=1e-12
    )


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=8))
def test_unconditional_rates_give_back_the_profile_and_alpha(profile):
    rates = np.cumprod(profile)
    found, alpha = theory.conditional_acceptance(rates)
    assert found == pytest.approx(profile)
    law = count_law(np.array(profile))
    tokens = np.arange(1, len(profile) + 2)
    assert alpha == pytest.approx(
        law @ (tokens - 1) / (law @ np.minimum(tokens, len(profile))), rel=1e-9
    )
    assert theory.tokens_from_profile(found) == pytest.approx(1 + rates.sum())


def test_printed_rates_taken_for_conditional_ones_are_too_low():
    printed = [0.879, 0.778, 0.687]
    profile, alpha = theory.conditional_acceptance(printed)
    assert profile == pytest.approx([0.879, 0.885, 0.883], abs=5e-4)
    assert alpha == pytest.approx(2.344 / 2.657)
    assert theory.tokens_from_profile(printed) < theory.tokens_from_profile(profile)
    assert theory.conditional_acceptance([[0.5, 0.0, 0.0]])[0].tolist() == [[0.5, 0.0, 0.0]]


@given(st.integers(0, 50), st.integers(0, 50))
def test_accepted_over_tested_is_the_likeliest_alpha(accepted, rejected):
    assume(accepted + rejected)
    surprise = lambda alpha: -special.xlogy(accepted, alpha) - special.xlogy(rejected, 1 - alpha)
    assert (
        surprise(accepted / (accepted + rejected)) <= surprise(np.linspace(0, 1, 501)).min() + 1e-9
    )


@given(st.floats(0, 1), st.floats(0, 1.5))
def test_a_draft_pays_iff_alpha_exceeds_c(alpha, c):
    curve = theory.walltime_improvement(alpha, np.arange(1, 65), c)
    gamma, improvement = theory.optimal_gamma(alpha, c)
    if alpha > c:
        assert gamma >= 1 and improvement == curve.max() == curve[gamma - 1]
        assert curve[0] == pytest.approx((1 + alpha) / (1 + c)) and curve[0] >= 1
    else:
        assert (gamma, improvement) == (0, 1.0) and curve.max() <= 1 + 1e-12


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_speedup_curve_has_one_peak(alpha, c):
    gains = np.diff(theory.walltime_improvement(alpha, np.arange(1, 40), c))
    signs = np.sign(np.where(np.abs(gains) < 1e-12, 0, gains))
    assert not any(later > 0 and earlier < 0 for earlier, later in zip(signs, signs[1:]))


@given(ALPHA, GAMMA, COST)
def test_one_more_draft_pays_iff_its_probability_beats_c_times_the_speedup(alpha, gamma, c):
    now, longer = theory.walltime_improvement(alpha, [gamma, gamma + 1], c)
    margin = alpha ** (gamma + 1) - c * now
    assert longer - now == pytest.approx(margin / (1 + (gamma + 1) * c), abs=1e-12)
    assert abs(longer - now) < 1e-12 or (longer > now) == (margin > 0)


@pytest.mark.filterwarnings("error")
def test_numbers_give_numbers_and_arrays_broadcast():
    assert isinstance(theory.expected_tokens(0.5, 2), float)
    assert theory.optimal_gamma(0.5, 0.6) == (0, 1.0)
    assert theory.walltime_improvement(
        np.linspace(0, 1, 5)[:, None], np.arange(1, 4), torch.tensor(0.1)
    ).shape == (5, 3)
    best, improvement = theory.optimal_gamma(torch.tensor([0.8, 0.05]), [0.1, 0.1])
    assert best.tolist() == [6, 0] and improvement[1] == 1.0
    assert theory.optimal_gamma(1.0, 0.0, max_gamma=9) == (9, 10.0)
    assert theory.optimal_gamma(0, 0) == (0, 1.0)
    assert theory.corrected_improvement(4 * (1 + 1e-12), 3, 0) > 4, "rounded up"


# What was published ------------------------------------------------------------------------------


def test_claim_leviathan_table_1_to_the_printed_digits():
    for alpha, gamma, operations, speed in PUBLISHED["leviathan2023_table1"]["rows"]:
        assert round(theory.operations_factor(alpha, gamma, 0), 2) == operations
        assert round(theory.walltime_improvement(alpha, gamma, 0), 2) == speed


def test_claim_leviathan_table_2_within_a_tenth():
    for *_, gamma, alpha, c, expected, _ in PUBLISHED["leviathan2023_table2"]["rows"]:
        assert theory.walltime_improvement(alpha, gamma, c) == pytest.approx(expected, abs=0.1)


CLAIMS = {
    "tokens per step at γ = 5": (
        lambda: theory.expected_tokens([0.5, 0.7, 0.8, 0.9, 0.95], 5),
        [1.97, 2.94, 3.69, 4.69, 5.30],
    ),
    "the best γ at c = .1": (lambda: theory.optimal_gamma([0.8, 0.5], 4 / 40)[0], [6, 2]),
    "its speedup": (lambda: theory.optimal_gamma([0.8, 0.5], 4 / 40)[1], [2.47, 1.46]),
    "a longer draft": (
        lambda: theory.walltime_improvement([0.8, 0.5], [8, 3], 0.1),
        [2.404, 1.442],
    ),
    "four tokens in 48 ms": (lambda: theory.corrected_improvement(4, 4, 2.0 / 40.0), 160 / 48),
    "operations of the target": (lambda: theory.operations_factor([0.9, 1.0], 10, 0), [1.60, 1]),
    "accepted ÷ drafted is not α": (lambda: theory.drafted_acceptance(0.82, 4), 0.624),
    "the order of a profile counts": (
        lambda: theory.tokens_from_profile([[0.9, 0.5], [0.5, 0.9]]),
        [2.35, 1.95],
    ),
}


@pytest.mark.parametrize("ours, published", CLAIMS.values(), ids=CLAIMS)
def test_claim(ours, published):
    assert ours() == pytest.approx(published, abs=0.005)


@given(COST, st.integers(1, 20), st.floats(0, 1))
def test_claim_a_round_pays_if_drafting_costs_less_than_the_saved_passes(c, gamma, share):
    """nD < (m − 1)·T, in units of T."""
    tokens = 1 + share * gamma
    gain, margin = theory.corrected_improvement(tokens, gamma, c) - 1, (tokens - 1) - gamma * c
    assert gain == pytest.approx(margin / (1 + gamma * c), abs=1e-12)
    assert abs(gain) < 1e-12 or (gain > 0) == (margin > 0)


def test_rounds_of_longer_drafts_begin_at_harder_positions():
    rates = np.array([0.97, 0.45])
    moves = np.array([[0.9, 0.1], [0.2, 0.8]])
    firsts = [rates @ theory.round_starts(rates, moves, gamma) for gamma in (1, 2, 4, 8)]
    assert [round(first, 3) for first in firsts] == [0.767, 0.74, 0.698, 0.648]
    rng = np.random.default_rng(0)
    state = 0
    starts = np.zeros(2)
    for _ in range(20_000):
        starts[state] += 1
        for _ in range(4):
            kept = rng.random() < rates[state]
            state = int(rng.random() < moves[state, 1])
            if not kept:
                break
        else:
            state = int(rng.random() < moves[state, 1])
    assert starts / starts.sum() == pytest.approx(theory.round_starts(rates, moves, 4), abs=0.02)
    alike = theory.round_starts([0.7, 0.7], moves, 8)
    assert alike == pytest.approx(theory.round_starts([0.7, 0.7], moves, 1)), "one rate: no drift"


# Roofline -----------------------------------------------------------------------------------------


def test_a_worked_example_of_seventy_billion_parameters():
    reading, computing = roofline.pass_seconds(70e9, 2, 2e12, 312e12)
    assert reading == pytest.approx(0.070) and computing == pytest.approx(0.000449, abs=1e-6)
    assert roofline.ridge_tokens(2, 2e12, 312e12) == 156


@pytest.mark.parametrize("width", [0.5, 1, 2, 4])
def test_reading_and_computing_take_equally_long_at_the_ridge(width):
    """Caches are read once per sequence; every token of every sequence is computed."""
    ridge = roofline.ridge_tokens(width, 8e11, 2e14)
    reading, computing = roofline.pass_seconds(1e9, width, 8e11, 2e14, ridge)
    assert reading == pytest.approx(computing)
    assert roofline.arithmetic_intensity(width, tokens=ridge) == pytest.approx(2e14 / 8e11)
    assert roofline.arithmetic_intensity(width, 5, 3) == 15 * roofline.arithmetic_intensity(width)
    more = roofline.pass_seconds(1e9, width, 8e11, 2e14, ridge, batch=8, cache_bytes=1e8)
    assert more == pytest.approx((reading + 8e8 / 8e11, 8 * computing))
