"""Run the commands that record heads for SmolLM2, here and in vLLM, on a tiny target and a fake
engine.

The recorded parallel heads are checked for consistency.
"""

import json
from pathlib import Path

import jsonschema
import pytest
import torch
from features_zoo import KINDS, random_head
from heads_zoo import random_blocks, randomize
from models_zoo import native

from benchmarks import beside_smollm2 as beside, eagle_smollm2, heads_smollm2, smollm2
from benchmarks.experiment import execute
from benchmarks.schemas import SCHEMAS
from specdec_book import recordings
from specdec_lite.drafters.heads.heads import ReducedHeads
from specdec_lite.drafters.parallel.parallel import Correction
from specdec_lite.loading.weights import save
from specdec_lite.training import eagle, head_trainer

TARGET = native(vocab_size=40, num_layers=8, dtype=torch.float32)
RATES = {"mean": [0.5] * 4, "error": [0.1] * 4}
BY_DEPTH = RATES | {"tokens": [9] * 4}
WORDS = ["--prompts", "2", "--new-tokens", "6", "--turns", "2"]


def folders(path):
    return ["--work", str(path / "w"), "--cache", str(path / "c")]


class Chats:
    """A tokenizer with a template: every message is the same three tokens."""

    def apply_chat_template(self, messages, **options):
        return [5, 17, 3]


class Engine:
    """Return the counters of this library's drafts; reject other methods."""

    def __init__(self, command, log):
        self.jobs = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, job):
        self.jobs.append(job)
        if len(self.jobs) == 1:
            how = job["speculative"]
            if how["method"] == "eagle3":
                raise beside.EngineError("no such method")
            assert (Path(how["model"]) / "config.json").exists()
            self.gamma = how["num_speculative_tokens"]
            return {"version": "1"}
        counters = beside.count_rounds([(self.gamma, 1), (self.gamma, 0)])
        return {"tokens": [[0]] * len(job["prompts"]), "counters": counters}


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Return a function that ships a head of a given name for SmolLM2, which is a tiny target here."""
    rows = torch.randint(40, (3, 24), generator=torch.Generator().manual_seed(0))
    samples = [eagle.Sample(row, 5, "text", t) for t in (0.0, 1.0) for row in rows]
    texts = eagle.Texts(samples, samples)
    monkeypatch.setattr(beside, "SHIPPED", tmp_path)
    monkeypatch.setattr("specdec_lite.loading.weights.SHIPPED", tmp_path)
    for module in (smollm2, head_trainer):
        monkeypatch.setattr(module, "load_smollm2", lambda *args: (TARGET, Chats()))
    for module in (eagle, head_trainer):
        monkeypatch.setattr(module, "smollm2_texts", lambda *args: texts)
    monkeypatch.setattr(beside, "smollm2_folder", lambda: tmp_path)
    monkeypatch.setattr(beside, "Worker", Engine)

    def ship(name, head, **facts):
        folder = tmp_path / name / "smollm2"
        save(folder, head, TARGET, getattr(head, "sizes", None) or head.config, bits=8)
        facts = {"command": name, "texts": 3, "steps": 1, **facts}
        (folder / "report.json").write_text(json.dumps(facts), encoding="utf-8")
        return (folder / "weights.safetensors").stat().st_size

    return ship


def test_the_eagle_family(tmp_path, monkeypatch, shipped):
    for name in ("eagle1", "eagle3"):
        held_out = {"all": {"alpha": BY_DEPTH, "agrees": BY_DEPTH}}
        shipped(name, KINDS[name].for_target(TARGET), tokens=9, held_out=held_out)
    monkeypatch.setattr(eagle_smollm2, "SIZES", (10, 40))
    out = tmp_path / "eagle-smollm2.json"
    words = [*WORDS, "--out", str(out), *folders(tmp_path)]
    for parts_of_it in (["heads", "vocabulary"], ["decoded", "served"]):
        execute(eagle_smollm2.EagleSmolLM2, ["--only", *parts_of_it, *words])
    data = json.loads(out.read_text("utf-8"))
    assert data["heads"]["EAGLE-3"]["alpha"]["mean"] == [0.5] * 4
    assert [row["tokens"] for row in data["vocabulary"]] == [10, 40]
    assert all(row["same"] == 2 for row in data["decoded"].values())
    assert data["decoded"]["plain"]["tau"]["value"] == 1
    served = data["served"]
    assert served["eagle"]["vllm"]["rates"][0] == 0.5 and served["eagle"]["texts"] == 2
    assert served["eagle3"]["refused"] == "no such method"
    command = "python -m benchmarks run eagle-smollm2 --only decoded served --prompts 2"
    assert data["commands"]["served"].startswith(command)


def test_the_parallel_heads(tmp_path, shipped):
    torch.manual_seed(0)
    heads = ReducedHeads(TARGET.hidden_size, 4, 24)
    heads.words.ids.copy_(torch.randperm(40)[:24].sort().values)
    torch.nn.init.normal_(heads.up, std=0.3)
    blocks = random_blocks(TARGET, 5, words=24, layers=(2, 4, 5), qk_norm=True)
    correction = randomize(Correction(24, 32, others=True), TARGET, 1.0)
    held_out = {"alpha": RATES, "agrees": RATES}
    sizes = [shipped("medusa", heads, held_out=held_out)]
    sizes.append(sizes[0] + shipped("markov", correction, held_out=held_out))
    sizes.append(shipped("block_diffusion", blocks, held_out=held_out))
    sizes.insert(0, shipped("eagle1", random_head(TARGET), held_out={}))
    out = tmp_path / "heads-smollm2.json"
    execute(heads_smollm2.ParallelHeadsSmolLM2, [*WORDS, "--out", str(out), *folders(tmp_path)])
    data = json.loads(out.read_text("utf-8"))
    jsonschema.validate(data, SCHEMAS["parallel-heads-smollm2"])
    assert [row["bytes"] for row in data["heads"].values()] == sizes
    assert all(0 < alpha < 1 for alpha in data["heads"]["EAGLE-1"]["alpha"]["mean"])
    assert any(gain["value"] for gain in data["gained"]["Medusa, corrected"])
    assert [*data["decoded"]] == ["plain", *data["heads"]]
    assert all(row["T = 0"]["same"] == 2 for row in data["decoded"].values())
    for method in ("medusa", "dflash"):
        assert data["served"][method]["vllm"]["rates"] == [0.5, 0, 0, 0]


def test_the_recording_of_the_parallel_heads_is_consistent():
    data = recordings.load("parallel-heads-smollm2").data
    heads, decoded, served = (data[part] for part in ("heads", "decoded", "served"))
    assert len({row["texts"] for row in heads.values()}) == 1
    for row in heads.values():
        for rates in (row["alpha"]["mean"], row["agrees"]["mean"]):
            assert 0 < rates[3] and rates == sorted(rates, reverse=True) and rates[0] < 1
    for name, gains in data["gained"].items():
        with_it, without = (heads[one]["alpha"] for one in (name, name.removesuffix(", corrected")))
        for depth, gain in enumerate(gains):
            low, high = gain["interval"]
            assert low <= gain["value"] <= high
            apart = with_it["mean"][depth] - without["mean"][depth]
            assert abs(apart - gain["value"]) < with_it["error"][depth]
    assert set(decoded) == {"plain", *heads}
    for by_temperature in decoded.values():
        assert by_temperature["T = 0"]["same"] == decoded["plain"]["T = 0"]["same"]
        for row in by_temperature.values():
            assert all(low <= high for low, high in (one["interval"] for one in spreads(row)))
            tau, drafting, speedup = (one["value"] for one in spreads(row))
            assert 1 <= tau <= 5 and drafting >= 0 and speedup * (1 + drafting) < 1.05 * tau
    assert set(served) == {"medusa", "dflash"}
    for method in served.values():
        assert method["same"] == method["texts"]
        for who in (method["ours"], method["vllm"]):
            assert who["rates"] == sorted(who["rates"], reverse=True) and who["rates"][0] < 1
            drafted, accepted = (
                who[f"vllm:spec_decode_num_{name}_tokens"] for name in ("draft", "accepted")
            )
            assert accepted < drafted <= 4 * who["rounds"]
            assert who["tau"] == pytest.approx(1 + accepted / who["rounds"])
        pairs = zip(*(method[who][key] for who in ("ours", "vllm") for key in ("rates", "errors")))
        assert all(abs(a - b) <= 1.96 * (c**2 + d**2) ** 0.5 for a, c, b, d in pairs)


def spreads(row):
    return [row[name] for name in ("tau", "drafting", "speedup")]
