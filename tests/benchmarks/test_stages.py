"""The recordings of chapters 12 and 13 at toy size: they run, and hold what their pages read."""

import json

import jsonschema
import torch
from letters import Letters, tiny
from models_zoo import native, perturbed
from schemas import SCHEMAS

from benchmarks import stages, stopping
from benchmarks.speed import Bench
from specdec_lite.loading.pairs import Pair


def test_every_drafter_takes_its_turn(tmp_path):
    pair = Pair(native(), perturbed(native()), None)
    bench = Bench(
        load=lambda dtype: pair,
        prompts={"code": [torch.arange(3, 13), torch.arange(5, 15)]},
        temperatures=(0.0,),
        turns=2,
        least=1,
    )
    path = stages.main(
        ["--minutes", "0", "--new-tokens", "6", "--out", str(tmp_path / "a.json")], bench
    )
    found = json.loads(path.read_text("utf-8"))
    jsonschema.validate(found, SCHEMAS["stages"])
    named = {name.split(" ")[0] for row in found["rows"] for name in row["tokens_per_second"]}
    assert set(stages.DRAFTERS) <= named


class Chat(Letters):
    def apply_chat_template(self, messages, **options):
        return self.encode(messages[0]["content"][:12])


def test_the_counts_are_made_once_and_a_part_that_is_there_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "SKIPPED", (1,))
    loads = lambda *where: (tiny(0), Chat())
    out = tmp_path / "stopping.json"
    given = ["--places", "5", "--new-tokens", "6", "--grid", "6", "--out", str(out)]
    assert stopping.main(given, loads) == out
    found = json.loads(out.read_text("utf-8"))
    jsonschema.validate(found, SCHEMAS["stopping"])
    assert all(0 <= row["drawn"] <= 1 for row in found["acceptance"]["rows"])
    found["drafts"]["draft"] = "kept"
    out.write_text(json.dumps(found), encoding="utf-8")
    stopping.main(given, loads)
    assert json.loads(out.read_text("utf-8"))["drafts"]["draft"] == "kept"
