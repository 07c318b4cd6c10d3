"""Run the recording of batches at toy size. The tests assert no time."""

import json
from types import SimpleNamespace

import torch
from models_zoo import native, perturbed

from benchmarks import serving
from benchmarks.experiment import execute
from specdec_lite.loading.pairs import Pair


def toy():
    target = native(num_layers=1, max_positions=64)
    pair = Pair(target, perturbed(target), None)
    rng = torch.Generator().manual_seed(0)
    prompts = [torch.randint(48, (count,), generator=rng) for count in (3, 7, 5)]
    models = {"pair": lambda: pair.target, "draft": lambda: pair.draft}
    return serving.Plan(pair, prompts, models, (1, 2), (1, 3), gammas=(2,), context=8)


def test_it_records_tables_and_gains(tmp_path, monkeypatch):
    monkeypatch.setattr(serving.BatchSpeed, "make", lambda self: toy())
    ask = "--turns 2 --minutes 0.01 --batches 1 4 --new-tokens 9 --temperatures 0".split()
    out = ["--out", str(tmp_path / "serving.json"), "--work", str(tmp_path / "work")]
    data = json.loads(execute(serving.BatchSpeed, [*ask, *out]).read_text(encoding="utf-8"))
    assert [row["batch"] for row in data["gains"]] == [1, 4]
    for row in data["gains"]:
        assert 1 <= row["minimum"] <= row["own"] <= 3
    assert data["gains"][0]["minimum"] == data["gains"][0]["own"], "a single row is the minimum"


def test_the_minimum_counts_rounds_that_contain_all_rows():
    step = lambda count: SimpleNamespace(tokens=[0] * count)
    outputs = [
        SimpleNamespace(steps=[step(3), step(1), step(2)]),
        SimpleNamespace(steps=[step(1), step(2)]),
    ]
    assert serving.tokens_per_pass(outputs) == (7 / 4, 1.0)


def test_the_first_turn_is_a_warm_up_and_a_used_budget_ends_the_turns():
    calls = []
    data = serving.medians({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 0.0)
    assert calls == ["a", "b"] * 2 and all(seconds >= 0 for seconds in data.values())
