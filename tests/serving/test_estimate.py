"""Costs on hardware that is not at hand: closed forms against enumeration, and the drawing's own."""

import itertools

import numpy as np
import pytest
from javascript import evaluate

from specdec_lite import roofline, theory
from specdec_lite.serving.estimate import Hardware, Network, estimate, expected_experts

DENSE = Network(32.8e9, cache_bytes=262_144)
MIXTURE = Network(1.5e9, cache_bytes=98_304, experts=128, chosen=8, expert_parameters=226_492_416)
SMALL = Network(0.6e9, cache_bytes=114_688)
H100 = Hardware(3.35e12, 989e12)


def test_a_dense_pass_is_the_rooflines():
    for batch, tokens in itertools.product([1, 8, 300], [1, 5]):
        both = roofline.pass_seconds(
            32.8e9, 2.0, 3.35e12, 989e12, tokens, batch, cache_bytes=1000 * 262_144
        )
        assert H100.seconds(DENSE, batch, tokens, 1000) == pytest.approx(max(both))


def test_distinct_experts_by_drawing_them():
    rng = np.random.default_rng(0)
    draws = [
        len({int(e) for _ in range(3) for e in rng.choice(16, 4, replace=False)})
        for _ in range(4000)
    ]
    assert np.mean(draws) == pytest.approx(expected_experts(16, 4, 3), abs=0.1)
    assert expected_experts(128, 8, 1) == pytest.approx(8)
    relative = [expected_experts(128, 8, n) / 8 for n in (2, 4, 8)]
    assert relative == pytest.approx([1.94, 3.64, 6.45], abs=0.01)


def test_a_mixture_pays_for_verifying_where_a_dense_model_does_not():
    dense = estimate(DENSE, SMALL, H100, 0.8, 4)
    mixture = estimate(MIXTURE, SMALL, H100, 0.8, 4)
    assert dense.verify / dense.plain == pytest.approx(1, abs=0.01)
    assert mixture.verify / mixture.plain > 2
    crowd = estimate(MIXTURE, SMALL, H100, 0.8, 4, batch=64)
    assert crowd.verify / crowd.plain < 1.1, "all experts are read by then in any case"


def test_the_parts_make_the_speedup():
    found = estimate(DENSE, SMALL, H100, 0.8, 4)
    assert found.speedup == pytest.approx(found.tokens / found.break_even)
    assert found.tokens == theory.expected_tokens(0.8, 4)
    free = estimate(DENSE, Network(0), H100, 0.8, 4)
    assert free.draft == 0 and free.speedup == pytest.approx(found.tokens, rel=0.01)
    assert estimate(DENSE, SMALL, H100, 0.8, 4, batch=256).speedup < 1


def test_the_drawing_has_the_same_formulas():
    points = list(itertools.product([0.0, 0.7, 1.0], [1, 4, 16], [1, 64, 256], [0, 4096]))
    machine = {"bandwidth": 3.35e12, "throughput": 989e12, "fixed": 2e-4}
    sizes = {
        "dense": ({"parameters": 32.8e9, "cache": 262_144}, DENSE),
        "mixture": (
            {
                "parameters": 1.5e9,
                "cache": 98_304,
                "experts": 128,
                "chosen": 8,
                "expert": 226_492_416,
            },
            MIXTURE,
        ),
    }
    draft = {"parameters": 0.6e9, "cache": 114_688}
    hardware = Hardware(3.35e12, 989e12, 2e-4)
    for theirs, ours in sizes.values():
        calls = [{"name": "estimate", "args": [theirs, draft, machine, *point]} for point in points]
        for point, given in zip(points, evaluate("payoff", calls)):
            wanted = estimate(ours, SMALL, hardware, *point)
            assert given["speedup"] == pytest.approx(wanted.speedup, rel=1e-9)
            assert given["round"] == pytest.approx(wanted.round, rel=1e-9)


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
