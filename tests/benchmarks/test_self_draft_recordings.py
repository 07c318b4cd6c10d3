"""The recordings of drafts from the target itself, at toy size."""

import argparse

import pytest
import torch
from models_zoo import PROMPT, native

from benchmarks import self_drafts

TARGET = native(num_layers=3, dtype=torch.float32)
ROWS = [PROMPT, [*PROMPT[3:], 4, 8, 15]]
ARGS = argparse.Namespace(
    texts=2,
    new=6,
    most=2,
    group=1,
    offered=4,
    gamma=2,
    window=16,
    turns=2,
    minutes=0.1,
    temperature=0.0,
)


class Words:
    def decode(self, ids):
        return f"<{ids[0]}>"


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.setattr(self_drafts, "load_target", lambda name: (TARGET, Words()))
    monkeypatch.setattr(self_drafts, "prompts", lambda name, tokenizer, count=8: ROWS[:count])
    ARGS.adapters = tmp_path
    return self_drafts.Work(tmp_path / "work", "2x6")


def test_exits_by_depth():
    found = self_drafts.exits("tiny", ARGS)
    assert len(found["rates"]) == 3 and found["rates"][-1] == pytest.approx(1.0)
    assert sum(found["settled"]) == pytest.approx(1.0) and found["agreement"][-1] == 1.0
    assert len(found["text"]) == len(found["depth"]) and set(found["depth"]) <= {1, 2, 3}


def test_every_set_and_the_searches_agree_and_a_run_goes_on(tiny):
    found = self_drafts.skips("pair", ARGS, tiny)
    assert len(found["sets"]) == 3 * 4**3
    assert found["search"]["evaluations"] == 1 + 6 + 5 == len(found["search"]["random"])
    for step in found["search"]["greedy"][1:]:
        number = sum(1 << (5 - 2 * block - (part == "mlp")) for block, part in step["skip"])
        written = int(found["sets"][3 * number : 3 * number + 3])
        assert written == min(999, round(1000 * step["rate"]))
    costs = found["bytes"]
    assert self_drafts.leave_out(TARGET, costs, []) == 1
    everything = self_drafts.every_sublayer(3)
    left = costs["head"] / (costs["head"] + 3 * (costs["attention"] + costs["mlp"]))
    assert self_drafts.leave_out(TARGET, costs, everything) == pytest.approx(left)
    stored = sorted(path.name for path in tiny.folder.iterdir())
    assert stored == ["skips-pair-search-2x6.json", "skips-pair-sets-1-2x6.json"]
    assert tiny("skips-pair-sets-1", lambda: 1 / 0) == found["sets"]


def test_bits_and_long_contexts():
    rows = self_drafts.bits("tiny", ARGS)["rows"]
    assert [row["bits"] for row in rows] == [8, 6, 5, 4, 3, 2]
    assert rows[1]["rate"] > rows[-1]["rate"] and rows[0]["bytes"] > rows[3]["bytes"]
    found = self_drafts.at_length(TARGET, torch.tensor(PROMPT * 3), 24, ARGS)
    assert found["turns"] == 1 and [d["draft"] for d in found["drafts"]] == [
        "window",
        "window and chunks",
    ]
    assert all(1 <= draft["tau"] <= 3 for draft in found["drafts"])
    assert set(self_drafts.passes(TARGET, torch.tensor(PROMPT), 2, 1)) >= {"one", "shared"}
