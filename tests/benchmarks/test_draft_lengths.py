"""Measure chains at several draft lengths on a tiny pair whose draft is the target."""

import json

import pytest
import torch
from boards import SMALL, Bytes
from models_zoo import native

from benchmarks import draft_lengths
from benchmarks.draft_lengths import DraftLengths
from benchmarks.experiment import execute
from specdec_lite.loading.pairs import Pair

TARGET = native(dtype=torch.float32)


def test_a_whole_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(
        draft_lengths, "load_models", lambda *about: Pair(TARGET, TARGET, Bytes(TARGET.vocab_size))
    )
    monkeypatch.setattr(draft_lengths, "METHODS", SMALL)
    monkeypatch.setattr(draft_lengths, "CHAINS", ("draft model", "prompt lookup"))
    words = "--kinds json code --lengths 1 3 --prompts 2 --turns 3 --new-tokens 13".split()
    files = ["--work", str(tmp_path), "--out", str(tmp_path / "lengths.json")]
    result = json.loads(execute(DraftLengths, [*words, *files]).read_text(encoding="utf-8"))
    assert set(result["kinds"]) == {"json", "code"}
    for kind in result["kinds"].values():
        assert kind["turns"] == 4  # whole sweeps over two prompts
        chains = {(each["name"], each["gamma"]): each for each in kind["chains"]}
        assert set(chains) == {(name, g) for name in draft_lengths.CHAINS for g in (1, 3)}
        for gamma in (1, 3):  # the draft is the target: every draft is accepted
            tau = chains["draft model", gamma]["tau"]
            assert tau["value"] == pytest.approx(13 / -(-13 // (gamma + 1)), abs=0.3)
        for each in chains.values():
            low, high = each["speedup"]["interval"]
            assert 0 < low <= each["speedup"]["value"] <= high


@pytest.mark.parametrize(
    "words, message",
    [
        ("--prompts 1", "--prompts: must be at least 2"),
        ("--turns 0", "--turns: must be at least 1"),
        ("--new-tokens 1", "--new-tokens: must be at least 2"),
        ("--lengths 0", "must be whole numbers ≥ 1"),
        ("--kinds poem", "invalid choice: 'poem'"),
    ],
)
def test_wrong_options_are_rejected(words, message, capsys):
    with pytest.raises(SystemExit):
        execute(DraftLengths, words.split())
    assert message in capsys.readouterr().err
