"""The MLP speculator and the parallel drafters (PARD, block diffusion, corrected heads): every row
that is drawn from is the one that was trained; and broken variants, which no output shows.
"""

from copy import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from broken_drafts import Altered
from chosen import one_in
from features_zoo import random_parallel_head
from heads_zoo import (
    random_blocks,
    random_correction,
    random_heads,
    random_hydra,
    random_selector,
    random_speculator,
)
from models_zoo import PROMPT, native, perturbed
from text_laws import TINY, distance, exact_text_law, own_text_law

from specdec_lite import generate, load_pair
from specdec_lite.drafters import (
    BlockDiffusionDrafter,
    EagleDrafter,
    HydraDrafter,
    MarkovDrafter,
    MlpSpeculatorDrafter,
    PardDrafter,
)
from specdec_lite.drafters.heads import HydraHeads
from specdec_lite.engine.cache import Scores
from specdec_lite.loading.weights import SHIPPED, save
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.sampling import Sampling
from specdec_lite.training.anchors import anchor_logits
from specdec_lite.tree import TokenTree

TARGET = native(num_layers=3)


def markov(target):
    heads = random_heads(target)
    correction = random_correction(target)
    both = torch.nn.ModuleDict({"rows": heads, "correction": correction})
    return MarkovDrafter(target, heads, correction), both


def selector(target):
    heads, choice = random_heads(target), random_selector(target)
    both = torch.nn.ModuleDict({"rows": heads, "correction": choice})
    return MarkovDrafter(target, heads, choice), both


def p_eagle(target):
    head = random_parallel_head(target)
    return EagleDrafter(target, head, 3), head


def pard(target):
    """Return a draft with one more row than the target has tokens, for the mask."""
    model = native(seed=3, vocab_size=target.vocab_size + 1)
    return PardDrafter(model, 3), model.model


def blocks(target, rank=0):
    head = random_blocks(target, rank=rank, num_kv_heads=1)
    return BlockDiffusionDrafter(target, head), head


def parted(target, parts):
    rank = 2 if {"candidates", "confidence"} & parts.keys() else 0
    head = random_blocks(target, rank=rank, parts=parts)
    return BlockDiffusionDrafter(target, head), head


PARTED = {
    "blocks with windows": {"windows": [3, None], "causal": [True, False]},
    "blocks from the anchor": {"from_anchor": True, "confidence": "state and token"},
    "blocks with a selector": {"taps": 2, "group": 4, "candidates": 5},
}
"""Name → the published parts of a block head."""


def hydra(target):
    heads = random_hydra(target)
    return HydraDrafter(target, heads), heads


def speculator(target):
    net = random_speculator(target)
    return MlpSpeculatorDrafter(target, net), net


KINDS = {
    "markov": markov,
    "pard": pard,
    "blocks": blocks,
    "corrected blocks": lambda target: blocks(target, 2),
    "selector": selector,
    "P-EAGLE": p_eagle,
    "speculator": speculator,
    "hydra": hydra,
} | {name: partial(parted, parts=parts) for name, parts in PARTED.items()}
KIND = pytest.mark.parametrize("kind", KINDS)


def watched(drafter, head, broken=lambda session: None):
    """Return the drafter and the largest difference [1] between drafted and training rows."""
    start = drafter.start
    apart = []

    def begin(context):
        session = start(context)
        broken(session)
        propose = session.propose

        def compared(context):
            proposal = propose(context)
            count = len(proposal.tree)
            if count:
                text = torch.cat((context.tokens, proposal.tree.tokens))[None]
                layers = tuple(dict.fromkeys((*drafter.hidden_layers, "final")))
                states = TARGET.score(text, TARGET.new_cache(), hidden_layers=layers).hidden
                anchor = torch.tensor([len(context.tokens) - 1])
                right = anchor_logits(head, TARGET, text, states, anchor, count)[0, 0].softmax(-1)
                apart.append(float((right - proposal.probs).abs().max()))
            return proposal

        session.propose = compared
        return session

    drafter.start = begin
    return drafter, apart


@KIND
def test_training_and_drafting_compute_the_same_rows(kind):
    drafter, apart = watched(*KINDS[kind](TARGET))
    generate(TARGET, PROMPT, drafter, 24, temperature=1.0, seed=1)
    assert len(apart) > 8 and max(apart) < 1e-10


def wrong_row(session):
    """Broken: read the target's states one position late."""
    propose = session.propose

    def late(context):
        hidden = {layer: states.roll(1, 1) for layer, states in context.scores.hidden.items()}
        return propose(replace(context, scores=Scores(context.scores.logits, hidden)))

    session.propose = late


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


def windowless(session):
    """Broken: every layer reads the whole text."""
    session.head = copy(session.head)
    session.head.parts = replace(session.head.parts, windows=())


def acausal(session):
    """Broken: no layer hides the later positions of a block."""
    session.head = copy(session.head)
    session.head.parts = replace(session.head.parts, causal=())


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


@pytest.mark.parametrize(
    "kind, broken",
    [
        ("markov", wrong_row),
        ("blocks", wrong_row),
        ("speculator", wrong_row),
        ("hydra", wrong_row),
        ("hydra", first_words_only),
        ("markov", deaf),
        ("corrected blocks", deaf),
        ("selector", deaf),
        ("selector", stateless),
        ("selector", wrong_row),
        ("P-EAGLE", wrong_row),
        ("blocks with windows", windowless),
        ("blocks with windows", acausal),
        ("blocks with a selector", deaf),
        ("blocks with a selector", stateless),
        ("pard", masks_stay),
        ("blocks", stale_blocks),
    ],
)
def test_the_comparison_detects_broken_sessions(kind, broken):
    drafter, apart = watched(*KINDS[kind](TARGET), broken)
    generate(TARGET, PROMPT, drafter, 24, temperature=1.0, seed=1)
    assert max(apart) > 1e-3
    drafter, head = KINDS[kind](TARGET)
    start = drafter.start

    def begin(context):
        session = start(context)
        broken(session)
        return session

    drafter.start = begin
    greedy = generate(TARGET, PROMPT, drafter, 16).tokens
    assert torch.equal(greedy, generate(TARGET, PROMPT, max_new_tokens=16).tokens)


# The emitted distribution -------------------------------------------------------------------------


class Uncorrected(Altered, MarkovDrafter):
    """Broken: draw from corrected rows and report the uncorrected ones as q."""

    def altered(self, session, proposal, context):
        if not len(proposal.tree):
            return proposal
        probs = context.sampling(session.rows(context, len(proposal.tree)))
        return Proposal(proposal.tree, probs.clone())


class Unselected(Uncorrected):
    """Broken: draw from the selector's rows and report those of the heads as q."""

    def __init__(self, target, heads, correction):
        super().__init__(target, heads, random_selector(target, candidates=2))


@pytest.mark.parametrize("kind", [Uncorrected, Unselected])
def test_reporting_uncorrected_rows_changes_the_distribution(kind):
    """The matrix has the drafters that are right."""
    target = native(seed=5, vocab_size=3, **TINY)
    drafter = kind(target, random_heads(target, 2), random_correction(target))
    law = exact_text_law(target, drafter, Sampling(), 3)
    assert distance(law, own_text_law(target, Sampling(), 3)) > 0.02


def test_a_selector_scores_pairs_of_neighbors():
    torch.manual_seed(0)
    choice = random_selector(TARGET, candidates=5)
    rows, states = torch.randn(3, 48).double(), torch.randn(3, 32).double()
    index = torch.tensor([4, 0, 47])
    corrected = choice.correct(rows, index, states)
    for row, before, state, found in zip(rows, index, states, corrected):
        likeliest = row.argsort(descending=True)[:5].tolist()
        left = choice.before.weight[before] * (choice.gate.weight @ state)
        for token in range(48):
            score = row[token] + left @ choice.after.weight[token]
            right = score if token in likeliest else -torch.inf
            assert float(found[token]) == pytest.approx(float(right))


def confident(target, least):
    head = random_blocks(target, 4, 2, parts=PARTED["blocks from the anchor"], num_kv_heads=1)
    return BlockDiffusionDrafter(target, head, 2, least)


class Peeking(Altered, BlockDiffusionDrafter):
    """Broken: end the draft before a drawn token that looks unlikely."""

    def altered(self, session, proposal, context):
        for position, token in enumerate(proposal.tree.tokens):
            if proposal.probs[position, token] < 0.5:
                if position == 0:
                    return NOTHING
                tree = TokenTree.chain(proposal.tree.tokens[:position])
                return Proposal(tree, proposal.probs[:position])
        return proposal


LEASTS = [0.5, *(pytest.param(least, marks=pytest.mark.registry) for least in (0.3, 0.7))]


@pytest.mark.parametrize("least", LEASTS)
def test_a_draft_that_ends_where_little_is_accepted_is_lossless(least):
    target = native(seed=5, vocab_size=3, **TINY)
    plain = own_text_law(target, Sampling(), 3)
    drafter = confident(target, least)
    assert distance(exact_text_law(target, drafter, Sampling(), 3), plain) < 1e-12


def test_a_draft_that_ends_at_an_unlikely_token_is_not_lossless():
    target = native(seed=5, vocab_size=3, **TINY)
    plain = own_text_law(target, Sampling(), 3)
    lengths = set()
    for least in (0.3, 0.5, 0.7):
        steps = generate(target, [1, 2], confident(target, least), 24, 1.0, seed=0).steps
        lengths |= {len(step.tree.tokens) for step in steps[:-2]}
    assert lengths >= {1, 2}
    broken = Peeking(target, confident(target, 0.5).head, 2)
    assert distance(exact_text_law(target, broken, Sampling(), 3), plain) > 0.005
    with pytest.raises(ValueError, match="no part that predicts acceptance"):
        BlockDiffusionDrafter(target, random_blocks(target), 2, 0.5)


class Unmasked(PardDrafter):
    """Broken: draft the mask like any token."""

    def start(self, context):
        session = super().start(context)
        session.rows = lambda context, count: (
            session.model.score(context.tokens, session.model.new_cache())
            .logits[0, -1:]
            .expand(count, -1)
        )
        return session


def test_the_mask_is_fed_and_never_drafted():
    model = perturbed(TARGET)
    mask = int(generate(TARGET, PROMPT, max_new_tokens=12).tokens.mode().values)
    drafted = {}
    for kind in (PardDrafter, Unmasked):
        steps = generate(TARGET, PROMPT, kind(model, 3, mask), 24).steps
        drafted[kind] = {token for step in steps for token in step.tree.tokens.tolist()}
    assert mask not in drafted[PardDrafter] and mask in drafted[Unmasked]


# What it takes and refuses ------------------------------------------------------------------------


def test_weights_load_from_a_folder_and_bad_arguments_are_rejected(tmp_path):
    drafter, head = blocks(TARGET, 2)
    save(tmp_path, head, TARGET, head.sizes, torch.float64)
    again = BlockDiffusionDrafter.from_pretrained(TARGET, tmp_path, 2)
    assert again.limits().levels == 2 and again.head.sizes == head.sizes
    text = [generate(TARGET, PROMPT, d, 12, 1.0, seed=0).tokens.tolist() for d in (again, drafter)]
    assert len(text[0]) == len(text[1]) == 12
    with pytest.raises(ValueError, match="another target"):
        BlockDiffusionDrafter.from_pretrained(native(seed=3), tmp_path)
    with pytest.raises(ValueError, match="gamma=4"):
        BlockDiffusionDrafter(TARGET, head, 4)
    with pytest.raises(TypeError, match="head is a CausalLM"):
        BlockDiffusionDrafter(TARGET, TARGET)
    with pytest.raises(ValueError, match="9 tokens"):
        MarkovDrafter(TARGET, random_heads(TARGET), random_correction(native(vocab_size=9)))
    with pytest.raises(TypeError, match="correction is a CausalLM"):
        MarkovDrafter(TARGET, random_heads(TARGET), TARGET)
    with pytest.raises(ValueError, match=r"mask_id=48"):
        PardDrafter(TARGET, 3, 48)
    with pytest.raises(ValueError, match="size 64"):
        HydraDrafter(TARGET, HydraHeads(64, 2))
    with pytest.raises(ValueError, match="speculator"):
        MlpSpeculatorDrafter(TARGET, random_speculator(native(vocab_size=9)))


# What ships ---------------------------------------------------------------------------------------

PUBLIC = {
    "markov": MarkovDrafter,
    "pard": PardDrafter,
    "block_diffusion": BlockDiffusionDrafter,
    "mlp_speculator": MlpSpeculatorDrafter,
}


def test_the_shipped_weights_are_small():
    assert (
        sum(path.stat().st_size for name in PUBLIC for path in (SHIPPED / name).rglob("*.*")) < 8e6
    )


@pytest.mark.parametrize("name", one_in(4, PUBLIC))
def test_shipped_weights_belong_to_the_target_and_keep_its_text(name):
    pair = load_pair(dtype="float64")
    target = pair.target
    prompt = pair.tokenizer.encode("def mean(values):\n    return sum(values)")
    drafter = PUBLIC[name].from_pretrained(target, gamma=4)
    assert drafter.limits().levels == 4
    out = generate(target, prompt, drafter, 64)
    assert torch.equal(out.tokens, generate(target, prompt, max_new_tokens=64).tokens)
    assert out.stats.accepted > 0
