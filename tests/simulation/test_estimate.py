"""Predicted costs compared with the roofline, with random draws and with the interactive."""

import itertools
from dataclasses import asdict

import numpy as np
import pytest
from javascript import evaluate

from specdec_lite import roofline, theory
from specdec_lite.simulation.estimate import Hardware, Network, estimate, expected_experts

DENSE = Network(32.8e9, cache_bytes=262_144, layers=64)
MIXTURE = Network(
    1.5e9, cache_bytes=98_304, experts=128, chosen=8, expert_parameters=226_492_416, layers=48
)
SMALL = Network(0.6e9, cache_bytes=114_688, layers=28)
HEAD = Network(0.73e9, cache_bytes=4096, layers=1)
H100 = Hardware(3.35e12, 989e12)


def test_a_dense_pass_follows_the_roofline():
    for batch, tokens in itertools.product([1, 8, 300], [1, 5]):
        both = roofline.pass_seconds(
            32.8e9, 2.0, 3.35e12, 989e12, tokens, batch, cache_bytes=1000 * 262_144
        )
        assert H100.seconds(DENSE, batch, tokens, 1000) == pytest.approx(max(both))


def test_expected_experts_equals_the_mean_of_random_draws():
    rng = np.random.default_rng(0)
    draws = [
        len({int(e) for _ in range(3) for e in rng.choice(16, 4, replace=False)})
        for _ in range(4000)
    ]
    assert np.mean(draws) == pytest.approx(expected_experts(16, 4, 3), abs=0.1)
    assert expected_experts(128, 8, 1) == pytest.approx(8)
    relative = [expected_experts(128, 8, n) / 8 for n in (2, 4, 8)]
    assert relative == pytest.approx([1.94, 3.64, 6.45], abs=0.01)


def test_verification_costs_more_in_a_mixture_than_in_a_dense_model():
    dense = estimate(DENSE, SMALL, H100, 0.8, 4)
    mixture = estimate(MIXTURE, SMALL, H100, 0.8, 4)
    assert dense.verify / dense.plain == pytest.approx(1, abs=0.01)
    assert mixture.verify / mixture.plain > 2
    crowd = estimate(MIXTURE, SMALL, H100, 0.8, 4, batch=64)
    assert crowd.verify / crowd.plain < 1.1, "a batch of 64 reads all experts anyway"


def test_the_speedup_follows_from_its_parts():
    result = estimate(DENSE, SMALL, H100, 0.8, 4)
    assert result.speedup == pytest.approx(result.tokens / result.break_even)
    assert result.tokens == theory.expected_tokens(0.8, 4)
    free = estimate(DENSE, Network(0), H100, 0.8, 4)
    assert free.draft == 0 and free.speedup == pytest.approx(result.tokens, rel=0.01)
    assert estimate(DENSE, SMALL, H100, 0.8, 4, batch=256).speedup < 1
    plain, drafted = estimate(DENSE, SMALL, H100, 0.8, 4, batch=8).price(3.0)
    assert plain / drafted == pytest.approx(estimate(DENSE, SMALL, H100, 0.8, 4, batch=8).speedup)
    assert plain == pytest.approx(3 / 3600 * H100.seconds(DENSE, 8) / 8 * 1e6)


def test_a_draft_is_charged_for_its_layers():
    """A head of one layer has more parameters than the small model here, and costs less."""
    hardware = Hardware(3.35e12, 989e12, 25e-6)
    head, small = (estimate(DENSE, draft, hardware, 0.7, 4).draft for draft in (HEAD, SMALL))
    assert small == pytest.approx(4 * 28 * 25e-6)
    assert head == pytest.approx(4 * 2 * 0.73e9 / 3.35e12)
    assert head < small


def test_reading_and_arithmetic_cross_near_a_batch_of_60():
    """Five positions per sequence, 128 tokens of context."""
    free = Hardware(3.35e12, 1e30), Hardware(1e30, 989e12)
    reading, computing = ([h.seconds(DENSE, b, 5, 128) for b in (59, 62)] for h in free)
    assert reading[0] > computing[0] and reading[1] < computing[1]


def test_the_interactive_computes_the_same_costs():
    points = list(itertools.product([0.0, 0.7, 1.0], [1, 4, 16], [1, 64, 256], [0, 4096]))
    machine = {"bandwidth": 3.35e12, "throughput": 989e12, "per_layer": 25e-6}
    hardware = Hardware(3.35e12, 989e12, 25e-6)
    for network in (DENSE, MIXTURE):
        sizes = [asdict(network), asdict(SMALL), machine]
        calls = [{"name": "estimate", "args": [*sizes, *point]} for point in points]
        for point, given in zip(points, evaluate("payoff", calls)):
            expected = estimate(network, SMALL, hardware, *point)
            assert given["speedup"] == pytest.approx(expected.speedup, rel=1e-9)
            assert given["round"] == pytest.approx(expected.round, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 1.2}, "alpha"),
        ({"gamma": 0}, "gamma"),
        ({"batch": 0}, "batch"),
        ({"context": -1}, "context"),
    ],
)
def test_bad_input_names_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        estimate(DENSE, SMALL, H100, **({"alpha": 0.8, "gamma": 4} | arguments))
    with pytest.raises(ValueError, match="chosen"):
        expected_experts(8, 9, 1)
