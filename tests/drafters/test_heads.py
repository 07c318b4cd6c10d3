"""Trained heads: what is drafted from is what was trained, for every kind; and what ships.

Verification hides every error of this kind: no output shows the broken variants here.
"""

from copy import copy
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from chosen import one_in
from drafted_rows import changed, differences
from heads_zoo import (
    random_blocks,
    random_correction,
    random_head,
    random_heads,
    random_hydra,
    random_parallel_head,
    random_selector,
    random_speculator,
)
from models_zoo import PROMPT, native
from text_laws import model_named

from specdec_lite import TokenTree, drafters as d, generate, load_pair
from specdec_lite.engine.cache import Scores, additive
from specdec_lite.loading.weights import FILE, SHIPPED
from specdec_lite.training.anchors import anchor_logits
from specdec_lite.training.losses import head_logits

TARGET = native(num_layers=3)
TREE = TokenTree([0, 1, 0, 2, 1, 0, 0], [-1, -1, 0, -1, 0, 1, 2])
"""Three levels with unequal branches."""
IDS = torch.tensor([1, 4, 5, 9, 17, 20, 28, 33, 41, 47])
DRAFTS = {"a chain": 3, "a tree": TREE, "a tree by confidence": d.ConfidenceTree(3, 3, 9)}


def corrected(correction):
    heads, other = random_heads(TARGET), correction(TARGET)
    both = torch.nn.ModuleDict({"rows": heads, "correction": other})
    return d.MarkovDrafter(TARGET, heads, other), both


def pard():
    """Return a draft with one more row than the target has tokens, for the mask."""
    model = native(seed=3, vocab_size=TARGET.vocab_size + 1)
    return d.PardDrafter(model, 3), model.model


def feature(kind, draft, ids=None):
    head = random_head(TARGET, kind, ids)
    drafter = (d.MtpDrafter if kind == "mtp" else d.EagleDrafter)(TARGET, head, DRAFTS[draft])
    drafter.hidden_layers = (0, 1, 2, "final")
    return drafter, head


def with_head(kind, make, *arguments, **options):
    """Return a drafter of a head on the target, and the head."""
    head = make(TARGET, **options)
    return kind(TARGET, head, *arguments), head


blocks = partial(with_head, d.BlockDiffusionDrafter, random_blocks)
FEATURES = {
    f"{kind}, {draft}": partial(feature, kind, draft)
    for kind, draft in product(("eagle1", "eagle3", "mtp"), DRAFTS)
}
KINDS = {
    "blockwise": partial(with_head, d.BlockwiseDrafter, random_heads),
    "Medusa": partial(with_head, d.MedusaDrafter, random_heads, TREE),
    "markov": partial(corrected, random_correction),
    "selector": partial(corrected, random_selector),
    "speculator": partial(with_head, d.MlpSpeculatorDrafter, random_speculator),
    "hydra": partial(with_head, d.HydraDrafter, random_hydra),
    "pard": pard,
    "P-EAGLE": partial(with_head, d.EagleDrafter, random_parallel_head, 3),
    "blocks": partial(blocks, num_kv_heads=1),
    "corrected blocks": partial(blocks, rank=2),
    "blocks with windows": partial(blocks, parts={"windows": [3, None], "causal": [True, False]}),
    "blocks from the anchor": partial(
        blocks, rank=2, parts={"from_anchor": True, "confidence": "state and token"}
    ),
    "blocks with a selector": partial(
        blocks, rank=2, parts={"taps": 2, "group": 4, "candidates": 5}
    ),
    "eagle3, a tree, 10 of V": partial(feature, "eagle3", "a tree", IDS),
    "mtp, a chain, 10 of V": partial(feature, "mtp", "a chain", IDS),
} | FEATURES


def apart(kind, broken=lambda session: None):
    """Return the distances of each draft's rows from those of training.

    Training reads a longer text and its states, and other anchors, which a row must not see.
    """
    drafter, head = KINDS[kind]()

    def trained(context, drafted):
        text = torch.cat((context.tokens, drafted, torch.tensor([8, 2, 44, 31])))[None]
        layers = tuple(dict.fromkeys((*drafter.hidden_layers, "final")))
        states = TARGET.score(text, TARGET.new_cache(), hidden_layers=layers).hidden
        last = len(context.tokens) - 1
        anchors = torch.tensor([2, last, last + 1])
        return anchor_logits(head, TARGET, text, states, anchors, len(drafted))[0, 1].softmax(-1)

    return differences(TARGET, drafter, PROMPT, trained, broken)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_training_and_drafting_compute_the_same_rows(kind):
    found = apart(kind)
    assert len(found) > 8 and max(found) < 1e-10


@pytest.mark.parametrize("name", ["native", "native, all options"])
def test_blockwise_training_computes_the_same_rows(name):
    """Its forward is another: of all positions, one head at a time."""
    target, heads = model_named(name), random_heads(model_named(name))
    text = torch.tensor([PROMPT])
    hidden = target.score(text, target.new_cache(), hidden_layers=("final",)).hidden["final"]
    anchors = torch.arange(1, len(PROMPT))
    rows = anchor_logits(heads, target, text, {"final": hidden}, anchors, 3)
    for index in range(3):
        trained = head_logits(target.model, heads, hidden, index)[:, anchors - 1]
        assert (trained - rows[:, :, index]).abs().max() < 1e-10


def with_hidden(session, change):
    """Let a session read changed hidden states."""
    propose = session.propose

    def changed(context):
        hidden = change(context.scores.hidden)
        return propose(replace(context, scores=Scores(context.scores.logits, hidden)))

    session.propose = changed


def wrong_row(session):
    """Broken: read the target's states one position late."""
    with_hidden(session, lambda hidden: {k: states.roll(1, 1) for k, states in hidden.items()})


def layer_off(session):
    """Broken: read every state of the target one block early."""
    early = {0: 0, 1: 0, "final": 2}
    with_hidden(session, lambda hidden: hidden | {k: hidden[early[k]] for k in session.head.layers})


def deaf(session):
    """Broken: correct every row by the last committed token instead of the last drafted one."""
    correction = session.correction
    rows_of, session.correction = session.rows, copy(correction)

    def noted(context, count):
        last = correction.index(context.tokens[-1], session.words)
        session.correction.correct = lambda row, _, state: correction.correct(row, last, state)
        return rows_of(context, count)

    session.rows = noted


def stateless(session):
    """Broken: weigh every row's pairs by the first row's state."""
    correct, session.correction = session.correction.correct, copy(session.correction)
    session.correction.correct = lambda row, index, _: correct(row, index, session.states[0])


def first_words_only(session):
    """Broken: every head reads the last committed token instead of the drafted ones."""
    session.drafter, heads = copy(session.drafter), session.drafter.heads
    session.drafter.heads = lambda index, state, embedded: heads(
        index, state, embedded[:1].expand_as(embedded)
    )


def without(**parts):
    """Return a session's change: broken, its head ignores a published part."""

    def ignore(session):
        session.head = copy(session.head)
        session.head.parts = replace(session.head.parts, **parts)

    return ignore


def masks_stay(session):
    """Broken: leave the masks in the cache."""
    session.fed = 0

    def stale(context, count):
        masks = context.tokens.new_full((count - 1,), session.mask_id)
        fed = torch.cat((context.tokens[session.fed :], masks))
        session.fed = len(context.tokens)
        return session.model.score(fed, session.cache).logits[0, -count:]

    session.rows = stale


def stale_blocks(session):
    """Broken: of the states accepted in the last round, store only the newest."""
    rows_of = session.rows

    def late(context, count):
        session.text = context.tokens[:-2]
        return rows_of(context, count)

    session.rows = late


def stale(session):
    """Broken: drafted entries stay in the cache, so accepted tokens keep predicted features."""
    session.observe = lambda verdict, scores: session.followed.observe(verdict)


def unshifted(session):
    """Broken: pair a state with its own token, not with the next one."""
    score = session._score
    session._score = lambda tokens, *rest: score(tokens.roll(1), *rest)


def pair_short(session):
    """Broken: use the prediction of the last token as that of the next one."""
    score = session._score

    def short(tokens, states, tree=None, cached=0):
        logits, states = score(tokens, states, tree, cached)
        return logits, states.roll(1, 0) if tree is None else states

    session._score = short


BROKEN = [
    *product(
        ("blockwise", "Medusa", "markov", "selector", "speculator", "hydra", "P-EAGLE", "blocks"),
        [wrong_row],
    ),
    *product(("markov", "corrected blocks", "selector", "blocks with a selector"), [deaf]),
    *product(("selector", "blocks with a selector"), [stateless]),
    ("hydra", first_words_only),
    ("blocks with windows", without(windows=())),
    ("blocks with windows", without(causal=())),
    ("pard", masks_stay),
    ("blocks", stale_blocks),
    ("eagle1, a tree", stale),
]
OF_FEATURES = product(
    (f"{kind}, a tree" for kind in ("eagle1", "eagle3", "mtp")),
    [unshifted, wrong_row, layer_off, pair_short],
)


@pytest.mark.parametrize("kind, broken", [*BROKEN, *one_in(6, OF_FEATURES)])
def test_the_comparison_detects_broken_sessions(kind, broken):
    assert max(apart(kind, broken)) > 1e-3
    drafter = changed(KINDS[kind]()[0], broken)
    greedy = generate(TARGET, PROMPT, drafter, 16).tokens
    assert torch.equal(greedy, generate(TARGET, PROMPT, max_new_tokens=16).tokens)


def test_the_comparison_detects_a_training_mask_that_is_off_by_one(monkeypatch):
    further = lambda seen, dtype: additive(seen | F.pad(seen, (1, -1)), dtype)
    monkeypatch.setattr("specdec_lite.training.unroll.additive", further)
    assert max(apart("eagle1, a chain")) > 1e-3


# Weights ------------------------------------------------------------------------------------------

PUBLIC = {
    "blockwise": d.BlockwiseDrafter,
    "medusa": d.MedusaDrafter,
    "markov": d.MarkovDrafter,
    "pard": d.PardDrafter,
    "block_diffusion": d.BlockDiffusionDrafter,
    "mlp_speculator": d.MlpSpeculatorDrafter,
    "early_exit": d.EarlyExitDrafter,
    "pass_rows": d.PassDrafter,
}
"""Folder of the shipped weights → the class that loads them."""


@pytest.mark.parametrize("name", one_in(4, PUBLIC))
def test_shipped_weights_are_small_and_belong_to_the_shipped_target(name):
    files = [*(SHIPPED / name).rglob("*.*")]
    assert sum(file.stat().st_size for file in files) < 5e6
    assert {file.suffix for file in files} <= {".safetensors", ".md", ".json"}
    kind, folder = PUBLIC[name], next(iter((SHIPPED / name).rglob(FILE))).parent
    pair = load_pair(dtype="float64")
    prompt = pair.tokenizer.encode("def mean(values):\n    return sum(values)")
    out = generate(pair.target, prompt, kind.from_pretrained(pair.target), 64)
    plain = generate(pair.target, prompt, max_new_tokens=64).tokens
    assert torch.equal(out.tokens, plain) and out.stats.accepted > 0
    with pytest.raises(ValueError, match="another target|nothing ships"):
        kind.from_pretrained(pair.draft, path=folder)
