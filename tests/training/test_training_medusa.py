"""Training Medusa's heads: shifted labels, decaying weights, ranks, the calibration text, and a
whole run on a tiny target.
"""

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

from specdec_lite import TokenTree, results
from specdec_lite.drafters import MedusaDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import Pair
from specdec_lite.training import medusa
from specdec_lite.training.losses import final_states


@pytest.fixture
def target():
    return native(vocab_size=40, dtype=torch.float32)


ROWS = torch.randint(40, (3, 20), generator=torch.Generator().manual_seed(0))


def test_head_k_is_scored_on_the_token_k_plus_one_ahead_and_weighs_less(target):
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


def test_only_joint_training_moves_the_target(target):
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
def test_ranks_are_those_of_the_tokens_that_came(target, first):
    heads, found = random_heads(target, 3), []
    drafter = MedusaDrafter(target, heads, TokenTree.chain([0]))
    for row in ROWS:
        for start in range(
            first, len(row) - 2
        ):  # the heads, read after row[:start], say row[start], row[start + 1], row[start + 2]
            scores = target.score(row[: start - 1], target.new_cache(), hidden_layers=("final",))
            order = drafter.logits(scores.hidden["final"][0, -1]).argsort(-1, descending=True)
            found.append([order[k].tolist().index(int(row[start + k])) for k in range(3)])
    ranks = medusa.hit_ranks(target, heads, ROWS, first)
    assert ranks.tolist() == found
    table = medusa.accuracies(ranks, 40)
    assert [sum(row) for row in table] == pytest.approx([1] * 3) and table[1][0] == pytest.approx(
        np.mean([row[1] == 0 for row in found])
    )


class Letters:
    """A tokenizer of 40 tokens: a character's code, modulo 40."""

    encode = staticmethod(lambda text: [ord(c) % 40 for c in text[:600]])


def test_calibration_prompts_are_held_out_and_none_is_evaluated_on():
    used = {
        tuple(Letters.encode(item["text"])[:96])
        for items in medusa.evaluation_prompts().values()
        for item in items
    }
    prompts = medusa.calibration_prompts(Letters)
    assert (
        len(prompts) > 50
        and prompts.shape[1] == 96
        and not used & set(map(tuple, prompts.tolist()))
    )


def test_a_whole_run_trains_measures_stores_and_records(tmp_path, monkeypatch, target):
    streams = {
        name: np.tile(np.arange(40, dtype=np.uint16), 60) for name in ("library", "tests", "docs")
    }  # a text that any head can learn
    monkeypatch.setattr(medusa, "load_pair", lambda **options: Pair(target, None, Letters))
    monkeypatch.setattr(medusa, "prepare", lambda work, start: (Letters, streams))
    monkeypatch.setattr(medusa, "held_out_rows", lambda tokenizer: torch.arange(40).repeat(4, 2))
    monkeypatch.setattr(
        medusa, "calibration_prompts", lambda tokenizer: torch.arange(40).repeat(4, 1)
    )
    parser = argparse.ArgumentParser()
    medusa.add_arguments(parser)
    (tmp_path / "work").mkdir()
    places = [
        "--out",
        str(tmp_path / "heads"),
        "--record",
        str(tmp_path / "medusa.json"),
        "--work",
        str(tmp_path / "work"),
    ]
    before = {name: weight.clone() for name, weight in target.model.state_dict().items()}
    medusa.run(
        parser.parse_args([*places, "--frozen-steps", "60", "--joint-steps", "40", "--nodes", "6"])
    )
    assert all(
        torch.equal(weight, before[name]) for name, weight in target.model.state_dict().items()
    )
    drafter = MedusaDrafter.from_pretrained(target, tmp_path / "heads")
    recorded = json.loads((tmp_path / "medusa.json").read_text())
    results.validate("medusa.json", recorded)
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
    learnt = [sum(map(sum, run["accuracies"]["text"])) / medusa.COUNT for run in (frozen, joint)]
    assert 0.3 < learnt[0] < learnt[1]  # among ten guesses of 40; by chance 0.25
    other = CausalLM(copy.deepcopy(target.model))
    with torch.no_grad():
        other.model.embedding.weight.mul_(-1.0)
    monkeypatch.setattr(medusa, "load_pair", lambda **options: Pair(other, None, Letters))
    medusa.run(
        parser.parse_args(
            [
                *places,
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
    )  # in the same folder: trained anew, not taken over
    assert not torch.equal(again.heads.down, drafter.heads.down)
    assert "--regime frozen" in json.loads((tmp_path / "medusa.json").read_text())["command"]
