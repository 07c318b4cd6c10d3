"""Training Medusa's heads: labels, weights, ranks, calibration text, and a whole run."""

import argparse
import copy
import json
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from heads_zoo import random_heads
from models_zoo import native

from specdec_lite import TokenTree
from specdec_lite.drafters import MedusaDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure import stamps
from specdec_lite.training import medusa, medusa_evaluation
from specdec_lite.training.losses import final_states


@pytest.fixture
def target():
    return native(vocab_size=40, dtype=torch.float32)


ROWS = torch.randint(40, (3, 20), generator=torch.Generator().manual_seed(0))


def test_head_k_is_scored_k_plus_one_ahead_with_a_smaller_weight(target):
    heads = random_heads(target, 3)
    logits = target.head(heads(final_states(target.model, ROWS[:, :-1])))
    losses = [
        F.cross_entropy(logits[:, : 19 - k, k - 1].flatten(0, 1), ROWS[:, k + 1 :].flatten())
        for k in (1, 2, 3)
    ]
    expected = sum(0.8**k * loss for k, loss in zip((1, 2, 3), losses))
    assert medusa.frozen_loss(target.model, heads, partial(final_states, target.model))(
        ROWS
    ).item() == pytest.approx(expected.item(), rel=1e-5)
    own = F.cross_entropy(target.model(ROWS[:, :-1]).flatten(0, 1), ROWS[:, 1:].flatten())
    assert medusa.joint_loss(target.model, heads, 0.5)(ROWS).item() == pytest.approx(
        (own + 0.5 * expected).item(), rel=1e-5
    )


def test_only_joint_training_changes_the_target(target):
    heads = random_heads(target, 2).requires_grad_(True)
    medusa.frozen_loss(target.model, heads, partial(final_states, target.model))(ROWS).backward()
    assert heads.down.grad.abs().sum() > 0 and all(
        weight.grad is None for weight in target.model.parameters()
    )
    target.model.requires_grad_(True)
    medusa.joint_loss(target.model, heads)(ROWS).backward()
    assert all(
        weight.grad is not None and weight.grad.abs().sum() > 0
        for weight in target.model.parameters()
    )


@pytest.mark.parametrize("first", [2, 6])
def test_ranks_are_those_of_the_true_tokens(target, first):
    heads, expected = random_heads(target, 3), []
    drafter = MedusaDrafter(target, heads, TokenTree.chain([0]))
    for row in ROWS:
        for start in range(
            first, len(row) - 2
        ):  # after row[:start] the heads predict row[start : start + 3]
            scores = target.score(row[: start - 1], target.new_cache(), hidden_layers=("final",))
            order = drafter.logits(scores.hidden["final"][0, -1]).argsort(-1, descending=True)
            expected.append([order[k].tolist().index(int(row[start + k])) for k in range(3)])
    ranks = medusa_evaluation.hit_ranks(target, heads, ROWS, first)
    assert ranks.tolist() == expected
    table = medusa_evaluation.accuracies(ranks, 40)
    assert [sum(row) for row in table] == pytest.approx([1] * 3) and table[1][0] == pytest.approx(
        np.mean([row[1] == 0 for row in expected])
    )


class Letters:
    """A tokenizer of 40 tokens: the code of a character modulo 40."""

    encode = staticmethod(lambda text: [ord(c) % 40 for c in text[:600]])


def test_calibration_prompts_are_no_evaluation_prompts():
    used = {
        tuple(Letters.encode(item["text"])[:96])
        for items in medusa_evaluation.evaluation_prompts().values()
        for item in items
    }
    prompts = medusa_evaluation.calibration_prompts(Letters)
    assert (
        len(prompts) > 50
        and prompts.shape[1] == 96
        and not used & set(map(tuple, prompts.tolist()))
    )


@pytest.mark.slow
def test_a_whole_run_trains_stores_and_records(tmp_path, monkeypatch, target):
    streams = {
        name: np.tile(np.arange(40, dtype=np.uint16), 60) for name in ("library", "tests", "docs")
    }  # a text that any head can learn
    monkeypatch.setattr(medusa, "load_pair", lambda **options: Pair(target, None, Letters))
    monkeypatch.setattr(medusa, "prepare", lambda work, start: (Letters, streams))
    monkeypatch.setattr(
        medusa_evaluation, "held_out_rows", lambda tokenizer: torch.arange(40).repeat(4, 2)
    )
    monkeypatch.setattr(
        medusa_evaluation, "calibration_prompts", lambda tokenizer: torch.arange(40).repeat(4, 1)
    )
    parser = argparse.ArgumentParser()
    medusa.add_arguments(parser)
    (tmp_path / "work").mkdir()
    folders = [
        "--out",
        str(tmp_path / "heads"),
        "--record",
        str(tmp_path / "medusa.json"),
        "--work",
        str(tmp_path / "work"),
    ]
    before = {name: weight.clone() for name, weight in target.model.state_dict().items()}
    medusa.run(
        parser.parse_args([*folders, "--frozen-steps", "60", "--joint-steps", "40", "--nodes", "6"])
    )
    assert all(
        torch.equal(weight, before[name]) for name, weight in target.model.state_dict().items()
    )
    drafter = MedusaDrafter.from_pretrained(target, tmp_path / "heads")
    recorded = json.loads((tmp_path / "medusa.json").read_text())
    stamps.validate("medusa.json", recorded)
    frozen, joint = recorded["runs"]
    assert (
        len(drafter.tree) <= 6
        and drafter.heads.count == medusa.COUNT
        and recorded["command"].endswith("--frozen-steps 60 --joint-steps 40 --nodes 6")
    )
    assert (
        frozen["regime"] == "frozen"
        and joint["own_loss"] < frozen["own_loss"]
        and set(frozen["accuracies"]) == {"text", "greedy", "sampled"}
    )
    hits = [sum(map(sum, run["accuracies"]["text"])) / medusa.COUNT for run in (frozen, joint)]
    assert 0.3 < hits[0] < hits[1]  # among ten guesses of 40; by chance 0.25
    other = CausalLM(copy.deepcopy(target.model))
    with torch.no_grad():
        other.model.embedding.weight.mul_(-1.0)
    monkeypatch.setattr(medusa, "load_pair", lambda **options: Pair(other, None, Letters))
    medusa.run(
        parser.parse_args(
            [
                *folders,
                "--regime",
                "frozen",
                "--frozen-steps",
                "60",
                "--joint-steps",
                "40",
                "--nodes",
                "6",
            ]
        )
    )
    again = MedusaDrafter.from_pretrained(
        other, tmp_path / "heads"
    )  # the same folder: trained again, not reused
    assert not torch.equal(again.heads.down, drafter.heads.down)
    assert "--regime frozen" in json.loads((tmp_path / "medusa.json").read_text())["command"]
