"""Clocks: medians of jobs that take turns. No test here says how long anything takes."""
import math

import pytest
import torch
from models_zoo import native, perturbed

from specdec_lite import speculation, timing
from specdec_lite.drafters import ModelDrafter
from specdec_lite.timing import Costs, interleaved, machine_profile, measure_costs

CPU = torch.device("cpu")


def test_jobs_take_turns_and_the_warm_up_is_thrown_away(monkeypatch):
    clock, order = [0.0], []
    monkeypatch.setattr(speculation, "perf_counter", lambda: clock[0])

    def job(name, seconds):
        def work():
            order.append(name)
            clock[0] += seconds.pop(0)
        return work

    taken = interleaved({"a": job("a", [99.0, 1.0, 5.0, 2.0]), "b": job("b", [99.0, 10.0, 30.0, 20.0])}, CPU, repeats=3, warmup=1)
    assert taken == {"a": 2.0, "b": 20.0} and order == ["a", "b"] * 4


def test_costs_are_seconds_by_number_of_tokens():
    target = native(dtype=torch.float32)
    alone = measure_costs(target, ks=(1, 3), context=8)
    assert set(alone.target) == {1, 3} and alone.draft is alone.draft_in_loop is alone.overhead is None
    costs = measure_costs(target, ModelDrafter(perturbed(target), 2), ks=(1, 3, 9), context=4, new_tokens=8)
    assert isinstance(costs, Costs) and set(costs.target) == {1, 3, 9}
    assert all(math.isfinite(s) and s > 0 for s in (*costs.target.values(), costs.draft, costs.draft_in_loop, costs.overhead))


def test_costs_with_a_draft_of_a_smaller_vocabulary_and_a_given_prompt():
    costs = measure_costs(native(), ModelDrafter(native(vocab_size=32), 2), ks=(1,), context=8, prompt=[1, 2, 3], new_tokens=8)
    assert costs.draft > 0 and costs.draft_in_loop > 0


@pytest.mark.parametrize("arguments", [dict(ks=()), dict(ks=(0,)), dict(ks=(1,), context=0)])
def test_bad_costs_are_refused(arguments):
    with pytest.raises(ValueError, match="ks=.*context=.*must be ≥ 1"):
        measure_costs(native(), **arguments)


def test_a_machine_profile_is_measured_and_complete(monkeypatch):
    monkeypatch.setattr(timing, "_bandwidth", lambda device: 1e9)
    profile = machine_profile("cpu")
    assert {"device", "threads", "cores", "bandwidth", "throughput", "versions"} <= set(profile)
    assert isinstance(profile["device"], str) and profile["device"] and profile["versions"]["torch"] == torch.__version__
    assert set(profile["throughput"]) == {"float32", "bfloat16"} and all(rate > 0 for rate in profile["throughput"].values())


def test_rates_are_work_over_seconds(monkeypatch):
    monkeypatch.setattr(timing, "interleaved", lambda jobs, device, repeats: {name: 0.5 for name in jobs})
    assert timing.read_bandwidth([32 << 20]) == {32 << 20: 64 << 20} and timing._throughput(CPU, torch.float32, 8) == 4 * 8**3
