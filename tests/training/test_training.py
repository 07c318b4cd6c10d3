"""Training the pair: exact resumption, and measures on text that it was not trained on."""

import json
import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import TEXTS
from models_zoo import native

from specdec_lite import corpus, load_pair, theory, training
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.training import (
    Plan,
    batches,
    distillation_loss,
    evaluation,
    held_out_logits,
    initialize,
    loop,
    measure,
    next_token_loss,
    pair,
    tokenize,
    train,
    train_tokenizer,
)
from specdec_lite.training.__main__ import main

SHAPE = TransformerConfig(
    vocab_size=300,
    hidden_size=16,
    intermediate_size=24,
    num_layers=1,
    num_heads=2,
    num_kv_heads=2,
    head_size=8,
)
PLAN = Plan(steps=12, learning_rate=1e-2, batch=2, context=16, long_context=32, warmup=2)
STREAMS = {
    name: np.random.default_rng(i).integers(0, 300, 400).astype(np.uint16)
    for i, name in enumerate(training.MIXTURE)
}


class Interrupted(Exception):
    pass


def run(folder, interrupt_at=None, **options):
    """Return the weights after the plan; raise Interrupted before step `interrupt_at`."""
    model = initialize(Transformer(SHAPE))
    loss, count = next_token_loss(model), iter(range(100))

    def counted(rows):
        if next(count) == interrupt_at:
            raise Interrupted
        return loss(rows)

    folder.mkdir(exist_ok=True)
    train(model, counted, STREAMS, PLAN, folder / "model.pt", **options)
    return model.state_dict()


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, monkeypatch):
    clock = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))  # long enough to save every step
    whole, timed = run(tmp_path / "whole"), initialize(Transformer(SHAPE)).state_dict()
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", interrupt_at=5)
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", interrupt_at=4)
    stored = lambda: torch.load(tmp_path / "parts" / "model.pt", weights_only=True)
    earlier = stored()["seconds"]
    parts = run(tmp_path / "parts")
    assert stored()["seconds"] > earlier + 1000 > 1000, "the seconds of earlier parts count"
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert not torch.equal(
        whole["embedding.weight"], initialize(Transformer(SHAPE)).state_dict()["embedding.weight"]
    )
    for _ in range(PLAN.steps):  # each call ends with its time, after a step
        assert not any(map(torch.equal, whole.values(), timed.values()))
        timed = run(tmp_path / "timed", limit=0)
    finished = run(tmp_path / "parts")  # nothing left to do
    for other in (finished, timed):
        assert all(torch.equal(whole[name], other[name]) for name in whole)


def test_only_matrices_decay(tmp_path):
    model = Transformer(SHAPE)
    model.blocks[0].norm1.requires_grad_(False)
    groups = training.adamw(model, PLAN).param_groups
    decay = {id(w): group["weight_decay"] for group in groups for w in group["params"]}
    expected = {
        id(w): PLAN.weight_decay * (w.dim() == 2) for w in model.parameters() if w.requires_grad
    }
    assert decay == expected and {group["lr"] for group in groups} == {PLAN.learning_rate}


def test_the_checkpoint_of_another_run_is_rejected(tmp_path):
    run(tmp_path)
    shorter = {name: stream[:-1] for name, stream in STREAMS.items()}
    faster = replace(PLAN, learning_rate=2e-2)
    for plan, seed, streams in ((faster, 0, STREAMS), (PLAN, 1, STREAMS), (PLAN, 0, shorter)):
        model = initialize(Transformer(SHAPE), seed)
        with pytest.raises(ValueError, match="model.pt"):
            train(model, next_token_loss(model), streams, plan, tmp_path / "model.pt")


def test_training_learns(tmp_path):
    """The model learns a text of period 4: its loss is below that of guessing."""
    model = initialize(Transformer(SHAPE))
    text, loss = [3, 1, 4, 1] * 100, next_token_loss(model)
    streams = dict.fromkeys(training.MIXTURE, np.array(text, dtype=np.uint16))
    plan = Plan(60, 1e-2, batch=4, context=32, long_context=64, warmup=5)
    train(model, loss, streams, plan, tmp_path / "m.pt")
    assert not model.training and loss(torch.tensor([text[:32]])).item() < 2 < math.log(300)


def test_batches_depend_on_seed_and_step_alone():
    whole = list(batches(STREAMS, PLAN))
    assert all(map(torch.equal, whole[7:], batches(STREAMS, PLAN, first=7))) and len(whole) == 12
    shapes = [tuple(rows.shape) for rows in whole]
    assert shapes == [(2, 17)] * 11 + [(1, 33)]  # the last tenth: longer rows, as many tokens
    assert not torch.equal(whole[0], next(batches(STREAMS, Plan(12, 1e-2, 2, 16, 32, seed=1))))


def test_the_learning_rate_warms_up_stays_and_falls_to_zero():
    plan = Plan(steps=1000, learning_rate=2.0, warmup=100)
    assert plan.rate(0) == pytest.approx(0.02) and plan.rate(99) == plan.rate(300) == 2.0
    assert plan.rate(650) == pytest.approx(1.0) and 0 < plan.rate(999) < 0.01
    assert plan.window(899) == (8, 512) and plan.window(900) == (4, 1024)


def test_the_distillation_loss_is_the_rejection_rate_plus_some_kl():
    target, draft = (native(seed=s, dtype=torch.float32).model for s in (1, 2))
    rows = torch.tensor([[5, 17, 3, 41, 9]])
    p, q = (model(rows[:, :-1]).softmax(-1) for model in (target, draft))
    rejected = 1 - theory.acceptance_rate(p, q).mean()
    divergence = F.kl_div(q.log(), p, reduction="none").sum(-1).mean()
    assert distillation_loss(draft, target)(rows).item() == pytest.approx(
        (rejected + 0.1 * divergence).item(), rel=1e-4
    )


def test_streams_are_cut_once_and_again_for_another_tokenizer(tmp_path, monkeypatch):
    read = []
    texts = lambda: read.append(1) or dict.fromkeys(training.MIXTURE, TEXTS)
    monkeypatch.setattr(training.token_streams, "training_text", texts)
    _, streams = training.prepare(tmp_path)
    reads = len(read)
    _, again = training.prepare(tmp_path)
    assert set(streams) == {"library", "tests", "docs"} and len(read) == reads
    assert all(np.array_equal(streams[n], again[n]) for n in streams)
    train_tokenizer(TEXTS, vocabulary=260).save_pretrained(tmp_path / "other" / "target")
    _, other = training.prepare(tmp_path, start=tmp_path / "other")
    assert len(other["docs"]) > len(streams["docs"])
    cut = len(read)
    training.prepare(tmp_path, start=tmp_path / "other")
    assert len(read) == cut
    train_tokenizer(TEXTS, vocabulary=300).save_pretrained(tmp_path / "third" / "target")
    with monkeypatch.context() as patch, pytest.raises(TypeError):  # interrupted while it cuts
        patch.setattr(training.token_streams, "tokenize", None)
        training.prepare(tmp_path, start=tmp_path / "third")
    _, third = training.prepare(tmp_path, start=tmp_path / "third")
    assert len(third["docs"]) < len(other["docs"]), "not the streams of the tokenizer before"


def test_the_command_trains_a_pair_that_loads(tmp_path, monkeypatch):
    """Three stages have rates, steps and seeds of their own, and a file of their own to resume."""
    tokenizer = train_tokenizer(TEXTS, vocabulary=300)
    shape = replace(SHAPE, vocab_size=len(tokenizer))
    ids = tokenize(tokenizer, TEXTS)
    streams = dict.fromkeys(training.MIXTURE, np.tile(ids, 1 + 5000 // len(ids)))
    for name, value in (("TARGET", shape), ("DRAFT", replace(shape, num_layers=2))):
        monkeypatch.setattr(pair, name, value)
    monkeypatch.setattr(pair, "prepare", lambda work: (tokenizer, streams))
    monkeypatch.setattr(pair, "STAGES", {n: (rate, 3) for n, (rate, _) in pair.STAGES.items()})
    folders = ["--out", str(tmp_path / "pair"), "--work", str(tmp_path)]
    main(["pair", "--target-steps", "2", *folders])
    report = json.loads((tmp_path / "pair" / "report.json").read_text())["training"]
    assert report["command"].startswith("python -m specdec_lite.training pair --target-steps 2")
    assert (report["target_steps"], report["distil_steps"]) == (2, 3)
    runs = [torch.load(file)["run"]["plan"] for file in tmp_path.glob("*.pt")]
    plans = sorted((plan["seed"], plan["learning_rate"], plan["steps"]) for plan in runs)
    assert plans == [(0, 3e-3, 2), (1, 4e-3, 3), (2, 3e-3, 3)]
    loaded = load_pair(tmp_path / "pair" / "target", tmp_path / "pair" / "draft")
    assert [m.num_layers for m in (loaded.target, loaded.draft)] == [1, 2]


# The tokenizer -------------------------------------------------------------------------------------


def test_the_tokenizer_is_lossless(tokenizer):
    for text in (*TEXTS[:2], "\r\n\t  spaces ", "never seen: ñ\x00"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    ids = tokenize(tokenizer, TEXTS[:2])
    assert ids.dtype == np.uint16 and (ids == 0).sum() == 2
    assert ids[-1] == 0 == tokenizer.eos_token_id


# Measurement ----------------------------------------


def test_every_held_out_token_is_scored_once_with_enough_context():
    model = native(dtype=torch.float32).model
    tokens = torch.randint(48, (37,), generator=torch.Generator().manual_seed(0))
    pieces = list(held_out_logits(model, tokens, context=16))
    assert torch.equal(torch.cat([following for _, following in pieces]), tokens[1:])
    one = torch.cat([logits for logits, _ in held_out_logits(model, tokens, context=64)])
    assert torch.allclose(one, model(tokens[None, :-1])[0], atol=1e-4)
    every = torch.cat([logits for logits, _ in pieces])
    assert len(every) == 36
    for at in range(16, 36):  # later windows: the logits of the tokens that they were given
        start = 8 * ((at - 16) // 8 + 1)
        assert torch.allclose(every[at], model(tokens[None, start : at + 1])[0, -1], atol=1e-4)


def test_measure_counts_bytes_and_overlap(monkeypatch):
    tokenizer = train_tokenizer(TEXTS, vocabulary=280)
    monkeypatch.setattr(
        evaluation,
        "held_out_text",
        lambda: {domain: ["def f(x):\n    return x\n" * 3, "Zürich"] for domain in corpus.HELD_OUT},
    )
    target, draft = (
        native(seed=s, dtype=torch.float32, vocab_size=len(tokenizer)).model for s in (1, 2)
    )
    same = measure(target, tokenizer, target)["all"]
    assert same["alpha"] == pytest.approx(1, abs=1e-5) and same["argmax_agreement"] == 1
    report = measure(target, tokenizer, draft)
    names = {"bits_per_byte", "tokens", "bytes", "alpha", "argmax_agreement"}
    assert set(report) == {*corpus.HELD_OUT, "all"} and set(report["all"]) == names
    assert (
        report["all"]["tokens"] == 3 * report["code"]["tokens"] and 0 < report["all"]["alpha"] < 1
    )
    flat = initialize(Transformer(SHAPE))
    with torch.no_grad():
        flat.embedding.weight.zero_()  # a uniform model: log2(300) bits per token
    uniform = measure(flat, tokenizer, flat)["all"]
    assert uniform["bits_per_byte"] == pytest.approx(
        uniform["tokens"] * math.log2(300) / uniform["bytes"], rel=1e-4
    )


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_a_card_without_bfloat16_trains_in_float32(monkeypatch, has_bfloat16):
    """A card without bfloat16 would emulate it."""
    monkeypatch.setattr(loop, "has_bfloat16", lambda device: has_bfloat16)
    weight = torch.nn.Parameter(torch.ones(2, 2))
    dtypes = []

    def loss(rows):
        output = rows @ weight
        dtypes.append(output.dtype)
        return output.float().sum()

    loop.one_step(
        torch.nn.ParameterList([weight]), loss, torch.ones(1, 2), torch.optim.SGD([weight]), 0.0
    )
    assert dtypes == [torch.bfloat16 if has_bfloat16 else torch.float32]
