"""Run the commands that record losses and learning while serving on a tiny target."""

import json

import jsonschema
import pytest
import torch
from models_zoo import native

from benchmarks import losses, online
from benchmarks.experiment import execute
from benchmarks.schemas import SCHEMAS
from specdec_book import recordings
from specdec_lite import corpus
from specdec_lite.loading.pairs import Pair


class Letters:
    """A tokenizer whose tokens are bytes."""

    def encode(self, text):
        return list(text.encode())

    def decode(self, ids):
        return "".join(chr(int(token) % 128) for token in ids)


def folders(path):
    return ["--work", str(path / "w"), "--cache", str(path / "c")]


@pytest.fixture
def tiny(monkeypatch):
    target = native(vocab_size=256, dtype=torch.float32)
    text = "\n".join(f"def f{n}(x): return x + {n}" for n in range(400))
    domains = dict.fromkeys(("code", "data", "prose"), [text])
    for module in (losses, online):
        monkeypatch.setattr(module, "load_pair", lambda **options: Pair(target, target, Letters()))
    monkeypatch.setattr(corpus, "training_text", lambda: {"library": [text], "docs": [text]})
    monkeypatch.setattr(corpus, "held_out_text", lambda: domains)
    return target


def test_a_whole_recording_of_losses(tmp_path, tiny):
    words = "--texts 8 --held-out 4 --new 8 --start 1 --epochs 1 --hidden 64".split()
    out = tmp_path / "losses.json"
    execute(losses.TrainingLosses, [*words, *folders(tmp_path), "--out", str(out)])
    data = json.loads(out.read_text(encoding="utf-8"))
    jsonschema.validate(data, SCHEMAS["training-losses"])
    names = [(run["source"], run["loss"]) for run in data["runs"]]
    assert len(names) == len(set(names)) == 2 + 3 * 5 and names[0] == ("", "")
    first = data["runs"][0]
    for kind in data["predicts"]:
        assert first[kind]["gain"]["value"] == 0 and 0 < first[kind]["alpha"]["value"] < 1


def test_a_whole_recording_of_learning_while_serving(tmp_path, tiny):
    words = "--each 4 --new 6 --every 2 --start 1 --hidden 64 --rates 0.01 --texts 8".split()
    out = tmp_path / "online.json"
    execute(online.OnlineLearning, [*words, *folders(tmp_path), "--out", str(out)])
    data = json.loads(out.read_text(encoding="utf-8"))
    jsonschema.validate(data, SCHEMAS["online-learning"])
    stays, learns = data["requests"]["stays"], data["requests"]["learns at 0.01"]
    assert stays[0] == learns[0]  # no training before the first request
    assert [row["topic"] for row in stays] == ["code"] * 4 + ["prose"] * 4 + ["code"] * 4
    curves = {name: data["curves"][name]["code"]["alpha"] for name in data["curves"]}
    assert len(set(curves["stays"])) == 1 and len(set(curves["learns at 0.01"])) > 1


def test_the_recording_of_losses_supports_chapter_10():
    data = recordings.load("training-losses").data
    for kind in data["predicts"]:
        gains = {(run["source"], run["loss"]): run[kind]["gain"] for run in data["runs"][1:]}
        for source in losses.SOURCES:
            own = {loss: gain["value"] for (where, loss), gain in gains.items() if where == source}
            assert max(own, key=own.get) == "total variation"
        by_source = [gains[source, "total variation"]["value"] for source in losses.SOURCES]
        assert by_source[1] == max(by_source) and by_source[2] == min(by_source)
        assert gains[losses.SOURCES[0], losses.NEXT_TOKEN]["interval"][1] < 0
        predicts = data["predicts"][kind]
        assert predicts["forward KL"] > 0 < predicts["bits per byte"]
        assert predicts["reverse KL"] < -0.5


def test_the_recording_of_learning_supports_chapter_10():
    curves = recordings.load("online-learning").data["curves"]
    still = {topic: row["alpha"][0] for topic, row in curves["stays"].items()}
    slow, quick = curves["learns at 0.0001"], curves["learns at 0.001"]
    for topic, row in slow.items():
        assert max(abs(alpha - still[topic]) for alpha in row["alpha"]) < 0.002
    code, prose = (quick[topic]["alpha"] for topic in ("code", "prose"))
    assert code[3] < still["code"] - 0.01 and prose[3] < still["prose"] - 0.01
    assert prose[7] - prose[3] > 0.005 > code[7] - code[3]
    assert code[11] - code[7] > 0.005


def test_the_recording_of_heads_supports_chapter_10():
    data = recordings.load("heads-at-equal-bytes").data
    alpha = {name: head["held_out"]["alpha"]["mean"] for name, head in data["heads"].items()}
    tau = {name: head["decoded"]["T = 1"]["tau"] for name, head in data["heads"].items()}
    assert alpha["MLP speculator"][0] - alpha["MLP speculator"][3] < 0.02
    assert [round(rate, 2) for rate in alpha["PARD"][:2]] == [0.72, 0.27]
    for name, gains in data["gained"].items():
        assert all(0.02 < gain["value"] < 0.075 and gain["interval"][0] > 0 for gain in gains)
        with_it, without = tau[name]["interval"], tau[name.removesuffix(", corrected")]["interval"]
        assert with_it[0] < without[1] and without[0] < with_it[1]
    best = tau.pop("the pair's draft")["interval"][0]
    assert best > max(each["interval"][1] for each in tau.values())


def test_the_recordings_of_two_targets_support_chapter_10():
    pair, beside = (
        recordings.load(name).data for name in ("heads-at-equal-bytes", "parallel-heads-smollm2")
    )
    shares = [
        (name, alpha[3] / alpha[0])
        for heads in (pair["heads"], beside["heads"])
        for name, head in heads.items()
        for alpha in [head.get("held_out", head)["alpha"]["mean"]]
    ]
    sees = [
        share for name, share in shares if {"EAGLE", "EAGLE-1", "MLP", "Hydra"} & {*name.split()}
    ]
    blind = [share for name, share in shares if name.split()[-1] == "Medusa"]
    assert len(sees) >= 4 and len(blind) >= 3 and min(sees) > max(blind)
    for method in beside["served"].values():
        rows = zip(*(method[who][key] for who in ("ours", "vllm") for key in ("rates", "errors")))
        assert all(abs(a - b) < 1.96 * (c**2 + d**2) ** 0.5 for a, c, b, d in rows)
