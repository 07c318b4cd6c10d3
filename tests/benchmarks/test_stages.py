"""Run the recordings of chapters 14 and 15 at toy size and check what their pages read."""

import json

import jsonschema
import torch
from letters import Letters, tiny
from models_zoo import native, perturbed

from benchmarks import smollm2, stages, stopping
from benchmarks.experiment import execute
from benchmarks.schemas import SCHEMAS
from benchmarks.speed import Bench
from specdec_lite.drafters.copying.indexes import Counts
from specdec_lite.loading.pairs import Pair


def test_every_drafter_is_timed(tmp_path, monkeypatch):
    counts = lambda tokenizer: Counts(torch.arange(48).repeat(2), 48, 3)
    monkeypatch.setattr(stages, "trigram", counts)
    pair = Pair(native(), perturbed(native()), None)
    bench = Bench(
        load=lambda dtype: pair,
        prompts={"code": [torch.arange(3, 13), torch.arange(5, 15)]},
        temperatures=(0.0,),
        turns=2,
    )
    toy = {"toy": lambda options: (bench, "another")}
    monkeypatch.setattr(stages.CascadeSpeed, "make", toy)
    given = ["--minutes", "0", "--new-tokens", "6", "--least", "1", "--gammas", "3"]
    given += ["--out", str(tmp_path / "a.json"), "--work", str(tmp_path)]
    data = json.loads(execute(stages.CascadeSpeed, given).read_text("utf-8"))
    jsonschema.validate(data, SCHEMAS["cascade-speed"])
    (row,) = data["targets"]["toy"]["rows"]
    assert set(stages.DRAFTERS) <= set(row["tokens_per_second"])


def test_a_model_without_blocks_equals_a_view_that_skips_them():
    target = native(num_layers=3)
    short = smollm2.without_blocks(target, (1,))
    assert (short.num_layers, target.num_layers) == (2, 3)
    tokens = torch.arange(9)
    skip = [(1, "attention"), (1, "mlp")]
    expected = target.score(tokens, target.new_cache().view(skip=skip)).logits
    assert torch.allclose(short.score(tokens, short.new_cache()).logits, expected)
    assert not torch.allclose(target.score(tokens, target.new_cache()).logits, expected)


class Chat(Letters):
    def apply_chat_template(self, messages, **options):
        return self.encode(messages[0]["content"][:12])


def test_a_recording_of_stopping_at_toy_size(tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "SKIPPED", (1,))
    monkeypatch.setattr(stopping.JacobiAndStopping, "model", (tiny(0), Chat()))
    given = ["--places", "5", "--new-tokens", "6", "--grid", "6", "--work", str(tmp_path)]
    out = execute(stopping.JacobiAndStopping, [*given, "--out", str(tmp_path / "a.json")])
    data = json.loads(out.read_text("utf-8"))
    jsonschema.validate(data, SCHEMAS["jacobi-and-stopping"])
    assert all(0 <= row["drawn"] <= 1 for row in data["acceptance"]["rows"])
