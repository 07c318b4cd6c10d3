"""Test how far a rule moves the target's distribution, against enumeration, and its recording."""

import json

import pytest
import torch
from boards import Bytes
from models_zoo import native, perturbed

from benchmarks import scoreboard_counts
from benchmarks.experiment import execute
from benchmarks.rule_drift import RuleDrift, drift, first_token_distribution, lossy_rules
from specdec_lite import acceptance as a
from specdec_lite.loading.pairs import Pair
from specdec_lite.texts.benchmark_prompts import KINDS

TARGET = native(dtype=torch.float32)


def flattened(row):
    """Recover from p instead of the residual, a published mistake."""
    return a.walk(a.ratio, lambda p, q: p)(*row)


@pytest.mark.parametrize(
    "rule",
    [
        a.speculative_sampling,
        a.rejection_sampling,
        a.lenient(0.6),
        a.lenient_scaled(0.6),
        a.lenient_argmax(0.6),
        a.typical(),
        a.top_k_match(2),
        a.distance_match(1),
    ],
    ids=lambda rule: rule.name,
)
def test_the_first_token_distribution_matches_enumeration(rule):
    dice = torch.Generator().manual_seed(0)
    row = lambda: torch.randn(5, generator=dice, dtype=torch.float64).mul(1.5).softmax(0)
    for _ in range(20):
        p, q = row(), row()
        probs = first_token_distribution(p, q, rule)
        assert probs == pytest.approx(a.output_distribution(p, q, rule), abs=1e-12)


def test_drift_is_zero_for_a_lossless_rule_and_not_for_a_broken_one():
    p, q = (torch.tensor(row, dtype=torch.float64) for row in ([0.5, 0.3, 0.2], [0.3, 0.5, 0.2]))
    broken = lambda *row: flattened(row)
    assert first_token_distribution(p, q, a.speculative_sampling) == pytest.approx(p, abs=1e-12)
    wrong = first_token_distribution(p, q, broken)
    assert (wrong - p).abs().sum() / 2 == pytest.approx(0.1)  # .2 of mass back on p, not on A
    pair = Pair(TARGET, perturbed(TARGET), None)
    ids = torch.arange(24) % TARGET.vocab_size
    (right,) = drift(pair, a.speculative_sampling, [ids], 2, mass=1.0)
    assert len(right) == 2 and max(right) < 1e-6
    (lossy,) = drift(pair, a.lenient_argmax(0.6), [ids], 2, mass=1.0)
    assert sum(lossy) / 2 > 0.05


def test_a_whole_recording(tmp_path, monkeypatch):
    pair = Pair(TARGET, TARGET, Bytes(TARGET.vocab_size))
    monkeypatch.setattr(scoreboard_counts, "load_models", lambda *about: pair)
    arguments = "--prompts 1 --places 2 --work".split() + [str(tmp_path)]
    path = execute(RuleDrift, [*arguments, "--out", str(tmp_path / "drift.json")])
    result = json.loads(path.read_text(encoding="utf-8"))
    assert set(result["drift"]) == set(lossy_rules())
    assert result["places"] == 2 * len(KINDS)
    for name, each in result["drift"].items():
        low, high = each["mean"]["interval"]
        assert low <= each["mean"]["value"] <= high <= each["most"] <= 1, name
    # The draft is the target, so a rule that only lowers the bar accepts what the target drew.
    assert result["drift"]["draft model × lenient(0.6)"]["most"] < 1e-3


@pytest.mark.parametrize("name", ["prompts", "places"])
def test_wrong_options_are_rejected(name, capsys):
    with pytest.raises(SystemExit):
        execute(RuleDrift, [f"--{name}", "0"])
    assert f"--{name}: must be at least 1" in capsys.readouterr().err
