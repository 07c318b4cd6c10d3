"""Run the speed benchmark on toy models, and test its intervals, its flags and resuming.

No test asserts how fast anything is.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from models_zoo import native, perturbed, shipped
from scipy import stats

from benchmarks import decoding, speed
from benchmarks.hugging_face import HuggingFace
from specdec_lite import generate
from specdec_lite.contract import Drafter, Session
from specdec_lite.loading.pairs import SHIPPED, Pair
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.tree import TokenTree


class Repeat(Drafter, Session):
    """A drafter without a model: two guesses for the next token, one of them with a child."""

    def start(self, context):
        return self

    def propose(self, context):
        if len(context.tokens) % 3 == 0:
            return NOTHING
        last = int(context.tokens[-1])
        return Proposal(TokenTree([last, (last + 1) % context.vocab_size, last], [-1, -1, 0]))


REGISTRY = {
    "speculative": speed.DRAFTERS["speculative"],
    "block_verification": speed.DRAFTERS["block_verification"],
    "repeat": lambda pair, gamma: Repeat(),
}


def load(dtype):
    target = native(dtype=getattr(torch, dtype), num_layers=1, max_positions=160)
    return Pair(target, perturbed(target), None)


def bursts(ids, new_tokens, temperature, seed, assisted):
    return [(0.01 * (i + 1), 1) for i in range(new_tokens)]


def toy():
    rng = torch.Generator().manual_seed(0)
    rows = lambda: [torch.randint(48, (5,), generator=rng) for _ in range(2)]
    return speed.Bench(
        load=load,
        prompts={domain: rows() for domain in ("code", "data", "prose")},
        gammas=(3, 2),
        dtypes=("float32", "bfloat16"),
        new_tokens=6,
        turns=4,
        least=2,
        drafters=REGISTRY,
        others={
            "hf_plain": speed.Other(bursts, False, "plain"),
            "hf_assisted": speed.Other(bursts, True, "speculative"),
        },
    )


@pytest.fixture(scope="module")
def rows():
    """The rows of all settings of the toy models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.getloadavg", lambda: (1.5, 1.0, 0.5), raising=False)
        return [speed.measure(toy(), setting) for setting in toy().settings]


def test_the_machine_state_is_recorded_for_every_setting(rows):
    assert len(rows) == 12
    for state in (row["state"] for row in rows):
        assert {*state} == {"start", "end"}
        for now in state.values():
            assert now["load_average"] == [1.5, 1.0, 0.5]
            assert now["threads"] == torch.get_num_threads() and "pins" in now
    assert all({*row["target_seconds"]} == {"start", "end", "rounds"} for row in rows)


def test_every_contender_is_recorded(rows):
    for row in rows:
        other = {"float32": "bfloat16", "bfloat16": "float32"}[row["dtype"]]
        names = {"plain", f"plain {other}", "speculative", "speculative γ=2", "repeat"}
        names |= {"repeat γ=2"}  # its limits are unknown, so both γ are timed
        if row["temperature"]:
            names |= {"block_verification", "block_verification γ=2"}
        if row["dtype"] == "float32":
            names |= {"hf_plain", "hf_assisted"}
            assert {"over_hf_plain", "over_hf_assisted"} <= {*row}
        assert {*row["tokens_per_second"]} == {*row["latency"]} == names
        assert row["best_plain"] in ("plain", f"plain {other}")
        assert (row["turns"], row["sweeps"]) == (4, 2)
        assert {"speculative", *row["drafters"]} == {n for n in names if n[:2] not in ("pl", "hf")}


def test_speeds_follow_from_the_recorded_runs(rows):
    for row in rows:
        for name, prompts in row["runs"].items():
            runs = [run.split(",") for prompt in prompts for run in prompt.split()]
            assert len(runs) == row["turns"]
            pace = sum(float(us) / float(tokens) for us, tokens, _ in runs) / len(runs)
            assert 1e6 / pace == pytest.approx(row["tokens_per_second"][name], rel=1e-2)


def test_a_drafter_without_limits_has_all_entries(rows):
    for row in rows:
        for entry in (row, *row["drafters"].values()):
            low, high = entry["tau"]["interval"]
            assert 1 <= low <= entry["tau"]["value"] <= high <= entry["levels"] + 1
            assert entry["ceiling"]["value"] > 0 and isinstance(entry["flags"], list)
            guess = entry["prediction"]
            assert guess["verify"] > 0 and guess["verify_alone"] > 0 and guess["corrected"] > 0
        repeat = row["drafters"]["repeat"]
        assert (repeat["levels"], repeat["nodes"]) == (2, 3)
        assert repeat["alpha"] is repeat["prediction"]["plain"] is None  # a tree
        assert repeat["prediction"]["c"] == repeat["prediction"]["c_in_loop"]
        assert (row["levels"], row["nodes"], row["gamma"]) == (3, 3, 3)
        assert 0 <= row["alpha"]["value"] <= 1
        if row["temperature"]:
            assert row["drafters"]["block_verification"]["alpha"] is None


@pytest.mark.parametrize("name", speed.DRAFTERS)
def test_every_registered_drafter_works_for_any_gamma(name):
    pair = shipped()
    for gamma in (1, 9):
        drafter = speed.DRAFTERS[name](pair, gamma)
        out = generate(pair.target, [1, 2, 3], drafter, 4)
        assert len(out.tokens) == 4
    assert {*speed.RULES} < {*speed.DRAFTERS}


def test_a_drafter_with_equal_limits_at_two_gammas_runs_once(monkeypatch):
    bench = speed.Bench(
        load=lambda dtype: shipped(), prompts={}, dtypes=("float32",), gammas=(4, 2, 8)
    )
    every = speed.contenders(bench, speed.Setting("float32", "code", 1.0))
    names = {name for name in every if name.startswith(("medusa", "speculative"))}
    assert names == {
        "speculative",
        "speculative γ=2",
        "speculative γ=8",
        "medusa_chain",
        "medusa_chain γ=2",
        "medusa_dense",
        "medusa_sparse",
    }
    assert every["block_verification γ=8"].rule is speed.block_verification


# Turns ---------------------------------------------------------------------------------------------


def recording_contenders(names):
    calls = []

    def contender(name):
        return SimpleNamespace(run=lambda ids, seed: calls.append((name, int(ids), seed)))

    return {name: contender(name) for name in names}, calls


def test_turns_are_paired_and_in_random_order():
    every, calls = recording_contenders("abc")
    bench = SimpleNamespace(turns=20, least=1, seed=0)
    runs = speed.take_turns(every, [torch.tensor(7), torch.tensor(8), torch.tensor(9)], bench)
    assert all(len(row) == 7 for rows in runs.values() for row in rows)  # 21 turns: whole sweeps
    turns = [calls[i : i + 3] for i in range(0, len(calls), 3)]
    for turn in turns:
        assert sorted(name for name, *_ in turn) == ["a", "b", "c"]
        assert len({about for _, *about in turn for about in [tuple(about)]}) == 1
    assert len({(ids, seed) for _, ids, seed in calls}) == 21
    assert {turn[0][0] for turn in turns} == {"a", "b", "c"}
    again, repeated = recording_contenders("abc")
    speed.take_turns(again, [torch.tensor(7), torch.tensor(8), torch.tensor(9)], bench)
    assert repeated == calls


def test_a_deadline_leaves_the_least_number_of_turns():
    every, calls = recording_contenders("a")
    bench = SimpleNamespace(turns=20, least=5, seed=0)
    speed.take_turns(every, [torch.tensor(1), torch.tensor(2)], bench, deadline=0.0)
    assert len(calls) == 6


@pytest.mark.slow
def test_hugging_face_reports_its_bursts():
    decode = HuggingFace(SHIPPED / "target", "float32", SHIPPED / "draft", 3)
    for assisted in (False, True):
        emitted = decode(torch.arange(1, 9), 12, 0.0, 0, assisted)
        times, counts = zip(*emitted)
        assert sum(counts) == 12 and list(times) == sorted(times) and times[0] > 0
        assert len(counts) == 12 if not assisted else len(counts) < 12


def test_bursts_without_rounds_are_timed_after_the_first():
    decode = lambda *about: [(2.0, 3), (2.5, 1), (4.0, 4)]
    result = speed.theirs(decode, 8, 0.0, True)(torch.tensor([1]), 0)
    assert result == speed.Run(seconds=2.0, tokens=5, first=2.0, gaps=(0.5, 1.5))


# Intervals and flags -------------------------------------------------------------------------------


PROMPTS, SWEEPS, SETS = 12, 8, 300
LEAST_COVERED = 243
"""Of 300 intervals that cover with probability .9, fewer than this with probability 1e-6."""


def covered(interval):
    """Count the intervals, out of SETS, that contain the true ratio 2.

    Seconds vary by prompt and by turn; the ratio varies by prompt.
    """
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(SETS):
        length = rng.lognormal(0, 0.3, (PROMPTS, 1))
        gain = rng.lognormal(-0.5 * 0.25**2, 0.25, (PROMPTS, 1))
        noise = rng.lognormal(-0.5 * 0.05**2, 0.05, (2, PROMPTS, SWEEPS))
        low, high = interval(2 * length * gain * noise[0], length * noise[1])
        hits += low <= 2 <= high
    return hits


@pytest.mark.statistical(rate=1e-6)
def test_intervals_cover_at_the_rate_they_state():
    def clustered(over, under):
        return speed.estimate(lambda a, b: a / b, over, under, resamples=400)["interval"]

    def by_turn(over, under):  # treats turns of one prompt as independent
        return clustered(over.reshape(-1, 1), under.reshape(-1, 1))

    assert stats.binom.cdf(LEAST_COVERED - 1, SETS, 0.9) < 1e-6
    assert covered(clustered) >= LEAST_COVERED > covered(by_turn)


def test_an_estimate_is_paired_and_of_sums():
    over = np.array([[1.0, 3.0], [20.0, 40.0], [5.0, 7.0]])
    result = speed.ratio(2 * over, over)
    assert result["value"] == 2 and result["interval"] == pytest.approx([2, 2])
    assert speed.ratio([[1.0], [8.0]], [[1.0], [2.0]])["value"] == 3
    assert speed.ratio([[0.0]] * 3, [[0.0]] * 3) == {"value": None, "interval": None}
    assert speed.ratio([[1.0], [2.0]], [[0.0], [1.0]])["interval"][0] == 2
    assert result == speed.ratio(2 * over, over)


@pytest.mark.parametrize(
    "excess, one, reasons",
    [
        ((0.9, 1.1), (1.0, 1.0), []),
        ((1.01, 1.1), (1.0, 1.0), ["speedup 2.20 above its ceiling τ ÷ v = 2.00"]),
        ((0.9, 1.0), (1.0, 1.19), []),
        ((0.9, 1.0), (1.0, 1.3), ["T(1) moved by 30 %"]),
        ((0.9, 1.0), (1.3, 1.0), ["T(1) moved by 30 %"]),
        (
            (1.2, 1.3),
            (1.0, 2.0),
            ["speedup 2.20 above its ceiling τ ÷ v = 2.00", "T(1) moved by 100 %"],
        ),
    ],
)
def test_flags_state_why_a_speedup_is_wrong(excess, one, reasons):
    speedup = {"value": 2.2, "interval": [2.0, 2.4]}
    ceiling = {"value": 2.0, "interval": [1.9, 2.1]}
    assert speed.flags(speedup, ceiling, {"value": 1.1, "interval": list(excess)}, one) == reasons


def fake_step(verifying, drafting=0.0, other=0.1, nodes=0, tokens=1):
    return SimpleNamespace(
        tokens=(0,) * tokens,
        tree=TokenTree.chain([0] * nodes),
        accepted=tokens - 1,
        tested=nodes,
        verifying=verifying,
        drafting=drafting,
        other=other,
        seconds=verifying + drafting + other,
    )


def figures(plain, drafted, prompts=3, sweeps=2):
    """Return a drafter's entry if every run has these rounds and T(1) is 1 s before and after."""
    every = {"plain": speed.Contender(None), "free": speed.Contender(None, Repeat(), "free", 4)}
    runs = {
        name: [
            [
                speed.Run(
                    seconds=sum(step.seconds for step in steps),
                    tokens=sum(len(step.tokens) for step in steps),
                    first=1.0,
                    gaps=(1.0,),
                    steps=tuple(steps),
                )
                for _ in range(sweeps)
            ]
            for _ in range(prompts)
        ]
        for name, steps in (("plain", plain), ("free", drafted))
    }
    alone = {("one", ""): 1.0, ("tree", "free"): 1.5}
    return speed.Figures(every, runs, alone, alone).explain("free")


def test_a_speedup_follows_from_its_rounds_and_is_below_its_ceiling():
    result = figures(
        plain=[fake_step(1.0)] * 6,
        drafted=[fake_step(1.25, drafting=0.25, other=0.1, nodes=2, tokens=3)] * 2,
    )
    assert result["speedup"]["value"] == pytest.approx(1.1 * 3 / 1.6)
    assert result["ceiling"]["value"] == pytest.approx(3 * 1.1 / 1.25) and result["flags"] == []
    guess = result["prediction"]
    assert guess["corrected"] == pytest.approx(3 / 1.6) and guess["verify"] == 1.25
    assert guess["c_in_loop"] == guess["c"] == 0.125 and guess["verify_alone"] == 1.5
    assert result["share"]["verifying"] == pytest.approx(1.25 / 1.6)
    assert result["alpha"]["value"] == result["tau"]["value"] / 3 == 1


def test_a_free_draft_in_an_undisturbed_run_reaches_its_ceiling():
    result = figures(
        plain=[fake_step(1.0)] * 3, drafted=[fake_step(1.3, other=0.0, nodes=2, tokens=3)]
    )
    assert result["speedup"]["value"] == pytest.approx(result["ceiling"]["value"])
    assert result["flags"] == []


def test_a_disturbed_plain_run_is_flagged():
    slow = [fake_step(1.0)] * 5 + [fake_step(9.0)]
    result = figures(plain=slow, drafted=[fake_step(1.2, nodes=2, tokens=3)] * 2)
    (reason,) = result["flags"]
    assert "above its ceiling" in reason
    cells = decoding.drafter_cells(result)
    assert cells[:2] == [reason, "–"]
    assert decoding.drafter_cells(result | {"flags": []})[0].startswith(
        f"{result['speedup']['value']:.2f}"
    )
