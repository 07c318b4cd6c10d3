"""Test what is special to blockwise decoding: accepted blocks, the paper's pass counts, the row
that every head reads, and the shipped heads. The registry's tests cover the rest.
"""

import math

import pytest
import torch
from drafted_rows import altered
from heads_zoo import random_heads, taught_heads
from models_zoo import PROMPT, VOCABULARY, native, shipped
from text_laws import SAMPLINGS, TINY, distance, exact_text_law, own_text_law

from specdec_book import recordings
from specdec_lite import generate, stream
from specdec_lite.acceptance import Proposal
from specdec_lite.drafters import BlockwiseDrafter
from specdec_lite.drafters.heads import Heads
from specdec_lite.engine.cache import Scores
from specdec_lite.loading.weights import fingerprint
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context
from specdec_lite.tree import TokenTree


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("m", [1, 24, 25])
def test_perfect_drafts_need_m_over_k_passes_and_useless_ones_at_most_m(k, m):
    target = native()
    text = PROMPT + generate(target, PROMPT, max_new_tokens=m).tokens.tolist()

    def passes(shift):
        def known(session, made, context):
            after = text[len(context.tokens) :][: len(made.tree)]
            return Proposal(TokenTree.chain([(token + shift) % VOCABULARY for token in after]))

        drafter = altered(BlockwiseDrafter(target, random_heads(target, 7), k), known)
        out = generate(target, PROMPT, drafter, m)
        assert out.tokens.tolist() == text[len(PROMPT) :]
        return out.stats.target_passes

    assert passes(0) == math.ceil(m / k) and passes(1) == m


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_block_of_one_is_plain_decoding(temperature):
    target = native()
    drafter = BlockwiseDrafter(target, random_heads(target), 1)
    out = generate(target, PROMPT, drafter, 20, temperature, seed=3)
    plain = generate(target, PROMPT, None, 20, temperature, seed=3)
    assert torch.equal(out.tokens, plain.tokens) and out.stats.target_passes == 20
    assert out.stats.drafted == out.stats.draft_passes == 0
    assert all(step.kind == "sampled" for step in out.steps)


def test_drafts_fit_the_remaining_tokens_and_take_one_pass():
    target = native()
    steps = list(stream(target, PROMPT, BlockwiseDrafter(target, taught_heads("native"), 4), 9))
    left = [9 - sum(len(s.tokens) for s in steps[:i]) for i in range(len(steps))]
    assert [len(s.tree) for s in steps] == [min(3, wanted - 1) for wanted in left]
    assert all(s.draft_passes == (len(s.tree) > 0) for s in steps)


def test_after_a_prompt_of_one_token_the_first_round_drafts_nothing():
    target = native()
    out = generate(target, PROMPT[:1], BlockwiseDrafter(target, random_heads(target), 4), 12)
    assert out.steps[0].kind == "sampled" and len(out.steps[1].tree) == 3


# Which row q is --------------------------------------------------------------------------------


def distance_of(drafter, sampling=Sampling()):  # noqa: B008
    own = own_text_law(drafter.target, sampling, 3)
    return distance(exact_text_law(drafter.target, drafter, sampling, 3), own)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_distribution_is_exact_at_another_draft_temperature(sampling):
    target = native(seed=5, vocab_size=3, **TINY)
    drafter = BlockwiseDrafter(target, random_heads(target, 2, seed=1), 3, 2.0)
    assert distance_of(drafter, sampling) < 1e-12


def another_heads_row(session, made, context):
    return Proposal(made.tree, made.probs.flip(0)) if len(made.tree) else made


def soft_row(session, made, context):
    """Broken: choose the argmax and report the row."""
    if not len(made.tree):
        return made
    return Proposal(TokenTree.chain(made.probs.argmax(-1).tolist()), made.probs)


@pytest.mark.parametrize("change, scale", [(another_heads_row, 2.0), (soft_row, 0.3)])
def test_the_same_check_rejects(change, scale):
    target = native(seed=5, vocab_size=3, **TINY)
    heads = random_heads(target, 2, seed=1, scale=scale)
    assert distance_of(altered(BlockwiseDrafter(target, heads, 3), change)) > 0.01


def test_a_shift_by_one_lowers_acceptance_but_keeps_the_text():
    """A published bug: the target's own head, whose token is committed already, takes the
    first draft's place.
    """
    target, heads = native(), taught_heads("native")
    shifted = lambda session, made, context: Proposal(
        TokenTree.chain([int(context.tokens[-1]), *made.tree.tokens.tolist()[:-1]])
    )
    right = generate(target, PROMPT, BlockwiseDrafter(target, heads, 4), 20)
    wrong = generate(target, PROMPT, altered(BlockwiseDrafter(target, heads, 4), shifted), 20)
    assert torch.equal(right.tokens, wrong.tokens)
    assert right.stats.acceptance_rate > 0.8 and wrong.stats.acceptance_rate < 0.2
    longer = generate(target, PROMPT, BlockwiseDrafter(target, heads, 4), 30)
    assert longer.stats.target_passes < 25


@pytest.mark.parametrize("own", [None, 0, 2.0])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_session_draws_from_the_last_row_at_the_draft_temperature(own, temperature):
    target, heads = native(), random_heads(native())
    rows = torch.randn(1, 6, target.hidden_size, dtype=target.dtype)
    scores = Scores(rows, {"final": rows})
    sampling = Sampling(temperature)
    context = Context(torch.tensor(PROMPT), scores, sampling, SeededRng(0), 9, VOCABULARY)
    drafter = BlockwiseDrafter(target, heads, 4, draft_temperature=own)
    proposal = drafter.start(context).propose(context)
    logits = target.head(heads(rows[0, -1]))
    if (temperature if own is None else own) == 0:
        assert proposal.probs is None
        assert proposal.tree.tokens.tolist() == logits.argmax(-1).tolist()
    else:
        assert torch.equal(proposal.probs, Sampling(own or temperature)(logits))


# Heads, and what is refused --------------------------------------------------------------------


def test_new_heads_are_copies_of_the_targets_own_head():
    target = native()
    hidden = torch.randn(2, 5, target.hidden_size, dtype=target.dtype)
    heads = Heads(target.hidden_size, 3).to(target.dtype)
    assert torch.equal(heads(hidden), hidden[:, :, None].expand(2, 5, 3, -1)) and heads.count == 3
    assert heads.up.std().item() == pytest.approx(target.hidden_size**-0.5, rel=0.1)
    taught = taught_heads("native")
    assert torch.allclose(taught(hidden, slice(1, 2))[..., 0, :], taught(hidden)[..., 1, :])


# What ships ------------------------------------------------------------------------------------


def test_the_shipped_heads_are_seven():
    drafter = BlockwiseDrafter.from_pretrained(shipped().target)
    assert drafter.k == 4 and drafter.heads.count == 7
    one = BlockwiseDrafter.from_pretrained(shipped().target, k=8, draft_temperature=0)
    assert one.k == 8 and one.sampling.greedy
    with pytest.raises(ValueError, match="k=9"):
        BlockwiseDrafter.from_pretrained(shipped().target, k=9)


def test_the_recording_is_of_the_shipped_target_and_heads_learned():
    recorded = recordings.load("blockwise-training").data
    assert recorded["target"] == fingerprint(shipped().target)
    runs = {(run["regime"], run["loss_kind"]): run for run in recorded["runs"]}
    others = {("distilled", "mean"), ("finetuned", "mean")}
    assert set(runs) == {("frozen", "random"), ("frozen", "mean")} | others
    before = recorded["untrained"]["loss"][1:]
    for run in runs.values():
        assert all(after < first for after, first in zip(run["held_out"]["loss"][1:], before))
        assert run["blocks"]["k"] == [1, 2, 4, 6, 8] and run["blocks"]["all"][0] == 1.0
    for kind in ("random", "mean"):
        blocks = runs["frozen", kind]["blocks"]
        assert set(blocks["identical_to_greedy"]) == {blocks["prompts"]}
        assert runs["frozen", kind]["change"]["texts_changed"] == 0
