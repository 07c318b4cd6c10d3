"""The commands that record what EAGLE's parts are worth: whole runs on tiny targets."""

import json
from pathlib import Path

import jsonschema
import torch
from features_zoo import KINDS
from models_zoo import native
from schemas import SCHEMAS

from benchmarks import eagle as parts, eagle_smollm2 as beside
from specdec_lite import results
from specdec_lite.loading.pairs import Pair
from specdec_lite.loading.weights import save
from specdec_lite.training import eagle


class Numbers:
    """A tokenizer whose words are numbers."""

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
    words = "--epochs 1 --prompts 2 --new-tokens 6".split()
    parts.main([*words, "--work", str(tmp_path / "w"), "--out", str(tmp_path / "eagle.json")])
    data = json.loads((tmp_path / "eagle.json").read_text(encoding="utf-8"))
    jsonschema.validate(data, SCHEMAS["eagle"])
    assert set(data["heads"]) == set(parts.HEADS)
    whole = data["vocabulary"][-1]
    assert whole["tokens"] == 40 and abs(whole["covered"]["value"] - 1) < 1e-5
    covered = [row["covered"]["value"] for row in data["vocabulary"]]
    assert covered == sorted(covered)


class Chats(Numbers):
    """A tokenizer with a template: every message is the same three tokens."""

    def apply_chat_template(self, messages, **options):
        return [5, 17, 3]


class Engine:
    """Drafts as this library does, as far as its counters tell; refuses what is not for it."""

    def __init__(self, command, log):
        self.asked = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, job):
        self.asked.append(job)
        if len(self.asked) == 1:
            if job["speculative"]["method"] == "eagle3":
                raise beside.Refused("no such method")
            assert (Path(job["speculative"]["model"]) / "config.json").exists()
            return {"version": "1"}
        counters = beside.as_counters([(3, 1), (3, 0)])
        return {"tokens": [[0]] * len(job["prompts"]), "counters": counters}


def test_the_family_beside_smollm2(tmp_path, monkeypatch):
    target = native(vocab_size=40, num_layers=8, dtype=torch.float32)
    rows = torch.randint(40, (3, 24), generator=torch.Generator().manual_seed(0))
    samples = [eagle.Sample(row, 5, "text", t) for t in (0.0, 1.0) for row in rows]
    held_out = {"all": {"alpha": {"mean": [0.5] * 4}}}
    facts = {"command": "x", "texts": 3, "tokens": 9, "steps": 1, "held_out": held_out}
    for name in ("eagle1", "eagle3"):
        head = KINDS[name].beside(target)
        save(tmp_path / name / "smollm2", head, target, head.config, bits=8)
        report = tmp_path / name / "smollm2" / "report.json"
        report.write_text(json.dumps(facts), encoding="utf-8")
    monkeypatch.setattr(beside, "SHIPPED", tmp_path)
    monkeypatch.setattr("specdec_lite.loading.weights.SHIPPED", tmp_path)
    monkeypatch.setattr(beside, "load_smollm2", lambda *args: (target, Chats()))
    monkeypatch.setattr(eagle, "smollm2_texts", lambda *args: eagle.Texts(samples, samples))
    monkeypatch.setattr(beside, "smollm2_folder", lambda: tmp_path)
    monkeypatch.setattr(beside, "Worker", Engine)
    monkeypatch.setattr(beside, "SIZES", (10, 40))
    out = tmp_path / "eagle-smollm2.json"
    words = ["--prompts", "2", "--new-tokens", "6", "--turns", "2", "--out", str(out)]
    for parts_of_it in (["heads", "vocabulary"], ["decoded", "served"]):
        beside.main([*parts_of_it, *words, "--work", str(tmp_path / "w")])
    data = json.loads(out.read_text("utf-8"))
    assert data["heads"]["EAGLE-3"]["alpha"]["mean"] == [0.5] * 4
    assert [row["tokens"] for row in data["vocabulary"]] == [10, 40]
    assert all(row["same"] == 2 for row in data["decoded"].values())
    assert data["decoded"]["plain"]["tau"]["value"] == 1
    served = data["served"]
    assert served["eagle"]["vllm"]["rates"][0] == 0.5 and served["eagle"]["texts"] == 2
    assert served["eagle3"]["refused"] == "no such method"


def test_the_recording_says_what_chapter_11_says_of_it():
    heads = results.load("eagle").data["heads"]
    agrees = {name: found["agrees"]["mean"] for name, found in heads.items()}
    inputs = ("feature and own token", "feature", "token")
    pair = agrees["feature and next token"]
    assert all(ours > max(agrees[name][i] for name in inputs) for i, ours in enumerate(pair))
    own, alone = (heads[name]["agrees"] for name in inputs[:2])
    assert own["mean"][0] - alone["mean"][0] < 1.96 * alone["error"][0]
    first_alpha = {name: heads[name]["alpha"]["mean"][0] for name in inputs}
    assert agrees["token"][0] < agrees["feature"][0]
    assert first_alpha["token"] > first_alpha["feature"]
    plain, law = (heads[name]["alpha"] for name in ("feature and next token", "law alone"))
    assert abs(law["mean"][0] - plain["mean"][0]) < 1.96 * law["error"][0]
    for depth in (1, 2, 3):
        assert plain["mean"][depth] - 1.96 * plain["error"][depth] > law["mean"][depth]
    for once, unrolled in (("feature and next token", "EAGLE-1"), ("EAGLE-3, one pass", "EAGLE-3")):
        assert agrees[unrolled][3] > agrees[once][3]
    assert agrees["EAGLE-3"][0] < agrees["EAGLE-1"][0]
    likely = [bin for bin in results.load("eagle").data["reliability"] if bin["count"] >= 20]
    assert all(bin["accepted"] > bin["confidence"] for bin in likely)


def test_the_recording_beside_smollm2_says_what_chapter_11_says_of_it():
    data = results.load("eagle-smollm2").data
    first, third = (data["heads"][name]["alpha"] for name in ("EAGLE-1", "EAGLE-3"))
    apart = 1.96 * (first["error"][0] ** 2 + third["error"][0] ** 2) ** 0.5
    assert first["mean"][0] - third["mean"][0] > apart
    for alpha in (first, third):
        assert 0.16 < 1 - alpha["mean"][3] / alpha["mean"][0] < 0.2
    for key, value in (("texts", 5056), ("steps", 948)):
        assert all(data["heads"][name][key] == value for name in ("EAGLE-1", "EAGLE-3"))
    for method in data["served"].values():
        assert method["same"] == method["texts"]
        rows = zip(*(method[who][key] for who in ("ours", "vllm") for key in ("rates", "errors")))
        assert all(abs(a - b) < 1.96 * (c**2 + d**2) ** 0.5 for a, c, b, d in rows)
