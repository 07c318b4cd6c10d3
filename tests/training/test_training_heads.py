"""Heads trained at the same anchors: what a row reads, what it is scored on, whole runs.

That training computes what drafting computes is tested in tests/drafters/test_parallel.py.
"""

import json

import pytest
import torch
from heads_zoo import (
    random_blocks,
    random_correction,
    random_heads,
    random_hydra,
    random_speculator,
)
from models_zoo import native

from specdec_lite import generate
from specdec_lite.drafters import (
    BlockDiffusionDrafter,
    HydraDrafter,
    MarkovDrafter,
    MedusaDrafter,
    MlpSpeculatorDrafter,
    PardDrafter,
)
from specdec_lite.drafters.block_head import Correction
from specdec_lite.loading.pairs import Pair
from specdec_lite.loading.weights import FILE, load, read_stored, save
from specdec_lite.training import anchors, eagle, head_trainer, heads
from specdec_lite.training.__main__ import main
from specdec_lite.tree import TokenTree

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
    "speculator": lambda: random_speculator(TARGET),
    "hydra": lambda: random_hydra(TARGET),
    "pard": lambda: native(vocab_size=41, seed=3, dtype=torch.float32).model,
    "blocks": lambda: random_blocks(TARGET),
    "corrected blocks": lambda: random_blocks(TARGET, rank=2),
}
SEQUENTIAL = {"corrected", "speculator", "corrected blocks"}


@pytest.mark.parametrize("kind", HEADS)
def test_a_row_reads_only_what_drafting_has(kind):
    """A row reads states before the anchor and tokens up to it.

    A sequential head also reads the predicted tokens before its own.
    """
    head = HEADS[kind]()
    rows = lambda tokens, known: anchors.anchor_logits(head, TARGET, tokens, known, ANCHORS, 3)
    right = rows(TEXT, states())
    later = states()
    for part in later.values():
        part[:, 9:, 0] += 3
    moved = (rows(TEXT, later) - right).abs().amax((0, 2, 3)) > 1e-5
    assert moved.tolist() == [False, False, kind != "pard", kind != "pard"]
    for position in range(8, 13):
        other = TEXT.clone()
        other[:, position] = (other[:, position] + 1) % 40
        changed = (rows(other, states()) - right).abs().amax((0, 3))[1] > 1e-5
        seen = [False] * 3
        if kind == "pard" and position <= 9:
            seen = [True] * 3
        elif kind in ("blocks", "corrected blocks") and position == 9:
            seen = [True] * 3
        elif kind in ("speculator", "hydra"):
            seen = [9 <= position <= 9 + depth for depth in range(3)]
        elif kind in SEQUENTIAL:
            seen = [position == 9 + depth for depth in range(3)]
        assert changed.tolist() == seen


def test_a_draft_model_is_evaluated_by_its_own_logits():
    draft = native(vocab_size=41, seed=3, dtype=torch.float32)
    logits = anchors.anchor_logits(draft, TARGET, TEXT, states(), ANCHORS, 3)
    alone = draft.score(TEXT[:, :12], draft.new_cache(3)).logits[:, 9:, :40]
    assert (logits[:, 1] - alone).abs().max() < 1e-5


def test_unknown_kinds_of_heads_are_rejected():
    with pytest.raises(TypeError, match="head is a Linear"):
        anchors.anchor_logits(torch.nn.Linear(2, 2), TARGET, TEXT, states(), ANCHORS, 3)


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


def wrapped(target, known, anchors, depths):
    """Return distributions of rolled states: after the text's end they are those of its start."""
    rolled = [known["final"].roll(-depth, 1)[:, anchors] for depth in range(depths)]
    return target.head(torch.stack(rolled, 2)).softmax(-1)


def test_no_token_after_the_end_is_scored(monkeypatch):
    counted = torch.ones_like(TEXT, dtype=torch.bool)
    assert head_trainer.usable_anchors(counted, 3).tolist() == list(range(1, 21))
    counted[:, :7] = False
    assert head_trainer.usable_anchors(counted, 3).tolist() == list(range(6, 21))

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


def tiny(monkeypatch):
    """Replace the shipped pair and its texts by tiny ones."""
    samples = [eagle.Sample(row, 5, "text", t) for t in (0.0, 1.0) for row in TEXT]
    draft = native(vocab_size=40, seed=2, dtype=torch.float32)
    pair = Pair(TARGET, draft, None)
    monkeypatch.setattr(head_trainer, "load_pair", lambda **options: pair)
    monkeypatch.setattr(head_trainer, "pair_texts", lambda *args: eagle.Texts(samples, samples))
    trainable = lambda trainer, rank=0: random_blocks(TARGET, 8, rank).requires_grad_()
    monkeypatch.setattr(heads, "block_head", trainable)
    monkeypatch.setattr(heads, "load", lambda *args: random_heads(TARGET, 4))
    return pair


@pytest.mark.parametrize("kind", heads.KINDS["pair"])
def test_a_whole_run_resumes_where_it_stopped(kind, tmp_path, monkeypatch):
    pair = tiny(monkeypatch)
    arguments = ["heads", "--kind", kind, "--texts", "16", "--epochs", "4"]
    folder = tmp_path / "out" / "pair"
    arguments += ["--out", str(folder), "--work", str(tmp_path / "work")]
    before = [weight.clone() for weight in TARGET.model.parameters()]
    main(arguments)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert report["steps"] == 4 and len(report["held_out"]["alpha"]["mean"]) >= 4
    if kind == "markov":
        drafter = MarkovDrafter(TARGET, random_heads(TARGET, 4), load(folder, TARGET, Correction))
    else:
        names = {"mlp_speculator": MlpSpeculatorDrafter, "pard": PardDrafter, "hydra": HydraDrafter}
        drafter = names.get(kind, BlockDiffusionDrafter).from_pretrained(TARGET, folder)
    assert drafter.limits().is_chain
    first = read_stored(folder / FILE, "")[1]
    main(arguments)  # from its checkpoint, with nothing left to do
    again = read_stored(folder / FILE, "")[1]
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(map(torch.equal, before, pair.target.model.parameters()))


def tiny_smollm2(monkeypatch):
    """Replace SmolLM2 and its answers by tiny ones of unequal lengths."""
    samples = [
        eagle.Sample(row[: 24 - i], 5 + i, "a", temperature)
        for temperature in (0.0, 1.0)
        for i, row in enumerate(TEXT)
    ]
    texts = eagle.Texts(samples * 3, samples)
    monkeypatch.setattr(head_trainer, "load_smollm2", lambda *options: (TARGET, None))
    monkeypatch.setattr(head_trainer, "smollm2_texts", lambda *args: texts)
    monkeypatch.setattr(heads, "DRAFT_VOCABULARY", 24)
    build = lambda trainer: blocks_of(trainer.most_frequent_tokens(24))
    monkeypatch.setitem(heads.KINDS["smollm2"], "block_diffusion", (build, 3, 1e-3))


def blocks_of(ids):
    head = random_blocks(TARGET, 4, words=len(ids), layers=(2, 4, 5), qk_norm=True)
    head.words.ids.copy_(ids)
    return head.requires_grad_(True)


def test_whole_runs_for_smollm2_with_a_draft_vocabulary(tmp_path, monkeypatch):
    tiny_smollm2(monkeypatch)
    monkeypatch.setattr(heads, "MEDUSA", tmp_path / "medusa" / "pair")
    arguments = ["heads", "--target", "smollm2", "--epochs", "2", "--work", str(tmp_path / "work")]
    reports = {}
    for kind in heads.KINDS["smollm2"]:
        folder = tmp_path / kind / "smollm2"
        main([*arguments, "--kind", kind, "--out", str(folder)])
        reports[kind] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        assert reports[kind]["texts"] == 18 and "--target smollm2" in reports[kind]["command"]
    rates = reports["medusa"]["held_out"]["alpha"]["mean"]
    assert len(rates) == 4 and all(0 < rate < 1 for rate in rates)
    medusa = MedusaDrafter.from_pretrained(
        TARGET, tmp_path / "medusa" / "smollm2", TokenTree([0, 1, 0], [-1, -1, 0])
    )
    correction = load(tmp_path / "markov" / "smollm2", TARGET, Correction)
    blocks = BlockDiffusionDrafter.from_pretrained(TARGET, tmp_path / "block_diffusion" / "smollm2")
    vocabulary = set(medusa.heads.words.ids.tolist())
    plain = generate(TARGET, TEXT[0, :6].tolist(), max_new_tokens=12)
    for drafter in (medusa, MarkovDrafter(TARGET, medusa.heads, correction), blocks):
        out = generate(TARGET, TEXT[0, :6].tolist(), drafter, 12)
        assert out.tokens.tolist() == plain.tokens.tolist()
        assert {token for step in out.steps for token in step.tree.tokens.tolist()} <= vocabulary
    with pytest.raises(ValueError, match="kind='pard'"):
        main([*arguments, "--kind", "pard", "--out", str(tmp_path)])


def test_only_tokens_that_the_target_wrote_are_scored():
    """Prompts and padding change no loss."""
    counted = torch.ones_like(TEXT, dtype=torch.bool)
    counted[0, :9] = counted[1, 15:] = False
    positions = head_trainer.usable_anchors(counted, 1)
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


def test_weights_of_every_kind_can_be_saved(tmp_path):
    for kind in ("speculator", "pard", "blocks"):
        head = HEADS[kind]()
        save(tmp_path / kind, head, TARGET, heads.stored_config(head))
        assert (tmp_path / kind / "weights.safetensors").is_file()
