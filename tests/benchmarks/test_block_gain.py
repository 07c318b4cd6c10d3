"""Test the expected accepted drafts of two rules against the rules themselves."""

import json

import pytest
import torch
from boards import Bytes
from models_zoo import native, perturbed

from benchmarks import scoreboard_counts
from benchmarks.block_gain import LENGTHS, BlockGain, accepted, drafts
from benchmarks.experiment import execute
from specdec_lite import Proposal, TokenTree, acceptance, sampling
from specdec_lite.loading.pairs import Pair
from specdec_lite.texts.benchmark_prompts import KINDS

TARGET = native(dtype=torch.float32)
PAIR = Pair(TARGET, perturbed(TARGET), Bytes(TARGET.vocab_size))


def enumerated(rule, draft, gamma: int) -> float:
    """Return a rule's mean accepted length of a draft, over every outcome of its tests."""
    tokens, q, p = draft
    proposal = Proposal(TokenTree.chain(tokens[:gamma].tolist()), q[:gamma])

    def verify(rng):
        rng.draw = lambda row: 0  # the last token does not matter here
        return len(rule(proposal, p[: gamma + 1], rng).path)

    return sum(length * weight for length, weight in sampling.outcomes(verify))


@pytest.mark.parametrize("gamma", [1, 2, 4])
def test_the_expected_numbers_are_those_of_the_rules(gamma):
    dice = torch.Generator().manual_seed(gamma)
    rows = lambda n: torch.randn(n, 5, generator=dice, dtype=torch.float64).mul(1.5).softmax(-1)
    for _ in range(20):
        q, p = rows(4), rows(5)
        draft = q.multinomial(1, generator=dice)[:, 0], q, p
        alone, block = accepted(draft, gamma)
        assert alone == pytest.approx(enumerated(acceptance.speculative_sampling, draft, gamma))
        assert block == pytest.approx(enumerated(acceptance.block_verification, draft, gamma))


def test_only_whole_drafts_are_kept():
    found = drafts(PAIR, torch.arange(12) % TARGET.vocab_size, 24, seed=0)
    assert found and {len(tokens) for tokens, _, _ in found} == {max(LENGTHS)}
    assert all(len(p) == len(q) + 1 for _, q, p in found)


def test_a_whole_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(scoreboard_counts, "load_models", lambda *about: PAIR)
    arguments = "--prompts 1 --seeds 2 --new-tokens 16 --work".split() + [str(tmp_path)]
    path = execute(BlockGain, [*arguments, "--out", str(tmp_path / "gain.json")])
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["texts"] == 2 * len(KINDS) and result["rounds"] > 0
    for row in result["rows"]:
        assert row["as_block"] >= row["tokens"] - 1e-3 and row["low"] <= row["gain"] <= row["high"]
    assert result["rows"][0]["gain"] == pytest.approx(0, abs=1e-2)  # with one draft they are equal


@pytest.mark.parametrize("name", ["prompts", "seeds"])
def test_wrong_options_are_rejected(name, capsys):
    with pytest.raises(SystemExit):
        execute(BlockGain, [f"--{name}", "0"])
    assert f"--{name}: must be at least 1" in capsys.readouterr().err
