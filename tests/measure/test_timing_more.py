"""Clocks, times of passes, and the closed forms of the roofline. No test asserts a time."""

import pytest
import torch

from specdec_lite import CausalLM, roofline, timing
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.measure import clocks

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> CausalLM:
    config = TransformerConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_size=8,
        max_positions=64,
    )
    return CausalLM(Transformer(config))


def test_spreads_are_medians_and_quartiles_of_the_samples(monkeypatch):
    readings = iter([9.0, 9.0, 9.0, 5.0, 1.0, 3.0, 2.0, 4.0])
    monkeypatch.setattr(clocks, "clocked", lambda job, device: next(readings))
    spread = timing.spreads({"job": lambda: None}, CPU, repeats=5, warmup=3)["job"]
    assert (spread.low, spread.median, spread.high) == (2.0, 3.0, 4.0)
    monkeypatch.setattr(clocks, "clocked", lambda job, device: 7.0)
    assert timing.spreads({"job": lambda: None}, CPU, repeats=1, warmup=0)["job"] == timing.Spread(
        7.0, 7.0, 7.0
    )
    assert timing.interleaved({"job": lambda: None}, CPU, repeats=4) == {"job": 7.0}


def test_a_budget_stops_after_one_repetition_at_least(monkeypatch):
    monkeypatch.setattr(clocks, "clocked", lambda job, device: 1.0)
    assert timing.samples({"a": None, "b": None}, CPU, repeats=50, warmup=1, budget=0.0) == {
        "a": [1.0],
        "b": [1.0],
    }
    assert len(timing.samples({"a": None}, CPU, repeats=50, warmup=1, budget=1e9)["a"]) == 50


def test_pass_times_feed_k_tokens_in_every_row(model, monkeypatch):
    fed, score = [], model.score

    def recording(tokens, cache, **options):
        fed.append((tuple(tokens.shape), cache.length))
        return score(tokens, cache, **options)

    monkeypatch.setattr(model, "score", recording)
    times = timing.pass_times(model, ks=(1, 3, 40), context=8, batches=(1, 2), repeats=2)
    assert set(times) == {(b, k) for b in (1, 2) for k in (1, 3, 40)}
    assert {shape for shape, length in fed if length == 8} == {
        (b, k) for b in (1, 2) for k in (1, 3, 40)
    }
    assert {length for _, length in fed} == {0, 8}, "every pass starts from the same context"


def test_cache_size_is_bytes_or_unknown():
    size = timing.cache_bytes()
    assert size is None or size >= 1 << 14


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_timed_with_its_events():
    a = torch.randn(512, 512, device="cuda")
    assert timing.spreads({"product": lambda: a @ a}, a.device, repeats=3)["product"].median > 0


# The closed forms ---------------------------------------------------------------------------------


def test_a_worked_example_of_seventy_billion_parameters():
    reading, computing = roofline.pass_seconds(70e9, 2, 2e12, 312e12)
    assert reading == pytest.approx(0.070) and computing == pytest.approx(0.000449, abs=1e-6)
    assert computing / reading == pytest.approx(0.0064, abs=5e-5)
    assert roofline.pass_bytes(70e9, 2) == 140e9


@pytest.mark.parametrize("width", [0.5, 1, 2, 4])
def test_reading_and_computing_take_equally_long_at_the_ridge(width):
    ridge = roofline.ridge_tokens(width, 8e11, 2e14)
    reading, computing = roofline.pass_seconds(1e9, width, 8e11, 2e14, tokens=ridge)
    assert reading == pytest.approx(computing)
    assert roofline.arithmetic_intensity(width, tokens=ridge) == pytest.approx(2e14 / 8e11)


def test_intensity_is_operations_per_byte_for_any_size():
    for size in (1e6, 1e9):
        ratio = roofline.pass_operations(size, 5, 3) / roofline.pass_bytes(size, 2, 3)
        assert ratio == pytest.approx(roofline.arithmetic_intensity(2, 5, 3))


def test_bytes_of_caches_grow_with_the_batch_not_with_tokens():
    assert (
        roofline.pass_bytes(1e9, 2, batch=8, cache_bytes=1e8)
        - roofline.pass_bytes(1e9, 2, batch=1, cache_bytes=1e8)
        == 7e8
    )
    one, many = (
        roofline.pass_seconds(1e9, 2, 1e12, 1e14, tokens=k, cache_bytes=1e8) for k in (1, 8)
    )
    assert one[0] == many[0] and many[1] == pytest.approx(8 * one[1])
