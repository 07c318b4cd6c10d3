"""Training EAGLE-like heads: what a row attends to, what it is scored on, whole runs.

That training computes what drafting computes is tested in tests/drafters/test_eagle.py.
"""

import argparse
import json

import pytest
import torch
from features_zoo import KINDS, random_head
from models_zoo import native

from specdec_lite.drafters import EagleDrafter
from specdec_lite.loading.pairs import Pair
from specdec_lite.training import eagle
from specdec_lite.training.loop import Plan
from specdec_lite.training.unroll import RECIPES, Recipe, acceptance_by_depth, unroll, unrolled_loss

TARGET = native(vocab_size=40, dtype=torch.float32)
TEXT = torch.randint(40, (3, 20), generator=torch.Generator().manual_seed(0))
COUNTED = torch.ones_like(TEXT, dtype=torch.bool)


def features(tokens, layers=(0, 1, 2, "final")):
    hidden = TARGET.score(tokens, TARGET.new_cache(*tokens.shape), hidden_layers=layers).hidden
    return {layer: rows.clone() for layer, rows in hidden.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_attends_to_a_state_that_its_session_lacks(kind):
    """Row i of any pass reads states 0 … i: a mask off by one would look excellent in training."""
    head = random_head(TARGET, kind)
    embedded = TARGET.embed(TEXT)
    right = list(unroll(head, features(TEXT), embedded, 3))
    for moved in (4, 9):
        other = features(TEXT)
        for rows in other.values():
            rows[:, moved] += 1
        for before, after in zip(right, unroll(head, other, embedded, 3)):
            same = (before - after).abs().amax((0, 2)) < 1e-6
            assert same[:moved].all() and not same[moved:].any()
    for moved in (6, 11):
        other = embedded.clone()
        other[:, moved] += 1
        for step, (before, after) in enumerate(zip(right, unroll(head, features(TEXT), other, 3))):
            same = (before - after).abs().amax((0, 2)) < 1e-6
            assert same[: moved - step - 1].all() and not same[moved - step - 1 :].any()


def test_each_pass_is_scored_on_the_token_it_predicts():
    head = random_head(TARGET, ids=torch.arange(2, 38))
    states = features(TEXT)
    for name in ("feature", "distillation", "data"):
        recipe = Recipe(**{name: 1.0}, decay=0.5)
        expected = 0.0
        for step, output in enumerate(unroll(head, states, TARGET.embed(TEXT), 3)):
            predicted = slice(step + 1, step + 1 + output.shape[1])
            feature = states["final"][:, predicted]
            q = head.logits(output, head.rows(TARGET)).log_softmax(-1)
            if name == "feature":
                value = torch.nn.functional.smooth_l1_loss(output, feature)
            elif name == "distillation":
                p = TARGET.head(feature)[..., 2:38].softmax(-1)
                value = -(p * q).sum(-1).mean()
            else:
                following = TEXT[:, step + 2 : step + 2 + output.shape[1]]
                known = (following >= 2) & (following < 38)
                value = -q[known].gather(-1, following[known][:, None] - 2).mean()
            expected = expected + 0.5**step * value
        loss = unrolled_loss(head, TARGET, TEXT, states, COUNTED, recipe, 3)
        assert loss.item() == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("name", RECIPES)
def test_a_head_learns_once_and_the_target_does_not_change(name, tmp_path):
    before = [weight.clone() for weight in TARGET.model.parameters()]
    samples = [eagle.Sample(row, 5) for row in TEXT] * 2
    data = eagle.batch_by_length(samples, 2, RECIPES[name].steps + 1)
    plan = Plan(30, 1e-2, 2, warmup=1, weight_decay=0.0)
    read_features = lambda tokens: features(tokens, (0, 1, 2, "final"))
    layers = None if name != "3" else (0, 1, 2)

    def train_head(steps=None):
        head = eagle.initialize_head(eagle.KINDS[name].for_target(TARGET, layers=layers), TARGET)
        eagle.fit(head, TARGET, data, read_features, RECIPES[name], plan, tmp_path / "head.pt")
        return head

    def loss(head):
        tokens, counted = data[0]
        with torch.no_grad():
            return unrolled_loss(
                head, TARGET, tokens, read_features(tokens), counted, RECIPES[name], 1
            )

    fresh = eagle.initialize_head(eagle.KINDS[name].for_target(TARGET, layers=layers), TARGET)
    head = train_head()
    assert loss(head) < 0.9 * loss(fresh)
    again = train_head()
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), again.parameters()))
    assert all(map(torch.equal, before, TARGET.model.parameters()))


def test_acceptance_by_depth_equals_that_of_the_distributions():
    head = random_head(TARGET, ids=torch.arange(30))
    rows = acceptance_by_depth(head, TARGET, TEXT, COUNTED, 2)
    p = TARGET.head(features(TEXT)["final"]).softmax(-1)
    for step, output in enumerate(unroll(head, features(TEXT), TARGET.embed(TEXT), 2)):
        q = head.spread(head.logits(output, head.rows(TARGET)), 40).softmax(-1)
        true = p[:, step + 1 : step + 1 + q.shape[1]]
        assert torch.allclose(
            rows[step]["alpha"], torch.minimum(true, q).sum(-1).flatten(), atol=1e-5
        )
        assert torch.equal(rows[step]["agrees"], (true.argmax(-1) == q.argmax(-1)).flatten())


def test_a_run_continues_from_a_trained_head(tmp_path, monkeypatch):
    target = native(vocab_size=40)
    samples = [eagle.Sample(row, 5, "text", 0.0) for row in TEXT]
    monkeypatch.setattr(eagle, "load_pair", lambda **options: Pair(target, target, None))
    monkeypatch.setattr(eagle, "pair_texts", lambda *args: eagle.Texts(samples, samples))
    parser = argparse.ArgumentParser()
    eagle.add_arguments(parser)

    def trained(name: str, *arguments: str) -> torch.Tensor:
        folders = ["--work", str(tmp_path / "w"), "--out", str(tmp_path / name)]
        eagle.run(parser.parse_args(["--epochs", "2", "--batch", "2", *arguments, *folders]))
        return EagleDrafter.from_pretrained(target, 1, tmp_path / name).head.fuse.weight

    first = trained("first", "--vocabulary", "30")
    start = ("--start", str(tmp_path / "first"))
    still = trained("still", *start, "--rate", "1e-12")
    further = trained("further", *start, "--rate", "1e-2", "--epochs", "3")
    assert still.shape == first.shape and (still - first).abs().max() < 0.01 * first.abs().max()
    assert (further - first).abs().max() > 0.05 * first.abs().max()


@pytest.mark.parametrize("name, dtype", [("pair", torch.float32), ("smollm2", torch.bfloat16)])
def test_a_whole_run(name, dtype, tmp_path, monkeypatch):
    target = native(vocab_size=40, dtype=dtype)
    samples = [eagle.Sample(row, 5, "text", t) for t in (0.0, 1.0) for row in TEXT]
    monkeypatch.setattr(eagle, "load_pair", lambda **options: Pair(target, target, None))
    monkeypatch.setattr(eagle, "load_smollm2", lambda *args: (target, None))
    monkeypatch.setattr(eagle, f"{name}_texts", lambda *args: eagle.Texts(samples, samples))
    parser = argparse.ArgumentParser()
    eagle.add_arguments(parser)
    arguments = f"--target {name} --epochs 2 --batch 2 --vocabulary 30 --version 1".split()
    eagle.run(
        parser.parse_args([*arguments, "--work", str(tmp_path / "w"), "--out", str(tmp_path)])
    )
    drafter = EagleDrafter.from_pretrained(target, 1, tmp_path)
    assert len(drafter.head.ids) == 30 and drafter.head.fuse.weight.dtype == dtype
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert len(report["held_out"]["text"]["alpha"]["mean"]) == eagle.DEPTHS
    assert f"--target {name} --version 1 --batch 2 --vocabulary 30" in report["command"].replace(
        " --epochs 2.0", ""
    )
