"""Trained heads: what a row is scored on, and a whole run of every row of the table.

That training computes what drafting computes, from what drafting has, is tested in
tests/drafters/test_heads.py.
"""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from heads_zoo import random_correction, random_head, random_heads
from letters import Letters
from models_zoo import native

from specdec_lite import TokenTree, drafters, generate
from specdec_lite.drafters.heads import ExitHead
from specdec_lite.drafters.parallel import Correction
from specdec_lite.drafters.self_drafts import LookaheadRows
from specdec_lite.loading.pairs import Pair
from specdec_lite.loading.weights import FILE, load, read, read_stored
from specdec_lite.measure import stamps
from specdec_lite.training import anchors, evaluation, heads, loop, texts
from specdec_lite.training.__main__ import main
from specdec_lite.training.unroll import Recipe, unroll, unrolled_loss

TARGET = native(vocab_size=40, num_layers=8, dtype=torch.float32)
TEXT = torch.randint(40, (3, 24), generator=torch.Generator().manual_seed(0))
ANCHORS = torch.tensor([4, 9, 16, 20])


def states(tokens=TEXT):
    layers = (0, 1, 2, 3, 5, "final")
    hidden = TARGET.score(tokens, TARGET.new_cache(*tokens.shape), hidden_layers=layers).hidden
    return {layer: rows.clone() for layer, rows in hidden.items()}


HEADS = {
    "heads": lambda: random_heads(TARGET),
    "corrected": lambda: torch.nn.ModuleDict(
        {"rows": random_heads(TARGET), "correction": random_correction(TARGET)}
    ),
}


def test_the_loss_is_that_of_the_predicted_tokens():
    head = HEADS["corrected"]()
    loss = anchors.anchor_loss(head, TARGET, TEXT, states(), ANCHORS, 3, 0.5)
    logits = anchors.anchor_logits(head, TARGET, TEXT, states(), ANCHORS, 3).log_softmax(-1)
    p = TARGET.score(TEXT, TARGET.new_cache(*TEXT.shape)).logits.softmax(-1)
    total = 0.0
    for depth in range(3):
        each = [-(p[:, a + depth] * logits[:, i, depth]).sum(-1) for i, a in enumerate(ANCHORS)]
        total += 0.5**depth * torch.stack(each).mean() / 1.75
    assert float(loss) == pytest.approx(float(total), rel=1e-5)


def test_each_pass_is_scored_on_the_token_it_predicts():
    head, known = random_head(TARGET, ids=torch.arange(2, 38)), states()
    for name in ("feature", "distillation", "data"):
        recipe = Recipe(**{name: 1.0}, decay=0.5)
        expected = 0.0
        for step, output in enumerate(unroll(head, known, TARGET.embed(TEXT), 3)):
            predicted = slice(step + 1, step + 1 + output.shape[1])
            feature = known["final"][:, predicted]
            q = head.logits(output, head.rows(TARGET)).log_softmax(-1)
            if name == "feature":
                value = torch.nn.functional.smooth_l1_loss(output, feature)
            elif name == "distillation":
                p = TARGET.head(feature)[..., 2:38].softmax(-1)
                value = -(p * q).sum(-1).mean()
            else:
                following = TEXT[:, step + 2 : step + 2 + output.shape[1]]
                real = (following >= 2) & (following < 38)
                value = -q[real].gather(-1, following[real][:, None] - 2).mean()
            expected = expected + 0.5**step * value
        counted = torch.ones_like(TEXT, dtype=torch.bool)
        loss = unrolled_loss(head, TARGET, TEXT, known, counted, recipe, 3)
        assert loss.item() == pytest.approx(float(expected), rel=1e-4)


def wrapped(target, known, anchors, depths):
    """Return distributions of rolled states: after the text's end they are those of its start."""
    rolled = [known["final"].roll(-depth, 1)[:, anchors] for depth in range(depths)]
    return target.head(torch.stack(rolled, 2)).softmax(-1)


def test_no_token_after_the_end_is_scored(monkeypatch):
    counted = torch.ones_like(TEXT, dtype=torch.bool)
    assert heads.usable_anchors(counted, 3).tolist() == list(range(1, 21))
    counted[:, :7] = False
    assert heads.usable_anchors(counted, 3).tolist() == list(range(6, 21))

    def moved(anchor):
        """Return whether another first state changes the loss of a head that reads its own row."""
        losses = []
        for shift in (0.0, 1.0):
            known = states()
            known["final"][:, 0] += shift
            where = torch.tensor([anchor])
            loss = anchors.anchor_loss(HEADS["heads"](), TARGET, TEXT, known, where, 3, 1.0)
            losses.append(float(loss))
        return abs(losses[0] - losses[1]) > 1e-6

    assert not moved(20)
    with pytest.raises(IndexError):
        moved(22)
    monkeypatch.setattr(anchors, "target_probs", wrapped)
    assert moved(22)


def test_only_tokens_that_the_target_wrote_are_scored():
    """Prompts and padding change no loss."""
    counted = torch.ones_like(TEXT, dtype=torch.bool)
    counted[0, :9] = counted[1, 15:] = False
    positions = heads.usable_anchors(counted, 1)
    head = HEADS["heads"]()
    loss = lambda *rows: float(anchors.anchor_loss(head, TARGET, *rows))
    alone = [
        loss(
            TEXT[i : i + 1],
            {layer: part[i : i + 1] for layer, part in states().items()},
            torch.tensor([a]),
            1,
            1.0,
        )
        for i in range(3)
        for a in positions.tolist()
        if counted[i, a + 1]
    ]
    right = loss(TEXT, states(), positions, 1, 1.0, counted)
    assert right == pytest.approx(sum(alone) / len(alone), rel=1e-5)
    assert abs(right - loss(TEXT, states(), positions, 1, 1.0)) > 1e-4


# Whole runs ---------------------------------------------------------------------------------------

KINDS = [
    (name, kind)
    for name, kinds in heads.HEADS.items()
    for kind in kinds
    if (name, kind) not in (("smollm2", "early_exit"), ("smollm2", "pass_rows"))  # as the pair's
]
KIND = pytest.mark.parametrize("name, kind", KINDS)
LOAD = {
    "blockwise": lambda path: drafters.BlockwiseDrafter.from_pretrained(TARGET, path),
    "medusa": lambda path: drafters.MedusaDrafter.from_pretrained(TARGET, path),
    "early_exit": lambda path: drafters.EarlyExitDrafter(
        TARGET, 2, 3, adapter=load(path, TARGET, ExitHead)
    ),
    "pass_rows": lambda path: drafters.PassDrafter(TARGET, load(path, TARGET, LookaheadRows)),
    "eagle1": lambda path: drafters.EagleDrafter.from_pretrained(TARGET, 1, path),
    "hass": lambda path: drafters.EagleDrafter.from_pretrained(TARGET, 1, path),
    "eagle3": lambda path: drafters.EagleDrafter.from_pretrained(TARGET, 3, path),
    "mtp": lambda path: drafters.MtpDrafter.from_pretrained(TARGET, path),
    "mlp_speculator": lambda path: drafters.MlpSpeculatorDrafter.from_pretrained(TARGET, path),
    "pard": lambda path: drafters.PardDrafter.from_pretrained(TARGET, path),
    "block_diffusion": lambda path: drafters.BlockDiffusionDrafter.from_pretrained(TARGET, path),
    "hydra": lambda path: drafters.HydraDrafter.from_pretrained(TARGET, path),
    "markov": lambda path: drafters.MarkovDrafter(
        TARGET, heads.load("", TARGET, None), load(path, TARGET, Correction)
    ),
}


@pytest.fixture
def tiny(monkeypatch):
    """Replace the targets, their texts and the sizes of a run by tiny ones."""
    samples = [
        texts.Sample(row[: 24 - i], 5 + i, "a", temperature)
        for temperature in (0.0, 1.0)
        for i, row in enumerate(TEXT)
    ]
    ours = lambda *args: texts.Texts(samples * 3, samples)
    draft = native(vocab_size=40, seed=2, dtype=torch.float32)
    streams = {"library": np.tile(np.arange(40, dtype=np.uint16), 20)}
    monkeypatch.setattr(heads, "load_pair", lambda **options: Pair(TARGET, draft, None))
    monkeypatch.setattr(heads, "load_smollm2", lambda *options: (TARGET, None))
    monkeypatch.setattr(heads, "TEXTS", dict.fromkeys(heads.HEADS, ours))
    monkeypatch.setattr(heads, "prepare", lambda *args: (None, streams))
    monkeypatch.setattr(heads, "own_stream", lambda *args: streams)
    monkeypatch.setattr(heads, "DRAFT_VOCABULARY", 24)
    shipped = None, heads.stored_heads
    known = lambda *args: random_heads(TARGET, 4) if args[2] in shipped else load(*args)
    monkeypatch.setattr(heads, "load", known)
    monkeypatch.setattr(evaluation, "calibration_prompts", lambda tokenizer: TEXT[:, :6])
    monkeypatch.setattr(evaluation, "held_out_rows", lambda tokenizer: TEXT)
    monkeypatch.setattr(evaluation, "OWN_TOKENS", 10)
    for name, kind in KINDS:
        if windows := heads.HEADS[name][kind].windows:
            windows = replace(windows, batch=2, context=20, long_context=20)
            row = replace(heads.HEADS[name][kind], windows=windows)
            monkeypatch.setitem(heads.HEADS[name], kind, row)


@KIND
def test_a_run_stores_a_drafter_and_ends_the_same_if_interrupted(
    name, kind, tiny, tmp_path, monkeypatch
):
    before = [weight.clone() for weight in TARGET.model.parameters()]
    words = ["heads", "--target", name, "--kind", kind, "--steps", "4", "--rate", "0.01"]

    def run(folder):
        main([*words, "--out", str(tmp_path / folder), "--work", str(tmp_path / f"{folder}-work")])
        return read_stored(tmp_path / folder / FILE, "")[1]

    whole = run("whole")
    times, steps, one_step = count(0.0, 200.0), count(), loop.one_step  # a checkpoint per step

    def interrupted(*args):
        if next(steps) == 2:
            raise KeyboardInterrupt
        return one_step(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop.time, "monotonic", lambda: next(times))
        patch.setattr(loop, "one_step", interrupted)
        run("parts")
    done = []
    monkeypatch.setattr(loop, "one_step", lambda *args: done.append(1) or one_step(*args))
    parts = run("parts")
    assert len(done) == 2 and all(torch.equal(whole[part], parts[part]) for part in whole)
    assert all(map(torch.equal, before, TARGET.model.parameters()))
    report = json.loads((tmp_path / "whole" / "report.json").read_text(encoding="utf-8"))
    stamps.validate("report.json", report)
    assert f"--kind {kind}" in report["command"] and report["steps"] == 4
    again = heads.Trainer(name, heads.HEADS[name][kind], tmp_path, start=tmp_path / "whole")
    trained, weights = again.stored()[0].state_dict(), read(tmp_path / "whole" / FILE, "")[1]
    assert all(torch.equal(trained[part].float(), weights[part].float()) for part in weights)
    depths = heads.HEADS[name][kind].depths
    assert len(report["held_out"]["alpha"]["mean"] if depths else []) == depths
    drafter = LOAD[kind](tmp_path / "whole")
    plain = generate(TARGET, TEXT[0, :6].tolist(), max_new_tokens=12)
    out = generate(TARGET, TEXT[0, :6].tolist(), drafter, 12)
    assert out.tokens.tolist() == plain.tokens.tolist()
    if name == "smollm2" and kind != "markov" and depths:
        words = getattr(drafter, "heads", getattr(drafter, "head", None))
        ids = set((words.ids if hasattr(words, "ids") else words.words.ids).tolist())
        assert {token for step in out.steps for token in step.tree.tokens.tolist()} <= ids


@KIND
def test_training_lowers_the_loss(name, kind, tiny, tmp_path):
    trainer = heads.Trainer(name, heads.HEADS[name][kind], tmp_path)
    tokens = (torch.arange(21) + torch.arange(40)[:, None]) % 40  # every window of the stream
    if not trainer.method.windows:
        tokens, counted = texts.batch_by_length(trainer.texts.training, 9, 5)[0]
    batch = heads.Batch(tokens, None if trainer.method.windows else counted)

    def loss():
        with torch.no_grad():
            return trainer.method.loss(trainer, batch).item()

    before = loss()
    trainer.train(tmp_path / "run.pt", 60 if trainer.method.windows else 30, 1e-2)
    assert loss() < 0.97 * before
    assert not any(weight.requires_grad for weight in trainer.head.parameters())


def test_windows_are_scored_on_the_states_of_their_own_tokens(tiny, tmp_path):
    trainer = heads.Trainer("pair", heads.HEADS["pair"]["medusa"], tmp_path)
    own, rows = heads.on_windows(lambda *args: args[2:], trainer, heads.Batch(TEXT))
    assert rows is TEXT and torch.allclose(own, states()["final"][:, :-1], atol=0.02)


def test_later_passes_are_trained_late(tiny, tmp_path, monkeypatch):
    passes = []
    unrolled = heads.unrolled_loss
    monkeypatch.setattr(
        heads, "unrolled_loss", lambda *args: passes.append(args[-1]) or unrolled(*args)
    )
    trainer = heads.Trainer("pair", heads.HEADS["pair"]["eagle1"], tmp_path)
    trainer.train(tmp_path / "run.pt", 10)
    assert passes == [1] * 7 + [3] * 3


def test_a_kind_that_a_target_lacks_is_rejected(tiny, tmp_path):
    with pytest.raises(ValueError, match="kind='pard'"):
        main(["heads", "--target", "smollm2", "--kind", "pard", "--out", str(tmp_path)])


# Texts and ranks ----------------------------------------------------------------------------------


def test_smollm2s_answers_are_read(monkeypatch):
    """The repository holds 288 held-out answers and 64 others, each after its chat prompt."""
    monkeypatch.chdir(Path(__file__).parents[2])
    read = texts.smollm2_texts(TARGET, None, Path())
    assert len(read.held_out) == 288 and len(read.training) == 64
    every = [*read.held_out, *read.training]
    assert {text.temperature for text in every} == {0.0, 0.7, 1.0}
    assert all(5 < text.start < len(text.ids) and int(text.ids.max()) < 49152 for text in every)
    assert len(texts.smollm2_texts(TARGET, None, Path(), 8).training) == 8
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(ValueError, match="training_text"):
        texts.smollm2_texts(TARGET, None, Path())


def test_the_pairs_texts_are_the_targets_continuations(tmp_path, monkeypatch):
    streams = {"library": np.tile(np.arange(40, dtype=np.uint16), 20)}
    monkeypatch.setattr(texts, "prepare", lambda *args: (None, streams))
    monkeypatch.setattr(texts, "calibration_prompts", lambda tokenizer: TEXT[:, :6])
    read = texts.pair_texts(TARGET, None, tmp_path, 6, prompt=6, new=5)
    assert [text.temperature for text in read.training] == [0.0] * 3 + [1.0] * 3
    assert len(read.held_out) == 6 and {text.start for text in read.training} == {6}
    for text in (*read.training[:3], *read.held_out[:3]):
        plain = generate(TARGET, text.ids[:6].tolist(), max_new_tokens=5)
        assert text.ids[6:].tolist() == plain.tokens.tolist()


def test_calibration_prompts_are_no_evaluation_prompts():
    letters = Letters(40)
    used = {
        tuple(letters.encode(item["text"])[:96])
        for items in texts.evaluation_prompts().values()
        for item in items
    }
    prompts = texts.calibration_prompts(letters)
    assert len(prompts) > 50 and prompts.shape[1] == 96
    assert not used & set(map(tuple, prompts.tolist()))


@pytest.mark.parametrize("first", [2, 6])
def test_ranks_are_those_of_the_true_tokens(first):
    medusa, expected = random_heads(TARGET, 3), []
    drafter = drafters.MedusaDrafter(TARGET, medusa, TokenTree.chain([0]))
    for row in TEXT:
        for start in range(first, len(row) - 2):
            # After row[:start] the heads predict row[start : start + 3].
            scores = TARGET.score(row[: start - 1], TARGET.new_cache(), hidden_layers=("final",))
            order = drafter.logits(scores.hidden["final"][0, -1]).argsort(-1, descending=True)
            expected.append([order[k].tolist().index(int(row[start + k])) for k in range(3)])
    assert evaluation.hit_ranks(TARGET, medusa, TEXT, first).tolist() == expected
    table = evaluation.rank_table(TARGET, medusa, TEXT, first)
    assert table[1][0] == pytest.approx(np.mean([row[1] == 0 for row in expected]))
