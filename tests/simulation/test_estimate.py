"""Predicted costs compared with the roofline, with random draws and with the interactive."""

import itertools
from dataclasses import asdict, replace

import numpy as np
import pytest
from javascript import evaluate, formula

from specdec_lite import roofline, theory
from specdec_lite.simulation import sizes
from specdec_lite.simulation.estimate import (
    FITTED,
    Engine,
    Network,
    bench_times,
    calibrate,
    costs,
    estimate,
    expected_experts,
    from_times,
    schedule,
    switch_off,
)
from specdec_lite.simulation.sizes import CARDS, EAGLE3, MODELS

DENSE, MIXTURE, SMALL = MODELS["Qwen3-32B"], MODELS["Qwen3-30B-A3B"], MODELS["Qwen3-0.6B"]
HEAD, NONE, H100 = EAGLE3["Qwen3-32B"], Network(0), CARDS["H100"]
IDEAL = Engine(1, 1, 50, 0, 0, 0, 0, 0, 0)
"""An engine that loses nothing; its soft maximum is nearly a maximum."""


def test_the_best_case_follows_the_roofline_and_so_does_an_engine_without_losses():
    for batch, tokens in itertools.product([1, 8, 300], [1, 5]):
        both = roofline.pass_seconds(
            DENSE.parameters, 2.0, 3.35e12, 989e12, tokens, batch, cache_bytes=1000 * 262_144
        )
        assert H100.seconds(DENSE, batch, tokens, 1000) == pytest.approx(max(both))
        four = replace(H100, gpus=4).seconds(DENSE, batch, tokens, 1000)
        assert four == pytest.approx(max(both) / 4)
        best = H100.seconds(DENSE, batch, tokens)
        assert IDEAL.seconds(DENSE, H100, batch, tokens) == pytest.approx(best, rel=0.02)


SIZED = [
    (sizes.model, (32, 4096, 14_336, 32, 8, 128_256), (7_504_658_432, 131_072, 32)),
    (sizes.model, (48, 2048, 768, 32, 4, 151_936, 128, 128, 8), (1_229_717_504, 98_304, 48)),
    (sizes.eagle3_head, (4096, 14_336, 32), (374_341_632, 4096, 1)),
    (sizes.eagle_head, (4096, 14_336, 32, 8, 128_256), (776_994_816, 4096, 1)),
    (sizes.block_head, (MODELS["Qwen3-8B"], 5, 151_936, 4096), (1_670_905_856, 20_480, 5)),
]


@pytest.mark.parametrize("make, shape, counted", SIZED)
def test_sizes_are_counted_by_hand(make, shape, counted):
    """Weights without the input embeddings, bytes of the cache per token, layers."""
    network = make(*shape)
    assert (network.parameters, network.cache_bytes, network.layers) == counted
    assert network.expert_parameters == (226_492_416 if network.experts == 128 else 0)
    assert network.block == (make is sizes.block_head)


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


def test_a_share_of_the_further_experts_is_read():
    every, none = MIXTURE.weights(5), MIXTURE.weights(5, 0.0)
    assert none == pytest.approx(MIXTURE.weights(1))
    assert MIXTURE.weights(5, 0.5) == pytest.approx((every + none) / 2)
    assert DENSE.weights(5) == DENSE.weights(1) == 2 * DENSE.parameters


def test_the_speedup_is_the_formula_of_the_chapters():
    for batch, gamma in itertools.product([1, 64], [1, 4]):
        e = estimate(DENSE, SMALL, H100, 0.8, gamma, batch, 512)
        c, v = e.draft / gamma / e.plain, e.verify / e.plain
        o, o0 = e.overhead / e.plain, e.plain_overhead / e.plain
        assert e.break_even == pytest.approx(theory.break_even_tokens(gamma, c, v, o, o0))
        assert e.speedup == pytest.approx(e.tokens / e.break_even)
        assert e.tokens == theory.expected_tokens(0.8, gamma)
    assert estimate(DENSE, NONE, H100, 0.8, 4).draft == 0
    assert estimate(DENSE, SMALL, H100, None, 4, tau=3.0).tokens == 3.0
    byte = estimate(replace(DENSE, bytes_per_weight=1.0), SMALL, H100, 0.8, 4)
    assert byte.plain < estimate(DENSE, SMALL, H100, 0.8, 4).plain


# The band and what a measurement does to it ----------------------------------------------------------


def test_the_band_contains_the_likely_value_and_gives_the_verdict():
    for batch, alpha in itertools.product([1, 32, 512], [0.2, 0.7, 0.95]):
        e = estimate(DENSE, SMALL, H100, alpha, 4, batch, 512)
        assert e.low < e.speedup < e.high
        assert (e.verdict == "pays") == (e.low > 1.05 and not e.doubts)
        assert (e.verdict == "loses") == (e.high < 0.95)
    assert estimate(DENSE, HEAD, H100, 0.9, 4).verdict == "pays"
    assert estimate(DENSE, SMALL, H100, 0.1, 8, 512).verdict == "loses"
    known = estimate(DENSE, SMALL, H100, 0.7, 4, engine=replace(FITTED, spread=0.0, error=0.0))
    assert known.low == known.high == known.speedup


def test_sizes_cannot_promise_a_gain_where_a_measurement_refuted_them():
    four = replace(H100, gpus=4)
    sure = estimate(DENSE, HEAD, H100, 0.9, 4)
    assert sure.verdict == "pays" and not sure.doubts
    for arguments, words in (
        ((DENSE, SMALL, four, 0.9, 4), "a draft model on several cards"),
        ((DENSE, NONE, H100, 0.9, 4), "from the host"),
        ((MIXTURE, HEAD, H100, 0.9, 4), "mixtures"),
        ((DENSE, HEAD, H100, 0.9, 4, 128), "above 64"),
    ):
        e = estimate(*arguments)
        assert e.verdict == "measure" and words in " ".join(e.doubts)
    long = estimate(DENSE, HEAD, H100, 0.9, 4, 1, 16_384, trained=2048)
    assert long.verdict == "measure" and "2048 tokens" in long.doubts[0]
    own = calibrate(DENSE, SMALL, four, 4, tau=3.0, speedup=1.4)
    assert estimate(DENSE, SMALL, four, None, 4, tau=3.0, engine=own).doubts == ()


def test_a_schedule_falls_and_ends_where_nothing_was_measured():
    for draft in (HEAD, SMALL):
        ranges = schedule(DENSE, draft, H100, 0.7, 512)
        lengths = [gamma for *_, gamma in ranges]
        assert lengths == sorted(lengths, reverse=True) and ranges[-1] == (65, 512, 0)
        assert [later[0] - sooner[1] for sooner, later in zip(ranges, ranges[1:])] == [1, 1, 1]
    assert schedule(DENSE, HEAD, H100, 0.05)[0] == (1, 7, 0), "a bad draft is never used"


def test_a_measured_round_comes_out_as_measured_and_narrows_the_band():
    target, head = MODELS["Llama-3.1-8B"], EAGLE3["Llama-3.1-8B"]
    wide = estimate(target, head, H100, None, 3, 8, 512, tau=2.5)
    for speedup in (1.4, 1.8):
        own = calibrate(target, head, H100, 3, 8, 512, tau=2.5, speedup=speedup)
        at = estimate(target, head, H100, None, 3, 8, 512, tau=2.5, engine=own)
        assert at.speedup == pytest.approx(speedup)
        assert at.high / at.low < wide.high / wide.low
        far = estimate(target, head, H100, None, 3, 64, 512, tau=2.5, engine=own)
        assert far.high / far.low > at.high / at.low, "a band widens away from its measurement"
    assert calibrate(target, head, H100, 3, 8, tau=2.5, speedup=1.4).factor > 1


def test_drafting_begins_to_lose_somewhere_between_two_batches():
    target, draft = MODELS["Qwen3-8B"], SMALL
    first, last = switch_off(target, draft, H100, 0.8, 4, 512)
    assert first and last and last >= 2 * first, "no single batch can be named"
    at = lambda batch: estimate(target, draft, H100, 0.8, 4, batch, 512)
    assert at(first).low < 1 <= at(first - 1).low
    assert at(last).high < 1 <= at(last - 1).high
    assert switch_off(DENSE, NONE, H100, 1.0, 1, largest=8) == (None, None)


# Measured times of passes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relative", "expected"),
    [((1, 4.9, 4.9), 0.402), ((1, 1.8, 2.5), 0.720), ((1, 1.3, 1.2), 1.259)],
)
def test_the_kernel_decides_whether_four_bits_pay(relative, expected):
    """T(k) ÷ T(1) of three versions of one backend, a draft with c = .27, α = .7, γ = 2."""
    rates = {k: k / relative[k - 1] for k in (1, 2, 3)}
    times = bench_times(rates, draft_rate=1 / 0.27)
    e = from_times(times, 0.7, 2)
    assert e.speedup == pytest.approx(expected, abs=0.001)
    assert e.verify / e.plain == pytest.approx(relative[2])
    assert e.low == pytest.approx(0.85 * e.speedup) and e.high == pytest.approx(1.15 * e.speedup)


# The interactive -------------------------------------------------------------------------------------


def setting(target: Network, draft: Network, gamma: int, batch: int, context: int, gpus=1) -> dict:
    """Return the setting in the form that the module reads."""
    about = {"target": target, "draft": draft, "machine": replace(H100, gpus=gpus)}
    numbers = {"gamma": gamma, "batch": batch, "context": context}
    return {name: asdict(value) for name, value in about.items()} | numbers


def test_the_interactive_computes_the_same_costs():
    points = list(itertools.product([1, 4, 16], [1, 64, 256], [0, 4096], [1, 2]))
    pairs = ((DENSE, SMALL), (MIXTURE, NONE), (DENSE, replace(HEAD, block=True)))
    for target, draft in pairs:
        for engine in (FITTED, replace(FITTED, factor=1.7, batch=8)):
            cases = [(setting(target, draft, *p), asdict(engine), 1.9) for p in points]
            results = evaluate("payoff", "estimate", cases)
            for (gamma, batch, context, gpus), given in zip(points, results):
                card = replace(H100, gpus=gpus)
                expected = estimate(
                    target, draft, card, None, gamma, batch, context, tau=1.9, engine=engine
                )
                names = ("draft", "verify", "overhead", "round", "step", "speedup", "low", "high")
                for name in names:
                    assert given[name] == pytest.approx(getattr(expected, name), rel=1e-9), name


def test_the_interactive_calibrates_and_switches_off_as_python_does():
    at = setting(DENSE, HEAD, 3, 8, 512)
    own = calibrate(DENSE, HEAD, H100, 3, 8, 512, tau=2.5, speedup=1.5)
    cases = [(at, asdict(FITTED), 2.5, speedup) for speedup in (1.5, 2.4)]
    given, none = evaluate("payoff", "calibrate", cases)
    alone = setting(DENSE, SMALL, 4, 1, 512)
    batches = formula("payoff", "switchOff", alone, asdict(FITTED), 2.0)
    assert given["factor"] == pytest.approx(own.factor) and given["batch"] == own.batch == 8
    assert none is None, "the passes alone cost more than this round"
    assert tuple(batches) == switch_off(DENSE, SMALL, H100, None, 4, 512, tau=2.0)


def test_costs_take_arrays_so_that_a_fit_runs_them_once():
    batches = np.array([1.0, 8.0, 64.0])
    rows = costs(DENSE, HEAD, H100, np.array([3.0, 3.0, 3.0]), batches, 512.0)
    for i, batch in enumerate((1, 8, 64)):
        one = costs(DENSE, HEAD, H100, 3, batch, 512.0)
        assert [np.broadcast_to(row, 3)[i] for row in rows] == pytest.approx(one)
