"""Run the recordings of drafts from the target itself at toy size."""

import argparse
import json

import pytest
import torch
from models_zoo import PROMPT, native
from registry import lookahead

from benchmarks import self_drafts
from benchmarks.experiment import execute
from benchmarks.speed import Bench, Contender, ours, take_turns
from specdec_lite import generate
from specdec_lite.drafters import EarlyExitDrafter, PassDrafter, QuantizedDrafter

TARGET = native(num_layers=3, dtype=torch.float32)
ROWS = [PROMPT, [*PROMPT[3:], 4, 8, 15]]
ARGS = argparse.Namespace(
    texts=2,
    new=6,
    most=2,
    group=1,
    offered=4,
    gamma=2,
    windows=[16, 24],
    repeats=2,
    turns=4,
    minutes=0.1,
    temperature=0.0,
)


class CharacterTokenizer:
    def decode(self, ids):
        return f"<{ids[0]}>"


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.setattr(self_drafts, "load_target", lambda name: (TARGET, CharacterTokenizer()))
    monkeypatch.setattr(self_drafts, "prompts", lambda name, tokenizer, count=8: ROWS[:count])
    ARGS.adapters = tmp_path


def test_exits_by_depth():
    result = self_drafts.exits("tiny", ARGS)
    assert len(result["rates"]) == 3 and result["rates"][-1] == pytest.approx(1.0)
    assert sum(result["settled"]) == pytest.approx(1.0) and result["agreement"][-1] == 1.0
    assert len(result["text"]) == len(result["depth"]) and set(result["depth"]) <= {1, 2, 3}


def test_every_set_and_the_searches_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(
        self_drafts, "search_with_optuna", self_drafts.search_randomly
    )  # optuna is not required
    monkeypatch.setattr(
        self_drafts, "prompts", lambda name, tokenizer, count: (2 * [*ROWS, *ROWS[::-1]])[:count]
    )
    words = "--targets pair --texts 2 --new 6 --most 2 --offered 4 --group 1".split()
    words += ["--work", str(tmp_path / "w"), "--out", str(tmp_path / "skips.json")]
    path = execute(self_drafts.LayerSkipSearch, words)
    result = json.loads(path.read_text(encoding="utf-8"))["targets"]["pair"]
    search = result["search"]
    assert len(result["sets"]) == 3 * 4**3 and len(result["alone"]) == 6
    assert search["evaluations"] == 1 + 4 + 3
    for way in ("greedy", "random", "bayesian"):
        assert len(search[way]["so_far"]) == 8
        assert search[way]["so_far"] == sorted(search[way]["so_far"])
        assert 0 < search[way]["best"]["elsewhere"]["value"] < 1
    for step in search["greedy"]["path"][1:]:
        number = sum(1 << (5 - 2 * block - (part == "mlp")) for block, part in step["skip"])
        written = int(result["sets"][3 * number : 3 * number + 3])
        assert written == min(999, round(1000 * step["rate"]))
    costs = result["bytes"]
    assert self_drafts.leave_out(TARGET, costs, []) == 1
    everything = self_drafts.every_sublayer(3)
    left = costs["head"] / (costs["head"] + 3 * (costs["attention"] + costs["mlp"]))
    assert self_drafts.leave_out(TARGET, costs, everything) == pytest.approx(left)


def test_fewer_bits_are_accepted_less():
    rows = self_drafts.bits("tiny", ARGS)["rows"]
    assert [row["bits"] for row in rows] == [8, 6, 5, 4, 3, 2]
    assert rows[0]["rate"]["value"] > rows[-1]["rate"]["value"]
    assert rows[0]["bytes"] > rows[3]["bytes"]


def test_long_contexts():
    ARGS.temperature = 1.0
    result = self_drafts.at_length(TARGET, torch.tensor(PROMPT * 4), ARGS)
    assert result["turns"] == 4 and result["places"] == 2 and result["everything"] == 1.0
    assert (
        result["cache_bytes"]
        == len(PROMPT * 4)
        * 2
        * TARGET.new_cache(capacity=1).storage.tensors.keys[..., :1, :].numel()
        * 4
    )
    labels = [f"{kind} {budget}" for budget in (16, 24) for kind in ("window", "chunks")]
    assert [draft["draft"] for draft in result["drafts"]] == labels
    assert all(1 <= draft["tau"] <= 3 and draft["predicted"] > 0 for draft in result["drafts"])


def test_a_long_text_is_read_once_and_decoded_from_any_position():
    """Decoding from a position, the last one first, gives the text of `generate`."""
    tokens = torch.tensor(PROMPT * 4)
    text = self_drafts.LongText(TARGET, tokens, (), argparse.Namespace(new=6, temperature=0.0))
    for position in (len(tokens), len(tokens) - 6):
        steps = text.decode(None, position, 0)
        plain = generate(TARGET, tokens[:position], max_new_tokens=6)
        assert [t for step in steps for t in step.tokens] == plain.tokens.tolist()


def test_speed_explains_its_rounds():
    drafters = {
        "early exit": EarlyExitDrafter(TARGET, 1, 2, reuse=False),
        "early exit, reuse": EarlyExitDrafter(TARGET, 1, 2),
        "8 bits": QuantizedDrafter(TARGET, 8, 2),
        "look-ahead rows": PassDrafter(TARGET, lookahead(TARGET, 2)),
    }
    every = {"plain": Contender(ours(TARGET, None, None, 6, 0.0))}
    every |= {n: Contender(ours(TARGET, d, None, 6, 0.0), d, n) for n, d in drafters.items()}
    rows = [torch.tensor(ids) for ids in ROWS]
    turns = take_turns(every, rows, Bench(None, {}, turns=4, least=4))
    alone = self_drafts.passes(TARGET, rows[0], drafters, ARGS)
    result = self_drafts.explain_turns(turns, drafters, alone, 2)
    assert [row["method"] for row in result["rows"]] == list(drafters)
    again, reuse = result["rows"][:2]
    assert again["tau"] == reuse["tau"] and again["alpha"] == reuse["alpha"], "the same texts"
    assert result["reuse"]["predicted_change"] == pytest.approx(
        -alone["shared"] / alone["one"] * (alone["verify"] / alone["one"] - 1)
    )
    low, high = result["reuse"]["measured_change"]["interval"]
    assert low <= result["reuse"]["measured_change"]["value"] <= high
