"""Costs of passes and rounds, and facts about the machine. No test asserts a time."""

import math
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch
from drafted_rows import Scripted
from models_zoo import Wrapped, native, perturbed

from specdec_lite import CausalLM, speculation, timing
from specdec_lite.drafters import ModelDrafter
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.measure import clocks, machine, stamps
from specdec_lite.measure.timing import Costs, interleaved, measure_costs
from specdec_lite.proposal import Proposal
from specdec_lite.tree import TokenTree

MEASURED_BANDWIDTH = machine._bandwidth  # before the fixture of conftest.py replaces it

CPU = torch.device("cpu")


def test_jobs_alternate_and_the_warm_up_is_discarded(monkeypatch):
    clock, order = [0.0], []
    monkeypatch.setattr(speculation, "perf_counter", lambda: clock[0])

    def job(name, seconds):
        def work():
            order.append(name)
            clock[0] += seconds.pop(0)

        return work

    medians = interleaved(
        {"a": job("a", [99.0, 1.0, 5.0, 2.0]), "b": job("b", [99.0, 10.0, 30.0, 20.0])},
        CPU,
        repeats=3,
        warmup=1,
    )
    assert medians == {"a": 2.0, "b": 20.0} and order == ["a", "b"] * 4


@pytest.mark.parametrize("kind", [lambda model: model, lambda model: StaticLM(model, 64, (1, 5))])
def test_every_cost_measures_the_passes_in_its_name(monkeypatch, kind):
    """Each timed job makes the passes of its name; a draft pass in the loop is a share of a round's
    drafting. With static shapes every additional cache would be captured and stored.
    """
    target = kind(native(dtype=torch.float32))
    draft = kind(native(dtype=torch.float32, num_layers=1))
    passes = {}
    decoded = []
    score = CausalLM.score

    def clocked(jobs, device):
        for name, job in jobs.items():
            seen = passes.setdefault(name, [])
            with monkeypatch.context() as patch:
                patch.setattr(
                    CausalLM,
                    "score",
                    lambda self, tokens, *others, **options: (
                        seen.append((self, tokens.shape[-1]))
                        or score(self, tokens, *others, **options)
                    ),
                )
                job()
        return {1: 10.0, 5: 12.0, "draft": 2.0}

    def decode(model, prompt, drafter, new_tokens, temperature, stop_token_ids, seed):
        decoded.append((model, prompt.tolist(), new_tokens, temperature))
        rounds = [
            SimpleNamespace(tree="four", drafting=12.0, draft_passes=4, other=1.0, seconds=25.0),
            SimpleNamespace(tree="1", drafting=5.0, draft_passes=1, other=3.0, seconds=20.0),
            SimpleNamespace(tree="", drafting=0.0, draft_passes=0, other=1.0, seconds=11.0),
        ]
        return SimpleNamespace(steps=rounds)

    monkeypatch.setattr("specdec_lite.measure.timing.interleaved", clocked)
    monkeypatch.setattr("specdec_lite.measure.timing.generate", decode)
    costs = measure_costs(
        target,
        ModelDrafter(draft, 4),
        ks=(1, 5),
        context=8,
        prompt=[3, 1, 4],
        temperature=0.5,
        new_tokens=24,
    )
    assert passes == {1: [(target, 1)], 5: [(target, 5)], "draft": [(draft, 1)]}
    assert costs == Costs({1: 10.0, 5: 12.0}, draft=2.0, draft_in_loop=4.0, overhead=1.0, round=8.5)
    assert decoded[1:] == [(target, [3, 1, 4], 24, 0.5)] * 3
    if isinstance(target, StaticLM):
        for model, sizes in ((target, {1, 5}), (draft, {1})):
            ((slot,),) = model.backend.free.values()
            assert {size for size, *_ in slot.programs} == sizes


repeat = lambda context: Proposal(TokenTree.chain([int(context.tokens[-1])] * 3))
COSTS = {
    "none": (lambda target: None, {"draft", "draft_in_loop", "overhead", "round"}),
    "a draft model": (lambda target: ModelDrafter(perturbed(target), 2), set()),
    "a smaller vocabulary": (lambda target: ModelDrafter(native(vocab_size=32), 2), set()),
    "a wrapped draft model": (
        lambda target: Wrapped(ModelDrafter(perturbed(target), 2)),
        {"draft"},
    ),
    "no model and no limits": (lambda target: Scripted(repeat), {"draft", "draft_in_loop"}),
}
"""Drafters, and the costs that they do not have."""


@pytest.mark.parametrize("name", COSTS)
def test_costs_are_positive_seconds_by_number_of_tokens(name):
    make, absent = COSTS[name]
    target, options = native(), dict(ks=(1, 3, 9), context=8, prompt=[1, 2, 3], new_tokens=8)
    costs = asdict(measure_costs(target, make(target), **options))
    passes = costs.pop("target")
    assert set(passes) == {1, 3, 9} and {each for each in costs if costs[each] is None} == absent
    seconds = [*passes.values(), *(costs[each] for each in costs if each not in absent)]
    assert all(math.isfinite(each) and each > 0 for each in seconds)
    assert costs["draft_in_loop"] is None or costs["draft_in_loop"] <= costs["round"]


def test_round_costs_weight_the_medians_of_tree_sizes():
    def rounds(nodes, seconds):
        return [
            SimpleNamespace(tree=range(nodes), drafting=2 * s, verifying=s, other=s / 2)
            for s in seconds
        ]

    steps = rounds(4, [4.0, 6.0, 900.0]) + rounds(0, [2.0] * 3)
    costs = timing.round_costs(steps, 2.0)  # (6 + 2) / 2 seconds, in units of T(1) = 2
    assert costs == timing.RoundCosts(draft=4.0, verify=2.0, other=1.0) and costs.total == 7.0


def test_a_pass_over_a_tree_feeds_its_root(monkeypatch):
    target = native()
    tree = TokenTree([1, 2, 3], [-1, -1, 0])
    fed = []
    score = target.backend.score
    monkeypatch.setattr(
        target.backend,
        "score",
        lambda inputs: fed.append((inputs.count, inputs.tree)) or score(inputs),
    )
    job = timing.pass_job(target, torch.tensor([3, 1, 4]), tree)
    job()
    job()
    assert fed == [(3, None), (4, tree), (4, tree)]


def test_pass_times_feed_k_tokens_in_every_row_and_reserve_one_cache_per_batch(monkeypatch):
    """With static shapes every additional cache would be captured and stored."""
    target, fed, batches = native(dtype=torch.float32), [], []
    score, new_cache = target.score, target.new_cache

    def recording(tokens, cache, **options):
        fed.append((tuple(tokens.shape), cache.length))
        return score(tokens, cache, **options)

    reserving = lambda *sizes, **more: batches.append(sizes[0]) or new_cache(*sizes, **more)
    monkeypatch.setattr(target, "score", recording)
    monkeypatch.setattr(target, "new_cache", reserving)
    times = timing.pass_times(target, (1, 3, 40), 8, batches=(1, 2), repeats=2)
    assert batches == [1, 2] and set(times) == {(b, k) for b in (1, 2) for k in (1, 3, 40)}
    assert {shape for shape, length in fed if length == 8} == set(times)
    assert {length for _, length in fed} == {0, 8}, "every pass starts from the same context"


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


def test_cache_size_is_bytes_or_unknown():
    size = timing.cache_bytes()
    assert size is None or size >= 1 << 14


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_timed_with_its_events():
    a = torch.randn(512, 512, device="cuda")
    assert timing.spreads({"product": lambda: a @ a}, a.device, repeats=3)["product"].median > 0


def test_the_state_and_versions_of_a_gpu_are_recorded(monkeypatch):
    """The versions contain driver, CUDA and cuDNN; the state contains clocks and power."""
    commands = []

    def answer(command, **_):
        commands.append(command)
        fields = command[-1].removeprefix("--query-gpu=").split(",")
        return SimpleNamespace(stdout=", ".join(f"{field} is 1" for field in fields) + "\n")

    card = SimpleNamespace(uuid="1234")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Toy")
    monkeypatch.setattr(stamps, "commit", lambda: "1a2b3c4")
    monkeypatch.setattr(stamps.subprocess, "run", answer)
    state = timing.machine_state("cuda")["gpu"]
    assert state["clocks.sm"] == "clocks.sm is 1" and set(state) == set(machine.GPU_STATE)
    versions = stamps.stamp("a test", "none", "cuda")["versions"]
    assert versions["driver"] == "driver_version is 1" and {"cuda", "cudnn"} < set(versions)
    assert all(command[1] == "--id=GPU-1234" for command in commands)

    def is_missing(command, **_):
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(stamps.subprocess, "run", is_missing)
    assert timing.machine_state("cuda")["gpu"] is None
    assert stamps.versions_here("cuda")["driver"] == "unknown"
    assert "gpu" not in timing.machine_state() and "driver" not in stamps.versions_here("cpu")


def test_machine_state_reads_load_threads_and_cores(monkeypatch):
    monkeypatch.setattr(machine.os, "getloadavg", lambda: (3.0, 2.0, 1.0), raising=False)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda process: {5, 2}, raising=False)
    state = timing.machine_state()
    assert state == {
        "load_average": [3.0, 2.0, 1.0],
        "threads": torch.get_num_threads(),
        "pins": [2, 5],
    }
    monkeypatch.delattr(machine.os, "getloadavg")
    monkeypatch.delattr(machine.os, "sched_getaffinity")
    assert timing.machine_state()["load_average"] is timing.machine_state()["pins"] is None


@pytest.mark.slow
def test_the_bandwidth_of_the_memory_is_measured():
    assert MEASURED_BANDWIDTH(torch.device("cpu")) > 0


def test_a_machine_profile_is_complete():
    profile = machine.machine_profile("cpu")
    assert {"device", "threads", "cores", "bandwidth", "throughput", "versions"} <= set(profile)
    assert isinstance(profile["device"], str) and profile["device"]
    assert profile["versions"]["torch"] == torch.__version__
    assert set(profile["throughput"]) == {"float32", "bfloat16"}
    assert all(rate > 0 for rate in profile["throughput"].values())


def test_rates_are_work_per_second(monkeypatch):
    monkeypatch.setattr(
        machine, "interleaved", lambda jobs, device, repeats: {name: 0.5 for name in jobs}
    )
    assert [timing.read_bandwidth(size) for size in (32 << 20, 1 << 20)] == [64 << 20, 32 << 20]
    assert machine._throughput(CPU, torch.float32, 8) == 4 * 8**3
