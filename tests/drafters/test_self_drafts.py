"""Drafts from the target itself: what each promises beyond the invariants, and broken variants that
the invariants see.
"""

from types import SimpleNamespace

import pytest
import torch
from models_zoo import PROMPT, native, shipped
from registry import exit_head, lookahead

from specdec_lite import generate, stream, theory
from specdec_lite.drafters import (
    EarlyExitDrafter,
    LayerSkipDrafter,
    PassDrafter,
    QuantisedDrafter,
    SparseCacheDrafter,
)
from specdec_lite.drafters.chunks import Chunks
from specdec_lite.drafters.early_exit import EarlyExitSession
from specdec_lite.drafters.layer_skip import every_sublayer, greedy_search
from specdec_lite.drafters.own import OwnSession
from specdec_lite.drafters.pass_rows import LookaheadRows, PassSession
from specdec_lite.drafters.quantised import quantised, rounded, stored_bytes
from specdec_lite.proposal import Proposal
from specdec_lite.tree import TokenTree

TARGET = native(num_layers=4)
PLAIN = generate(TARGET, PROMPT, max_new_tokens=60).tokens
SAMPLED = dict(max_new_tokens=60, temperature=1.0, seed=0)


def rate(drafter, **options):
    return generate(TARGET, PROMPT, drafter, **options or SAMPLED).stats.acceptance_rate


def test_what_leaves_nothing_out_is_the_target():
    """Nothing skipped, an adapter that adds nothing at the last exit but one block that adds
    nothing, every chunk selected."""
    assert rate(LayerSkipDrafter(TARGET, [], 3)) == 1.0
    assert rate(SparseCacheDrafter(TARGET, 0, 1, 3, Chunks([1], 500, 1))) == 1.0
    assert rate(LayerSkipDrafter(TARGET, [(3, "mlp")], 3)) < 1.0


def test_a_fresh_adapter_changes_nothing_and_the_norm_before_it_counts():
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


def test_no_cache_holds_a_drafted_key(monkeypatch):
    """Up to the committed length the target's keys are, bit by bit, what they were."""
    before = {}
    drafters = [
        LayerSkipDrafter(TARGET, [(1, "mlp"), (2, "attention")], 3),
        SparseCacheDrafter(TARGET, 1, 2, 3, Chunks([0], 4, 2)),
        EarlyExitDrafter(TARGET, 2, 3, adapter=exit_head(TARGET, 2)),
        PassDrafter(TARGET, lookahead(TARGET)),
    ]
    for session in (OwnSession, EarlyExitSession, PassSession):

        def watched(self, context, propose=session.propose):
            held = [context.cache.keys(layer).clone() for layer in range(4)]
            proposal = propose(self, context)
            before[type(self)] = True
            after = [context.cache.keys(layer) for layer in range(4)]
            assert all(map(torch.equal, held, after))
            return proposal

        monkeypatch.setattr(session, "propose", watched)
    for drafter in drafters:
        assert torch.equal(generate(TARGET, PROMPT, drafter, 60).tokens, PLAIN)
    assert len(before) == 3


class LeavesDraftedKeys(SparseCacheDrafter):
    """Drafts in the target's own cache, and leaves its keys there: verification writes behind."""

    def part(self, context):
        return context.cache


class ReusesAfterARejection(EarlyExitSession):
    """Hands on the states of the round before, whatever became of it."""

    old = None

    def propose(self, context):
        proposal = super().propose(context)
        new, states = proposal.states, self.old
        self.old = new
        if new is None or states is None or states[1].shape != new[1].shape:
            return proposal
        return Proposal(proposal.tree, proposal.probs, states=states)


class AcceptsLookaheadIds(PassSession):
    """Proposes the ids that look-ahead tokens would have, beyond the vocabulary."""

    def propose(self, context):
        count = len(super().propose(context).tree)
        return Proposal(TokenTree.chain([context.vocab_size + i for i in range(count)]))


class KeepsWhatTheDraftWrote(OwnSession):
    """Takes the draft's entries of accepted tokens for the target's: in a skipped layer none were
    written, and what stood there is read by every later pass.
    """

    def propose(self, context):
        tensors, length = context.cache.storage.tensors, context.cache.length
        proposal = super().propose(context)
        self.length_before, self.tensors = length, tensors
        self.kept = tensors.keys.clone(), tensors.values.clone()
        return proposal

    def observe(self, verdict, scores):
        accepted = slice(self.length_before, self.length_before + len(verdict.path))
        for mine, theirs in zip(self.kept, (self.tensors.keys, self.tensors.values)):
            theirs[..., accepted, :] = mine[..., accepted, :]


def broken(drafter, session):
    drafter.start = lambda context: session(drafter)
    return drafter


BROKEN = {
    "drafted keys stay": LeavesDraftedKeys(TARGET, 0, 99, 3),
    "reuse after a rejection": broken(EarlyExitDrafter(TARGET, 2, 3), ReusesAfterARejection),
    "a skipped layer's keys": broken(
        LayerSkipDrafter(TARGET, [(1, "attention")], 3), KeepsWhatTheDraftWrote
    ),
}


@pytest.mark.parametrize("drafter", BROKEN.values(), ids=BROKEN)
def test_published_mistakes_are_seen_by_the_greedy_text(drafter):
    assert not torch.equal(generate(TARGET, PROMPT, drafter, 60).tokens, PLAIN)


@pytest.mark.parametrize("checked, message", [("1", "proposed token 48"), ("0", "holds ids from")])
def test_an_id_of_a_lookahead_token_is_refused(checked, message, monkeypatch):
    monkeypatch.setenv("SPECDEC_CHECK", checked)
    drafter = broken(PassDrafter(TARGET, lookahead(TARGET)), AcceptsLookaheadIds)
    with pytest.raises(ValueError, match=message):
        generate(TARGET, PROMPT, drafter, 60)


def test_lookahead_rows_draft_the_first_token_from_p_itself():
    drafter = PassDrafter(TARGET, lookahead(TARGET, 3))
    steps = list(stream(TARGET, PROMPT, drafter, **SAMPLED))
    assert all(step.accepted >= 1 for step in steps if len(step.tree))
    assert {step.draft_passes for step in steps} <= {0, 1}
    assert max(len(step.tree) for step in steps) == 4
    longer = PassDrafter(TARGET, lookahead(TARGET, 1))
    assert all(len(step.tokens) >= 2 for step in list(stream(TARGET, PROMPT, longer, 40))[:-1])


def test_what_ships_belongs_to_the_shipped_target():
    target = shipped().target
    ids = [5, 17, 300, 41, 9, 1200]
    text = generate(target, ids, max_new_tokens=16).tokens
    for kind in (EarlyExitDrafter, PassDrafter):
        out = generate(target, ids, kind.from_pretrained(target), 16)
        assert torch.equal(out.tokens, text) and out.stats.draft_passes > 0


def test_reuse_pays_back_rows_and_not_reads():
    tokens = theory.expected_tokens(0.6, 4)
    plain = theory.corrected_improvement(tokens, 4, 0.3, 5.0)
    assert theory.reuse_improvement(tokens, 4, 0.3, 0.25) == pytest.approx(
        theory.corrected_improvement(tokens, 4, 0.3)
    ), "one row costs what five cost: nothing comes back"
    assert tokens / theory.reuse_improvement(tokens, 4, 0.3, 0.25, 5.0) == pytest.approx(
        tokens / plain - 4 * 0.25
    ), "every row has its price: γs comes back"
    with pytest.raises(ValueError, match="shared"):
        theory.reuse_improvement(2.0, 4, 0.3, 1.5)


def test_the_greedy_search_leaves_out_what_costs_least():
    worth = {one: place for place, one in enumerate(every_sublayer(3))}
    path = greedy_search(lambda skip: 1 - sum(worth[one] for one in skip) / 100, worth, 3)
    assert [len(skip) for skip, _ in path] == [0, 1, 2, 3]
    assert path[-1][0] == {(0, "attention"), (0, "mlp"), (1, "attention")}
    assert path[-1][1] == pytest.approx(0.97)


def test_chunks_are_those_that_attention_looks_at():
    """Query · mean key, by hand, for a chunk of one entry: the attention's own scores."""
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


def test_chunks_are_not_spent_on_what_the_window_holds():
    drafter = SparseCacheDrafter(TARGET, 0, 8, 3, Chunks([0], 8, 4))
    cache = TARGET.new_cache()
    text = torch.tensor([*PROMPT, *PROMPT, *PROMPT])
    scores = TARGET.score(text, cache, hidden_layers=(0,))
    kept = drafter.part(SimpleNamespace(cache=cache, scores=scores)).positions().tolist()
    assert len(kept) == 16 and kept[-8:] == list(range(len(text) - 8, len(text)))


@pytest.mark.parametrize("bits", [2, 4, 7])
def test_rounding_keeps_to_its_levels(bits):
    weight = torch.randn(5, 48, generator=torch.Generator().manual_seed(0))
    near = rounded(weight, bits, 16)
    for part, own in zip(near.split(16, 1), weight.split(16, 1)):
        step = own.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        assert (part - own).abs().le(step / 2 + 1e-6).all()
        assert (part / step - (part / step).round()).abs().max() < 1e-3


def test_a_rounded_target_is_another_model_and_the_target_stays():
    weights = [w.clone() for w in TARGET.model.parameters()]
    rates = [rate(QuantisedDrafter(TARGET, bits, 3)) for bits in (8, 4, 2)]
    assert 1 > rates[0] > rates[1] > rates[2]
    assert all(map(torch.equal, weights, TARGET.model.parameters()))
    draft = quantised(TARGET, 4)
    steps = list(stream(TARGET, PROMPT, QuantisedDrafter(TARGET, 4, 3), **SAMPLED))
    text = torch.tensor([*PROMPT, *steps[0].tokens[:1]])
    law = draft.score(text[:-1], draft.new_cache()).logits[0, -1].softmax(-1)
    assert steps[0].q[0] == pytest.approx(law[steps[0].tree.tokens[0]].item()), "q is its own"
    sizes = [stored_bytes(shipped().target, bits) for bits in (8, 4)]
    assert sizes[0] / sizes[1] == pytest.approx(1.78, abs=0.1)


BAD = [
    (lambda: LayerSkipDrafter(TARGET, [(4, "mlp")]), ValueError, "skip's block=4"),
    (lambda: LayerSkipDrafter(TARGET, [(0, "norm")]), ValueError, "skip holds 'norm'"),
    (lambda: EarlyExitDrafter(TARGET, 1, adapter=exit_head(TARGET, 2)), ValueError, "layers=1: "),
    (lambda: EarlyExitDrafter.from_pretrained(TARGET), ValueError, "nothing ships for it"),
    (lambda: QuantisedDrafter(TARGET, 1), ValueError, "bits=1"),
    (lambda: QuantisedDrafter(TARGET, 9), ValueError, "bits=9"),
    (lambda: PassDrafter(TARGET, LookaheadRows(7, 2)), ValueError, "rows of size 7"),
    (lambda: Chunks([0], 4, 8), ValueError, "budget=4"),
    (lambda: SparseCacheDrafter(TARGET, select=Chunks([4])), ValueError, "select's layer=4"),
]


@pytest.mark.parametrize("build, error, message", BAD, ids=[message for *_, message in BAD])
def test_bad_arguments_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()
