"""Test drafts from the target itself, with broken variants that the invariants detect."""

from types import SimpleNamespace

import pytest
import torch
from broken_drafts import shifted_states
from drafted_rows import altered, differences
from heads_zoo import exit_head, lookahead
from models_zoo import PROMPT, native

from specdec_lite import generate, stream
from specdec_lite.drafters import (
    EarlyExitDrafter,
    LayerSkipDrafter,
    PassDrafter,
    QuantizedDrafter,
    SparseCacheDrafter,
)
from specdec_lite.drafters.self_drafts import Chunks, Int8Linear, quantize, round_weight
from specdec_lite.proposal import Proposal

TARGET = native(num_layers=4)
PLAIN = generate(TARGET, PROMPT, max_new_tokens=60).tokens
SAMPLED = dict(max_new_tokens=60, temperature=1.0, seed=0)


def rate(drafter, **options):
    return generate(TARGET, PROMPT, drafter, **options or SAMPLED).stats.acceptance_rate


def test_a_draft_that_skips_something_is_not_the_target():
    """One that skips nothing is in the table of perfect drafts in test_drafters.py."""
    assert rate(SparseCacheDrafter(TARGET, 1, 1, 3)) < 1.0
    assert rate(LayerSkipDrafter(TARGET, [(3, "mlp")], 3)) < 1.0


def test_a_new_adapter_changes_nothing_and_needs_the_norm():
    fresh = exit_head(TARGET, 2)
    fresh.down.zero_()
    plain = EarlyExitDrafter(TARGET, 2, 3)
    assert rate(plain) == rate(EarlyExitDrafter(TARGET, 2, 3, adapter=fresh))
    ids = torch.tensor([PROMPT])
    view = TARGET.new_cache().view(layers=2)
    exit = TARGET.score(ids, view, hidden_layers=(2, "final"), logits=False)
    assert exit.logits.shape[1] == 0
    right = TARGET.score(ids, TARGET.new_cache().view(layers=2)).logits
    assert torch.equal(TARGET.head(exit.hidden["final"]), right)
    assert (TARGET.head(exit.hidden[2]) - right).abs().max() > 0.1, "logits without the norm"


def test_reuse_runs_the_first_layers_once(monkeypatch):
    """With reuse the target's pass begins behind the exit: as many rows pass its first block as
    tokens are fed, and the drafts and texts are those without."""
    rows = {True: 0, False: 0}
    texts = {}
    attention = type(TARGET.model.blocks[0]).attention
    for reuse in rows:

        def counted(block, x, *arguments, reuse=reuse):
            rows[reuse] += x.shape[1] * (block is TARGET.model.blocks[0])
            return attention(block, x, *arguments)

        monkeypatch.setattr(type(TARGET.model.blocks[0]), "attention", counted)
        drafter = EarlyExitDrafter(TARGET, 2, 3, reuse=reuse)
        texts[reuse] = [
            (step.tree.tokens.tolist(), step.tokens)
            for step in stream(TARGET, PROMPT, drafter, 40, 1.0, seed=1)
        ]
    assert texts[True] == texts[False] and rows[True] < 0.7 * rows[False]


def reuses_after_a_rejection(session, proposal, context):
    """Broken: report the states of the previous round."""
    new, states = proposal.states, getattr(session, "old", None)
    session.old = new
    if new is None or states is None or states[1].shape != new[1].shape:
        return proposal
    return Proposal(proposal.tree, proposal.probs, states=states)


def keeps_what_the_draft_wrote(session, proposal, context):
    """Broken: take the draft's entries of accepted tokens for the target's. In a skipped layer none
    were written, and what stood there is read by every later pass.
    """
    tensors, length = context.cache.view().storage.tensors, context.cache.length
    kept = tensors.keys.clone(), tensors.values.clone()

    def observe(verdict, scores):
        accepted = slice(length, length + len(verdict.path))
        for mine, theirs in zip(kept, (tensors.keys, tensors.values)):
            theirs[..., accepted, :] = mine[..., accepted, :]

    session.observe = observe
    return proposal


BROKEN = {
    "reuse after a rejection": altered(EarlyExitDrafter(TARGET, 2, 3), reuses_after_a_rejection),
    "states that are one row late": altered(EarlyExitDrafter(TARGET, 1, 3), shifted_states),
    "a skipped layer's keys": altered(
        LayerSkipDrafter(TARGET, [(1, "attention")], 3), keeps_what_the_draft_wrote
    ),
}


@pytest.mark.parametrize("drafter", BROKEN.values(), ids=BROKEN)
def test_published_bugs_change_the_greedy_text(drafter):
    assert not torch.equal(generate(TARGET, PROMPT, drafter, 60).tokens, PLAIN)


def test_lookahead_rows_draft_the_first_token_from_p_itself():
    drafter = PassDrafter(TARGET, lookahead(TARGET, 3))
    steps = list(stream(TARGET, PROMPT, drafter, **SAMPLED))
    assert all(step.accepted >= 1 for step in steps if len(step.tree))
    assert {step.draft_passes for step in steps} <= {0, 1}
    assert max(len(step.tree) for step in steps) == 4
    longer = PassDrafter(TARGET, lookahead(TARGET, 1))
    assert all(len(step.tokens) >= 2 for step in list(stream(TARGET, PROMPT, longer, 40))[:-1])


def test_chunk_scores_are_the_attentions_own():
    """With chunks of one entry, the scores are the attention weights computed by hand."""
    cache = TARGET.new_cache()
    hidden = TARGET.score(PROMPT, cache, hidden_layers=(1,)).hidden
    found = Chunks([1], 1, 1).scores(TARGET, cache, hidden)
    block, place = TARGET.model.blocks[1], len(PROMPT) - 1
    cos, sin = (t[place] for t in TARGET.model.rotary(TARGET.device, TARGET.dtype))
    query = block.queries(hidden[1][0, -1])
    half = query.shape[-1] // 2
    query = query * cos + torch.cat((query[:, half:], query[:, :half]), -1) * sin
    keys = cache.keys(1)[0].repeat_interleave(2, 0)
    scores = (query[:, None] * keys).sum(-1) / query.shape[-1] ** 0.5
    assert torch.allclose(found, scores.softmax(-1).mean(0), atol=1e-10)
    assert found.sum() == pytest.approx(1.0)


def test_chunks_are_selected_outside_the_window():
    drafter = SparseCacheDrafter(TARGET, 0, 8, 3, Chunks([0], 8, 4))
    cache = TARGET.new_cache()
    text = torch.tensor([*PROMPT, *PROMPT, *PROMPT])
    scores = TARGET.score(text, cache, hidden_layers=(0,))
    kept = drafter.draft_cache(SimpleNamespace(cache=cache, scores=scores)).positions().tolist()
    assert len(kept) == 16 and kept[-8:] == list(range(len(text) - 8, len(text)))


@pytest.mark.parametrize("bits", [2, 4, 7])
def test_rounded_weights_are_on_the_levels(bits):
    weight = torch.randn(5, 48, generator=torch.Generator().manual_seed(0))
    near = round_weight(weight, bits, 16)
    for part, own in zip(near.split(16, 1), weight.split(16, 1)):
        step = own.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        assert (part - own).abs().le(step / 2 + 1e-6).all()
        assert (part / step - (part / step).round()).abs().max() < 1e-3


def test_rounding_copies_the_target():
    weights = [w.clone() for w in TARGET.model.parameters()]
    rates = [rate(QuantizedDrafter(TARGET, bits, 3)) for bits in (8, 4, 2)]
    assert 1 > rates[0] > rates[1] > rates[2]
    assert all(map(torch.equal, weights, TARGET.model.parameters()))
    draft = quantize(TARGET, 4)
    steps = list(stream(TARGET, PROMPT, QuantizedDrafter(TARGET, 4, 3), **SAMPLED))
    text = torch.tensor([*PROMPT, *steps[0].tokens[:1]])
    law = draft.score(text[:-1], draft.new_cache()).logits[0, -1].softmax(-1)
    assert steps[0].q[0] == pytest.approx(law[steps[0].tree.tokens[0]].item()), "q is its own"


# The drafted distributions, computed without caches, views or selections ---------------------------


def row_by_hand(target, text, skip=(), layers=None, entries=None):
    """Return the draft's distribution after a text, without cache or view: the last token passes
    through some sublayers and attends to some of the target's own keys.
    """
    model, last = target.model, len(text) - 1
    blocks = len(model.blocks) if layers is None else layers
    hidden = target.score(text, target.new_cache(), hidden_layers=range(blocks)).hidden
    entries = [*(range(last) if entries is None else entries(last)), last]
    cos, sin = (table[entries] for table in model.rotary(target.device, target.dtype))
    x = target.embed(torch.tensor(text[-1:]))[None]
    for number, block in enumerate(model.blocks[:blocks]):
        if (number, "attention") not in skip:
            states = torch.cat((hidden[number][:, entries[:-1]], x), 1)
            x = x + block.attention(states, cos, sin, None)[:, -1:]
        if (number, "mlp") not in skip:
            x = x + block.mlp(x)
    return target.head(model.norm(x))[0, 0].softmax(-1)


SKIP = [(0, "mlp"), (2, "attention")]
APPROXIMATE = {
    "early exit": (EarlyExitDrafter(TARGET, 2, 1), dict(layers=2)),
    "skipped sublayers": (LayerSkipDrafter(TARGET, SKIP, 1), dict(skip=SKIP)),
    "sinks and a window": (
        SparseCacheDrafter(TARGET, 2, 3, 1),
        dict(entries=lambda n: [0, 1, *range(n - 3, n)]),
    ),
}


@pytest.mark.parametrize("drafter, parts", APPROXIMATE.values(), ids=APPROXIMATE)
def test_drafts_are_from_rows_computed_by_hand(drafter, parts):
    rows = lambda context, _: row_by_hand(TARGET, context.tokens.tolist(), **parts)[None]
    assert max(differences(TARGET, drafter, PROMPT, rows, new=60)[0]) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("inputs", [16, 40, 64, 1000])
def test_8_bits_keep_the_sign_of_every_weight_at_any_width(dtype, inputs):
    """Rounded in bfloat16 the largest weights of a row wrapped to −128; at widths that are no
    multiple of 16 the product read beyond its rows.
    """
    generator = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(inputs, 200, bias=False, dtype=dtype)
    layer.weight.data = torch.randn(200, inputs, generator=generator).to(dtype)
    rounded = Int8Linear(layer)
    largest = layer.weight.abs().argmax(1, keepdim=True)
    signs = layer.weight.gather(1, largest).sign()
    assert torch.equal(rounded.rows[:, :inputs].gather(1, largest).sign().to(dtype), signs)
    x = torch.randn(4, inputs, generator=generator).to(dtype)
    exact = x.double() @ layer.weight.double().T
    error = (rounded(x).double() - exact).norm() / exact.norm()
    assert error < 0.02
