"""Run the recordings of drafts without a model at toy size and check what they write."""

import argparse
import json
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
import torch
from features_zoo import random_head
from models_zoo import native

from benchmarks import drafting, lookup, smollm2
from benchmarks.experiment import execute
from benchmarks.schemas import SCHEMAS
from specdec_lite import generate
from specdec_lite.drafters import EagleDrafter
from specdec_lite.drafters.copying.indexes import Counts, SuffixArray
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure.replay import replay

TARGET = native(num_layers=2, max_positions=512)
STORE = np.random.default_rng(0).integers(0, 48, 3000)


class CharacterTokenizer:
    """A tokenizer of 48 tokens that encodes every text as eleven tokens."""

    def encode(self, text):
        return [ord(letter) % 48 for letter in text[-11:]]

    def decode(self, ids):
        return " ".join(map(str, ids))

    def apply_chat_template(self, messages, **options):
        return self.encode(messages[0]["content"])

    def __len__(self):
        return 48


class Lookup(lookup.ModelFreeTokens):
    """The same measurement on a tiny model."""

    datastore = SuffixArray(STORE), Counts(STORE, 48, 3)
    model = TARGET, CharacterTokenizer()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lookup")
    options = f"--each 1 --new-tokens 12 --recycling 4 --work {folder}/a --out {folder}/lookup.json"
    return json.loads(execute(Lookup, options.split()).read_text(encoding="utf-8"))


def test_answers_are_greedy_and_stored(data):
    jsonschema.validate(data, SCHEMAS["model-free-tokens"])
    assert len(data["answers"]) == 6 + 1 and len(data["history"]) == 1
    for row in data["answers"]:
        plain = generate(TARGET, lookup.ids(row["prompt"]), None, 12, stop_token_ids=(2,)).tokens
        assert lookup.ids(row["answer"]) == plain.tolist()
        assert all(token in data["pieces"] for token in row["answer"].split())


def test_every_entry_adds_up(data):
    for row in data["rows"]:
        answer = lookup.ids(data["answers"][row["answer"]]["answer"])
        if row["kind"] != "agent" and row["drafter"] != "lookup in the passage":
            assert row["tokens"] == len(answer)
        assert row["tokens"] == row["accepted"] + row["rounds"]
        assert row["accepted"] <= row["tested"] <= row["nodes"]
    leaked = next(row for row in data["rows"] if row["drafter"] == "suffix, answers leaked")
    cold = next(row for row in data["rows"] if row["drafter"] == "suffix, cold")
    assert leaked["rounds"] <= cold["rounds"]


def test_the_cost_of_a_proposal_is_recorded(tmp_path, monkeypatch):
    options = f"--context 60 --count 4 --out {tmp_path}/drafting-toy.json".split()
    monkeypatch.setattr(
        CharacterTokenizer, "encode", lambda self, text: [ord(c) % 48 for c in text[:200]]
    )
    options += ["--work", str(tmp_path)]
    load = lambda self: (CharacterTokenizer(), STORE)
    monkeypatch.setattr(drafting.ProposalTimes, "load", load)
    data = json.loads(execute(drafting.ProposalTimes, options).read_text(encoding="utf-8"))
    jsonschema.validate(data, SCHEMAS["proposal-times"])
    assert data["indexes"]["suffix array"]["bytes"] == 8 * len(STORE)


def test_every_drafter_of_the_table_drafts(monkeypatch):
    monkeypatch.setattr(smollm2, "library", lambda tokenizer: STORE)
    monkeypatch.setattr(smollm2, "EXIT", {"layers": 1, "gamma": 1})
    shipped = lambda target, draft: EagleDrafter(target, random_head(target), draft)
    monkeypatch.setattr(EagleDrafter, "from_pretrained", shipped)
    tokenizer = CharacterTokenizer()
    pair = Pair(TARGET, None, tokenizer)
    plain = generate(TARGET, [1, 2, 3], None, 12).tokens
    for name, make in smollm2.DRAFTERS.items():
        for gamma in (1, 6):
            out = generate(TARGET, [1, 2, 3], make(pair, gamma), 12)
            assert torch.equal(out.tokens, plain), name


def test_the_bench_has_every_kind_and_the_requested_drafters(monkeypatch):
    monkeypatch.setattr(smollm2, "load_smollm2", lambda *_: (TARGET, CharacterTokenizer()))
    theirs = lambda *about: SimpleNamespace(about=about, early_exit=lambda **exit: exit)
    monkeypatch.setattr(smollm2, "HuggingFaceLookup", theirs)
    monkeypatch.setattr(smollm2, "smollm2_folder", lambda: "folder")
    options = argparse.Namespace(
        dtypes=["float32"], device="cpu", prompts=2, gammas=[5], temperatures=[0.0], new_tokens=9,
        turns=1, least=1, drafters=["suffix", "prompt_lookup"],
    )  # fmt: skip
    bench = smollm2.bench(options)
    assert [*bench.prompts] == ["question", "code", "edit", "json", "summary", "story", "agent"]
    assert {len(rows) for rows in bench.prompts.values()} == {2} and {*bench.drafters} == {
        "suffix",
        "prompt_lookup",
    }
    assert bench.stops == (2,) and {*bench.others} == {"hf_plain", "hf_lookup"}
    other = bench.others["hf_lookup"]
    assert other.decode.about == ("folder", "float32", 5, 2) and other.against == "prompt_lookup"
    steps = replay(bench.drafters["suffix"](bench.pair("float32"), 5), [1], [2, 3], 48)
    assert sum(len(step.tokens) for step in steps) == 2
