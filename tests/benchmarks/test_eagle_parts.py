"""Run the command that measures EAGLE's parts on tiny targets, and check its recordings."""

import json

import jsonschema
import torch
from models_zoo import native

from benchmarks import eagle as parts
from benchmarks.experiment import execute
from benchmarks.schemas import SCHEMAS
from specdec_book import recordings
from specdec_lite.loading.pairs import Pair
from specdec_lite.training import eagle


class Numbers:
    """A tokenizer of numbers separated by spaces."""

    def encode(self, text):
        return [int(word) for word in text.split()]

    def decode(self, ids):
        return " ".join(str(int(token)) for token in ids)


def test_a_whole_recording(tmp_path, monkeypatch):
    target = native(vocab_size=40, dtype=torch.float32)
    rows = torch.randint(40, (3, 24), generator=torch.Generator().manual_seed(0))
    samples = [eagle.Sample(row, 5, "text", t) for t in (0.0, 1.0) for row in rows]
    monkeypatch.setattr(parts, "load_pair", lambda **options: Pair(target, target, Numbers()))
    monkeypatch.setattr(eagle, "pair_texts", lambda *args: eagle.Texts(samples, samples))
    monkeypatch.setattr(parts, "evaluation_prompts", lambda: {"text": [{"text": "5 17 3"}] * 2})
    arguments = "--epochs 1 --prompts 2 --new-tokens 6".split()
    arguments += ["--work", str(tmp_path / "w"), "--cache", str(tmp_path / "c")]
    execute(parts.EagleAblations, [*arguments, "--out", str(tmp_path / "eagle.json")])
    data = json.loads((tmp_path / "eagle.json").read_text(encoding="utf-8"))
    jsonschema.validate(data, SCHEMAS["eagle-ablations"])
    assert set(data["heads"]) == set(parts.HEADS)
    whole = data["vocabulary"][-1]
    assert whole["tokens"] == 40 and abs(whole["covered"]["value"] - 1) < 1e-5
    covered = [row["covered"]["value"] for row in data["vocabulary"]]
    assert covered == sorted(covered)


def test_the_recording_supports_chapter_11():
    heads = recordings.load("eagle-ablations").data["heads"]
    agrees = {name: head["agrees"]["mean"] for name, head in heads.items()}
    inputs = ("feature and own token", "feature", "token")
    pair = agrees["feature and next token"]
    assert all(ours > max(agrees[name][i] for name in inputs) for i, ours in enumerate(pair))
    own, alone = (heads[name]["agrees"] for name in inputs[:2])
    assert own["mean"][0] - alone["mean"][0] < 1.96 * alone["error"][0]
    first_alpha = {name: heads[name]["alpha"]["mean"][0] for name in inputs}
    assert agrees["token"][0] < agrees["feature"][0]
    assert first_alpha["token"] > first_alpha["feature"]
    plain, alone_alpha = (heads[name]["alpha"] for name in ("feature and next token", "law alone"))
    assert abs(alone_alpha["mean"][0] - plain["mean"][0]) < 1.96 * alone_alpha["error"][0]
    for depth in (1, 2, 3):
        assert plain["mean"][depth] - 1.96 * plain["error"][depth] > alone_alpha["mean"][depth]
    for once, unrolled in (("feature and next token", "EAGLE-1"), ("EAGLE-3, one pass", "EAGLE-3")):
        assert agrees[unrolled][3] > agrees[once][3]
    assert agrees["EAGLE-3"][0] < agrees["EAGLE-1"][0]
    likely = [
        bin for bin in recordings.load("eagle-ablations").data["reliability"] if bin["count"] >= 20
    ]
    assert all(bin["accepted"] > bin["confidence"] for bin in likely)


def test_the_smollm2_recording_supports_chapter_11():
    data = recordings.load("eagle-smollm2").data
    first, third = (data["heads"][name]["alpha"] for name in ("EAGLE-1", "EAGLE-3"))
    margin = 1.96 * (first["error"][0] ** 2 + third["error"][0] ** 2) ** 0.5
    assert first["mean"][0] - third["mean"][0] > margin
    for alpha in (first, third):
        assert 0.16 < 1 - alpha["mean"][3] / alpha["mean"][0] < 0.2
    for key, value in (("texts", 5056), ("steps", 948)):
        assert all(data["heads"][name][key] == value for name in ("EAGLE-1", "EAGLE-3"))
    for method in data["served"].values():
        assert method["same"] == method["texts"]
        rows = zip(*(method[who][key] for who in ("ours", "vllm") for key in ("rates", "errors")))
        assert all(abs(a - b) < 1.96 * (c**2 + d**2) ** 0.5 for a, c, b, d in rows)


def test_norms_gain_more_than_the_loss():
    heads = recordings.load("eagle-norms").data["heads"]
    first = {name: head["alpha"]["mean"][0] for name, head in heads.items()}
    for loss in ("imitating", "on text"):
        gain = first[f"normed inputs, {loss}"] - first[f"EAGLE-1, {loss}"]
        assert gain > abs(first["normed inputs, imitating"] - first["normed inputs, on text"])
    for block in ("EAGLE-1", "normed inputs", "MTP"):
        assert first[f"{block}, imitating"] > first[f"{block}, on text"]
