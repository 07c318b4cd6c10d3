"""The loop: arguments are checked, every token is counted once, the distribution is the target's."""

import dataclasses
import inspect
import math
from time import perf_counter

import numpy as np
import pytest
import torch
from drafted_rows import Scripted
from models_zoo import PROMPT, native, perturbed
from transformers import BatchEncoding

from specdec_lite import CausalLM, generate, generate_batch, stream
from specdec_lite.acceptance import speculative_sampling
from specdec_lite.decoding import Stats
from specdec_lite.drafters import ModelDrafter, PromptLookupDrafter
from specdec_lite.engine.cache import Scores
from specdec_lite.gpu.on_device import DeviceDrafter, on_device
from specdec_lite.options import OptionNames, Options
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.sampling import SeededRng
from specdec_lite.speculation import node_numbers, process_scores
from specdec_lite.tree import TokenTree

TARGET = native()
DRAFT = perturbed(TARGET)


def text(**options):
    return generate(TARGET, PROMPT, **dict(max_new_tokens=24) | options).tokens.tolist()


GREEDY = text()


def test_plain_decoding_is_argmax_of_the_model():
    for prompt in (PROMPT, PROMPT[:1], PROMPT[:2]):
        ids = list(prompt)
        for token in generate(TARGET, prompt, max_new_tokens=24).tokens.tolist():
            assert token == int(TARGET.model(torch.tensor([ids]))[0, -1].argmax())
            ids.append(token)
    assert len(set(GREEDY)) > 8  # the text is varied enough for the tests below to fail


# Stopping -----------------------------------------------------------------------------------------

FIRSTS = [i for i, token in enumerate(GREEDY) if token not in GREEDY[:i]]


@pytest.mark.parametrize("draft", [TARGET, DRAFT], ids=["perfect draft", "erring draft"])
def test_a_stop_token_at_any_position_of_a_block_ends_its_step_there(draft):
    """That the text ends there with every drafter is tested in test_invariants."""
    sizes, drafter = set(), ModelDrafter(draft, 5)
    for last in FIRSTS:
        steps = list(stream(TARGET, PROMPT, drafter, 24, stop_token_ids=(GREEDY[last],)))
        *others, end = steps
        sizes.add(len(end.tokens))
        assert all(step.kind is not None for step in others)
        assert (end.token is None) == (end.kind is None) == (len(end.path) == len(end.tokens))
        for step in steps:
            own = [step.token] if step.kind else []
            assert step.tokens == (*step.tree.tokens[list(step.path)].tolist(), *own)
        counted = Stats.of(steps)
        added = sum(step.kind is not None for step in steps)
        assert counted.tokens == last + 1 == counted.accepted + added
        assert draft is DRAFT or counted.accepted == counted.tested == counted.drafted
    assert draft is DRAFT or {1, 2, 3, 5, 6} <= sizes


def test_stop_tokens_of_any_collection():
    early, late = GREEDY[FIRSTS[2]], GREEDY[FIRSTS[5]]
    for drafter in (None, ModelDrafter(TARGET, 4)):
        for kind in (tuple, set, list, frozenset, torch.tensor, np.array):
            stops = kind([late, early])
            assert text(drafter=drafter, stop_token_ids=stops) == GREEDY[: FIRSTS[2] + 1]
        for stops in (late, {late}, torch.tensor(late), [late]):
            assert text(drafter=drafter, stop_token_ids=stops) == GREEDY[: FIRSTS[5] + 1]
        for stops in ([], None, np.array([], dtype=np.int32)):
            assert text(drafter=drafter, stop_token_ids=stops) == GREEDY


def test_a_stop_token_in_the_prompt_does_not_stop():
    assert PROMPT[-1] not in GREEDY[:5] and text(stop_token_ids=(PROMPT[-1],))[:5] == GREEDY[:5]


def test_token_0_stops_a_text_like_any_other_token():
    target = native(seed=21)
    whole = generate(target, PROMPT, max_new_tokens=24).tokens.tolist()
    ended = whole[: whole.index(0) + 1]
    assert 4 < len(ended) < 24
    for drafter in (None, ModelDrafter(target, 8), ModelDrafter(perturbed(target), 3)):
        for own, stops in (((), (0,)), ((0,), None)):
            target.end_of_text = own
            out = generate(target, PROMPT, drafter, 24, stop_token_ids=stops)
            assert out.tokens.tolist() == ended


def test_generate_editors_and_the_checked_object_have_the_same_options():
    parameters = inspect.signature(generate).parameters
    own = {field.name: field.default for field in dataclasses.fields(Options) if field.init}
    assert [*own] == [*OptionNames.__annotations__]
    assert {name: parameters[name].default for name in own} == own
    assert [*parameters] == ["target", "prompt_ids", "drafter", *[*own][:6], "seed", *[*own][6:]]


def test_a_generation_reserves_its_cache_once_and_needs_few_rows(monkeypatch):
    """Reserve room for the whole text and one draft; of the prompt compute the last row only."""
    made, rows, new_cache = [], [], TARGET.new_cache
    monkeypatch.setattr(
        TARGET, "new_cache", lambda **options: made.append(new_cache(**options)) or made[-1]
    )
    watching = TARGET.backend.head.register_forward_pre_hook(
        lambda head, given: rows.append(given[0].shape[-2])
    )
    running = stream(TARGET, PROMPT, ModelDrafter(DRAFT, 3), 200)
    next(running)
    reserved = made[0].storage.tensors
    assert reserved.capacity >= len(PROMPT) + 200 + 4
    list(running)
    watching.remove()
    assert made[0].storage.tensors is reserved and max(rows) == 4


def encodings():
    """Yield the prompt in every form that is taken."""
    ids = torch.tensor(PROMPT)
    yield from (PROMPT, tuple(PROMPT), ids, ids[None])
    yield from (ids.to(dtype) for dtype in (torch.uint8, torch.int32))
    yield from (np.array(PROMPT, dtype=dtype) for dtype in (np.uint8, np.uint16, np.int32))
    for row in (ids[None], [list(PROMPT)], list(PROMPT)):
        encoding = {"input_ids": row}
        mask = {"attention_mask": torch.ones_like(torch.as_tensor(row))}
        yield from (encoding, BatchEncoding(encoding), BatchEncoding(encoding | mask))


def test_a_prompt_of_any_form_is_read_as_long_ids():
    class Seen(ModelDrafter):
        def start(self, context):
            self.dtype = context.tokens.dtype
            return super().start(context)

    for prompt in encodings():
        drafter = Seen(DRAFT, 2)
        assert generate(TARGET, prompt, drafter, 4).tokens.tolist() == GREEDY[:4]
        assert drafter.dtype == torch.long


# Stream, seeds, interleaving ----------------------------------------------------------------------


def test_stream_checks_at_the_call_and_runs_nothing_before_the_first_step(monkeypatch):
    model = native(seed=3)
    monkeypatch.setattr(model, "score", lambda *a, **k: pytest.fail("a model ran"))
    stream(model, PROMPT)
    with pytest.raises(ValueError):
        stream(model, [])


# Statistics ---------------------------------------------------------------------------------------


def test_statistics_add_up():
    began = perf_counter()
    out = generate(TARGET, PROMPT, ModelDrafter(DRAFT, 4), 60, temperature=1.0, seed=0)
    elapsed, s = perf_counter() - began, out.stats
    assert s.seconds <= elapsed  # no part of a round is counted twice
    assert s.acceptance_rate == s.accepted / s.tested
    assert s.drafted_acceptance == s.accepted / s.drafted < s.acceptance_rate
    assert s.mean_acceptance_length == 60 / len(out.steps)
    assert s.tokens == s.accepted + len(out.steps)
    parts = [(step.drafting, step.verifying, step.other) for step in out.steps]
    drafting, verifying, other = map(sum, zip(*parts))
    assert s.seconds == pytest.approx(drafting + verifying + other) and s.drafting < s.seconds
    assert s.drafting == pytest.approx(drafting) and s.verifying > 0
    assert s.verifying == pytest.approx(verifying)
    # The prefill happened before the first step.
    assert s.draft_passes == sum(len(step.tree) for step in out.steps)


def test_plain_decoding_has_no_acceptance():
    s = generate(TARGET, PROMPT, max_new_tokens=5).stats
    assert math.isnan(s.acceptance_rate) and math.isnan(s.drafted_acceptance)
    assert s.mean_acceptance_length == 1 and s.draft_passes == 0
    assert math.isnan(Stats.of([]).mean_acceptance_length)


def test_steps_record_p_and_q_of_every_drafted_token():
    step = next(stream(TARGET, PROMPT, ModelDrafter(DRAFT, 3), 20, temperature=1.0, seed=0))
    ids = list(PROMPT)
    for token, p, q in zip(step.tree.tokens.tolist(), step.p, step.q):
        for model, prob in ((TARGET, p), (DRAFT, q)):
            row = model.model(torch.tensor([ids]))[0, -1].softmax(-1)
            assert row[token].item() == pytest.approx(prob, rel=1e-9)
        ids.append(token)
    greedy = next(stream(TARGET, PROMPT, ModelDrafter(DRAFT, 3), 20))
    assert set(greedy.q) == {1.0} and set(greedy.p) <= {0.0, 1.0}


# What a drafter may not do ------------------------------------------------------------------------


def test_outputs_and_proposals_can_be_compared_and_stored_by_identity():
    out = generate(TARGET, PROMPT, max_new_tokens=3)
    made = Proposal(TokenTree.chain([1]), torch.ones(1, 48) / 48)
    assert out == out != generate(TARGET, PROMPT, max_new_tokens=3)
    assert made != Proposal(TokenTree.chain([1]), torch.ones(1, 48) / 48)
    assert {out, made}


ONE = TokenTree.chain([1])
FAULTS = [
    (Proposal(TokenTree.chain([48])), "proposed token 48"),
    (Proposal(TokenTree.chain([-1])), "proposed token -1"),
    (Proposal(TokenTree.chain([48]), candidates=frozenset()), "proposed token 48"),
    (Proposal(ONE, torch.full((1, 5), 0.2)), r"probs have shape \(1, 5\)"),
    (Proposal(ONE, torch.full((1, 48), 0.2)), "sum to 1"),
    (Proposal(ONE, torch.full((1, 48), math.nan)), "sum to 1"),
    (Proposal(ONE, torch.tensor([[-3.0, *[4 / 47] * 47]])), "contain -3.0: probabilities must be"),
    (None, "the drafter proposed a NoneType: must be a Proposal"),
    ([1, 2], "the drafter proposed a list: must be a Proposal"),
    (ONE, "the drafter proposed a TokenTree: must be a Proposal"),
]


@pytest.mark.parametrize("proposal, message", FAULTS, ids=[message for _, message in FAULTS])
def test_a_faulty_draft_is_refused_before_the_target_verifies_it(proposal, message):
    with pytest.raises((TypeError, ValueError), match=message):
        generate(TARGET, PROMPT, Scripted(proposal), max_new_tokens=4, temperature=1.0)


def test_a_draft_deeper_than_wanted_is_cut_and_its_rows_with_it():
    """The last rounds of a drafter that ignores `wanted` propose more than can be used."""
    chain = Proposal(TokenTree.chain([1, 2, 3, 4]), torch.full((4, 48), 1 / 48))
    cut = chain.trimmed(2)
    assert cut.tree == TokenTree.chain([1, 2]) and cut.probs.shape == (2, 48)
    assert chain.trimmed(4) is chain and len(chain.trimmed(0).tree) == 0
    tree = TokenTree([1, 2, 3, 4, 5], [-1, 0, 1, 0, -1])  # depth first
    rows = torch.eye(48)[[1, 2, 3, 4, 5, 5]]
    states = (1, torch.arange(6.0)[None, :, None])
    merged = Proposal(tree, rows, [0, 1, 2, 3, 4, 4], frozenset({0, 1, 4}), states).trimmed(2)
    assert merged.tree == TokenTree([1, 2, 4, 5], [-1, 0, 0, -1])
    assert merged.nodes == [0, 1, 2, 3, 3] and merged.candidates == {0, 1, 3}
    assert torch.equal(merged.probs, rows[[0, 1, 3, 4, 5]])
    assert merged.states[0] == 1 and merged.states[1].flatten().tolist() == [0, 1, 2, 4, 5]
    plain = generate(TARGET, PROMPT, max_new_tokens=6).tokens
    proposal = Proposal(TokenTree.chain([1, 2, 3, 4]))
    steps = list(stream(TARGET, PROMPT, Scripted(proposal), 6))
    assert [t for step in steps for t in step.tokens] == plain.tolist()
    assert [len(step.tree) for step in steps][-1] < 4


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nodes_that_may_not_be_accepted_are_neither_drafted_nor_tested(temperature):
    nothing_counts = Proposal(TokenTree.chain([1, 2, 3]), candidates=frozenset())
    out = generate(TARGET, PROMPT, Scripted(nothing_counts), 12, temperature, seed=0)
    assert {step.kind for step in out.steps} == {"sampled"}
    assert (out.stats.drafted, out.stats.tested, out.stats.accepted) == (0, 0, 0)
    one = Proposal(TokenTree([1, 2, 3], [-1, -1, 0]), candidates=frozenset({0}))
    out = generate(TARGET, PROMPT, Scripted(one), 12, temperature, seed=0)
    full = [step for step in out.steps if len(step.tree)]
    assert full and all(step.drafted == 1 == step.tested for step in full)
    assert all(step.kind == ("bonus" if step.path else "recovered") for step in full)


def test_rows_that_are_no_distributions_are_looked_for_only_when_asked(monkeypatch):
    wrong = Scripted(Proposal(TokenTree.chain([1]), torch.full((1, 48), 0.2)))
    monkeypatch.delenv("SPECDEC_CHECK")
    generate(TARGET, PROMPT, wrong, 4, temperature=1.0)
    with pytest.raises(ValueError, match="holds ids from"):  # the target itself refuses these
        generate(TARGET, PROMPT, Scripted(Proposal(TokenTree.chain([48]))), 4)


def test_what_a_session_hears_can_be_learnt_from():
    """Scores are inference tensors; `detached` returns ordinary ones."""
    heard, drafter = [], Scripted(Proposal(ONE))
    drafter.observe = lambda verdict, scores: heard.append(scores)
    generate(TARGET, PROMPT, drafter, 4)
    weights = torch.ones(48, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        (heard[0].logits * weights).sum().backward()
    loss = (heard[0].detached().logits * weights).sum()
    loss.backward()
    assert weights.grad is not None


def test_an_output_prints_as_one_short_line():
    plain, drafted = (
        generate(TARGET, PROMPT, drafter, 24) for drafter in (None, ModelDrafter(TARGET, 2))
    )
    assert repr(plain) == ("Output(24 tokens in 24 target passes)")
    assert repr(drafted) == ("Output(24 tokens in 8 target passes, acceptance rate 1.00)")


READER = "may not change the target's cache|belong to another cache"
CHANGED = r"Scripted changed the target's cache: it has \d tokens"
CHANGES = {
    "crop": (lambda cache: cache.crop(0), READER),
    "keep": (lambda cache: cache.keep([0]), READER),
    "feed": (lambda cache: TARGET.score([1], cache), READER),
    "write": (lambda cache: cache.storage.tensors.keys.zero_(), READER),
    "length": (lambda cache: setattr(cache, "length", 1), READER),
    "a view": (lambda cache: cache.view().crop(0), READER),
    "emptied behind its reader": (lambda cache: cache._cache.crop(0), CHANGED),
    "cut behind its reader": (lambda cache: cache._cache.crop(1), CHANGED),
}


@pytest.mark.parametrize("change, message", CHANGES.values(), ids=CHANGES)
def test_a_drafter_cannot_change_the_targets_cache(change, message):
    drafter = Scripted(lambda context: (change(context.cache), NOTHING)[1])
    with pytest.raises((AttributeError, ValueError), match=message):
        generate(native(), PROMPT, drafter, 8)
    with pytest.raises((AttributeError, ValueError), match=message):
        generate_batch(native(), [PROMPT, PROMPT[:3]], drafter, 8)


def test_a_processor_is_not_asked_about_texts_that_it_forbids():
    asked = []

    def even(prefix_ids, logits):
        asked.append(prefix_ids.tolist())
        return logits.masked_fill(torch.arange(len(logits)) % 2 == 1, -math.inf)

    tree = TokenTree([3, 2, 4, 6, 5], [-1, -1, 0, 1, 3])
    scores = Scores(torch.randn(1, 6, 8))
    after = process_scores([even], torch.tensor([9]), tree, scores)
    assert asked == [[9], [9, 2], [9, 2, 6]]
    assert torch.equal(after.logits[0, [1, 3, 5]], scores.logits[0, [1, 3, 5]])


def test_merged_draws_count_as_often_as_they_were_made():
    row = torch.zeros(48).index_fill(0, torch.tensor([GREEDY[0]]), 1.0)
    drafter = Scripted(Proposal(TokenTree.chain([GREEDY[0]]), row.expand(3, -1), nodes=[0, 0, 0]))
    step = next(stream(TARGET, PROMPT, drafter, 8, rule=speculative_sampling))
    assert (step.draw_counts, step.accepted, step.tested, step.drafted) == ((3,), 1, 1, 3)
    other = Scripted(
        Proposal(
            TokenTree.chain([(GREEDY[0] + 1) % 48]), row.roll(1).expand(3, -1), nodes=[0, 0, 0]
        )
    )
    step = next(stream(TARGET, PROMPT, other, 8, rule=speculative_sampling))
    assert (step.accepted, step.tested, step.drafted) == (0, 3, 3)


def test_a_node_reports_the_row_of_its_first_draw():
    rows = torch.tensor([[0.1, 0.9, 0.0], [0.3, 0.3, 0.4]])
    merged = Proposal(TokenTree.chain([1]), rows, nodes=[0, 0])
    numbers = node_numbers(merged.read(torch.tensor([[0.2, 0.5, 0.3]] * 2))[0])
    assert numbers["p"] == pytest.approx([0.5]) and numbers["q"] == pytest.approx([0.9])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "rule, make", [(None, ModelDrafter), (on_device, DeviceDrafter)], ids=["plain", "on_device"]
)
@pytest.mark.parametrize("value", [math.nan, -math.inf], ids=str)
def test_one_row_of_logits_that_are_no_numbers_is_flagged(
    rule, make, temperature, value, monkeypatch
):
    model = native(dtype=torch.float32)
    score = CausalLM.score

    def spoil(self, tokens, cache, *others, **options):
        scores = score(self, tokens, cache, *others, **options)
        with torch.inference_mode():
            if self is model:
                scores.logits[0, -1] = value
        return scores

    drafter = make(native(dtype=torch.float32), 3)
    monkeypatch.setattr(CausalLM, "score", spoil)
    with pytest.raises(ValueError, match="logits hold NaN"):
        generate(model, PROMPT, drafter, 8, temperature, rule=rule, seed=0)


def test_a_source_of_chance_that_counts_as_false_is_used_all_the_same():
    class Empty(SeededRng):
        """A log of its draws, say, that is empty at the start."""

        __len__ = lambda self: 0

    steps = stream(TARGET, PROMPT, None, 6, 1.0, rng=Empty(3))
    plain = generate(TARGET, PROMPT, None, 6, 1.0, seed=3)
    assert [token for step in steps for token in step.tokens] == plain.tokens.tolist()


def test_a_drafter_cannot_change_the_callers_prompt():
    class Writer(PromptLookupDrafter):
        def start(self, context):
            context.tokens[-1] = 0
            return super().start(context)

    prompt = torch.tensor([5, 6, 7])
    generate(TARGET, prompt, Writer(2), 2)
    assert prompt.tolist() == [5, 6, 7]
