"""Drafts from one pass, beyond their rows: the distribution of corrected rows, the selector's pairs,
drafts that end where little is accepted, and the mask of PARD.
"""

from functools import partial

import pytest
from drafted_rows import altered, changed
from heads_zoo import random_blocks, random_correction, random_heads, random_selector
from models_zoo import PROMPT, native, perturbed
from text_laws import TINY, distance, exact_text_law, own_text_law

from specdec_lite import generate
from specdec_lite.drafters import BlockDiffusionDrafter, MarkovDrafter, PardDrafter
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.sampling import Sampling
from specdec_lite.tree import TokenTree

TARGET = native(num_layers=3)


def uncorrected(session, proposal, context):
    """Broken: draw from corrected rows and report the uncorrected ones as q."""
    if not len(proposal.tree):
        return proposal
    probs = context.sampling(session.rows(context, len(proposal.tree)))
    return Proposal(proposal.tree, probs.clone())


@pytest.mark.parametrize("make", [random_correction, partial(random_selector, candidates=2)])
def test_reporting_uncorrected_rows_changes_the_distribution(make):
    """The matrix has the drafters that are right."""
    target = native(seed=5, vocab_size=3, **TINY)
    drafter = altered(MarkovDrafter(target, random_heads(target, 2), make(target)), uncorrected)
    law = exact_text_law(target, drafter, Sampling(), 3)
    assert distance(law, own_text_law(target, Sampling(), 3)) > 0.02


def confident(target, least):
    head = random_blocks(
        target, 4, 2, parts={"from_anchor": True, "confidence": "state and token"}, num_kv_heads=1
    )
    return BlockDiffusionDrafter(target, head, 2, least)


def peeking(session, proposal, context):
    """Broken: end the draft before a drawn token that looks unlikely."""
    for position, token in enumerate(proposal.tree.tokens):
        if proposal.probs[position, token] < 0.5:
            if position == 0:
                return NOTHING
            tree = TokenTree.chain(proposal.tree.tokens[:position])
            return Proposal(tree, proposal.probs[:position])
    return proposal


def test_a_draft_that_ends_at_an_unlikely_token_is_not_lossless():
    target = native(seed=5, vocab_size=3, **TINY)
    plain = own_text_law(target, Sampling(), 3)
    lengths = set()
    for least in (0.3, 0.5, 0.7):
        steps = generate(target, [1, 2], confident(target, least), 24, 1.0, seed=0).steps
        lengths |= {len(step.tree.tokens) for step in steps[:-2]}
    assert lengths >= {1, 2}
    broken = altered(BlockDiffusionDrafter(target, confident(target, 0.5).head, 2), peeking)
    assert distance(exact_text_law(target, broken, Sampling(), 3), plain) > 0.005
    with pytest.raises(ValueError, match="no part that predicts acceptance"):
        BlockDiffusionDrafter(target, random_blocks(target), 2, 0.5)


def unmasked(session):
    """Broken: draft the mask like any token."""
    session.rows = lambda context, count: (
        session.model.score(context.tokens, session.model.new_cache())
        .logits[0, -1:]
        .expand(count, -1)
    )


def test_the_mask_is_fed_and_never_drafted():
    model = perturbed(TARGET)
    mask = int(generate(TARGET, PROMPT, max_new_tokens=12).tokens.mode().values)
    drafted = []
    for change in (lambda session: None, unmasked):
        drafter = changed(PardDrafter(model, 3, mask), change)
        steps = generate(TARGET, PROMPT, drafter, 24).steps
        drafted.append({token for step in steps for token in step.tree.tokens.tolist()})
    assert mask not in drafted[0] and mask in drafted[1]
