"""The loop: arguments are checked, every token is counted once, the distribution is the target's."""

import copy
import dataclasses
import inspect
import math
from time import perf_counter

import numpy as np
import pytest
import torch
from chance import RecordingRng
from models_zoo import PROMPT, native, perturbed
from transformers import BatchEncoding

from specdec_lite import CausalLM, generate, generate_batch, stream
from specdec_lite.acceptance import speculative_sampling
from specdec_lite.contract import Drafter, Session
from specdec_lite.decoding import Stats
from specdec_lite.drafters import ModelDrafter, PromptLookupDrafter
from specdec_lite.engine.cache import Scores
from specdec_lite.gpu.on_device import DeviceDrafter, on_device
from specdec_lite.options import OptionNames, Options
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.sampling import Sampling, SeededRng
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
    """Return the model with token 0 and another token exchanged, so that it writes 0."""
    other = next(token for token in GREEDY[4:] if token not in GREEDY[:4])
    rename = lambda ids: [{0: other, other: 0}.get(token, token) for token in ids]
    renamed = CausalLM(copy.deepcopy(TARGET.model))
    with torch.no_grad():
        for weight in (renamed.model.embedding.weight, renamed.model.head.weight):
            weight[[0, other]] = weight[[other, 0]]
    whole = rename(GREEDY)
    ended = whole[: whole.index(0) + 1]
    assert 0 not in GREEDY and len(ended) > 4
    for drafter in (None, ModelDrafter(renamed, 8), ModelDrafter(DRAFT, 3)):
        for own, stops in (((), (0,)), ((0,), None)):
            renamed.end_of_text = own
            out = generate(renamed, rename(PROMPT), drafter, len(GREEDY), stop_token_ids=stops)
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


def test_the_recorded_round_can_be_verified_by_hand():
    """Write out Leviathan's algorithm from the paper: equal uniforms give equal rounds."""
    recording = RecordingRng(4)
    step = next(stream(TARGET, PROMPT, ModelDrafter(DRAFT, 3), 20, temperature=1.0, rng=recording))
    uniforms, sampling = list(recording.uniforms), Sampling(1.0)
    law = lambda model, ids: sampling(model.model(torch.tensor([ids]))[0, -1]).numpy()
    find = lambda probs, u: int(np.searchsorted(np.cumsum(probs), u * probs.sum(), side="right"))
    drafted, q = [], []
    for _ in range(3):
        q.append(law(DRAFT, PROMPT + drafted))
        drafted.append(find(q[-1], uniforms.pop(0)))
    emitted = []
    for token, row in zip(drafted, q):
        p = law(TARGET, PROMPT + emitted)
        if uniforms.pop(0) >= p[token] / row[token]:
            break
        emitted.append(token)
    p = law(TARGET, PROMPT + emitted)
    left = p if len(emitted) == 3 else np.maximum(p - q[len(emitted)], 0)
    assert (*emitted, find(left / left.sum(), uniforms.pop(0))) == step.tokens and uniforms == []


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


class Scripted(Drafter, Session):
    """A drafter that makes the same proposal in every round."""

    def __init__(self, proposal):
        self.proposal = proposal

    def start(self, context):
        return self

    def propose(self, context):
        return self.proposal


FAULTS = [
    (Proposal(TokenTree.chain([48])), "proposed token 48"),
    (Proposal(TokenTree.chain([-1])), "proposed token -1"),
    (Proposal(TokenTree.chain([1]), torch.full((1, 5), 0.2)), r"probs have shape \(1, 5\)"),
    (Proposal(TokenTree.chain([1]), torch.full((1, 48), 0.2)), "sum to 1"),
    (Proposal(TokenTree.chain([1]), torch.full((1, 48), float("nan"))), "sum to 1"),
    (
        Proposal(
            TokenTree.chain([1]), torch.full((1, 48), 4 / 47).index_fill(1, torch.tensor([0]), -3.0)
        ),
        "probs contain -3.0: probabilities must be",
    ),
    (Proposal(TokenTree.chain([48]), candidates=frozenset()), "proposed token 48"),
]


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
    with pytest.raises(ValueError, match="sum to 1"):
        generate(TARGET, PROMPT, wrong, 4, temperature=1.0)
    monkeypatch.delenv("SPECDEC_CHECK")
    generate(TARGET, PROMPT, wrong, 4, temperature=1.0)
    with pytest.raises(ValueError, match="holds ids from"):  # the target itself refuses these
        generate(TARGET, PROMPT, Scripted(Proposal(TokenTree.chain([48]))), 4)


def test_what_a_session_hears_can_be_learnt_from():
    """Scores are inference tensors; `detached` returns ordinary ones."""
    heard = []

    class Hears(Scripted):
        def observe(self, verdict, scores):
            heard.append(scores)

    generate(TARGET, PROMPT, Hears(Proposal(TokenTree.chain([1]))), 4)
    weights = torch.ones(48, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        (heard[0].logits * weights).sum().backward()
    loss = (heard[0].detached().logits * weights).sum()
    loss.backward()
    assert weights.grad is not None


@pytest.mark.parametrize("proposal, message", FAULTS)
def test_a_faulty_draft_is_refused_before_the_target_verifies_it(proposal, message):
    with pytest.raises(ValueError, match=message):
        generate(TARGET, PROMPT, Scripted(proposal), max_new_tokens=4, temperature=1.0)


def test_an_output_prints_as_one_short_line():
    plain, drafted = (
        generate(TARGET, PROMPT, drafter, 24) for drafter in (None, ModelDrafter(TARGET, 2))
    )
    assert repr(plain) == ("Output(24 tokens in 24 target passes)")
    assert repr(drafted) == ("Output(24 tokens in 8 target passes, acceptance rate 1.00)")


CHANGES = {
    "crop": lambda cache: cache.crop(0),
    "keep": lambda cache: cache.keep([0]),
    "feed": lambda cache: TARGET.score([1], cache),
    "write": lambda cache: cache.storage.tensors.keys.zero_(),
    "length": lambda cache: setattr(cache, "length", 1),
    "a view": lambda cache: cache.view().crop(0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_drafter_cannot_change_the_targets_cache(change):
    class Changing(Drafter, Session):
        def start(self, context):
            return self

        def propose(self, context):
            change(context.cache)
            return NOTHING

    message = "may not change the target's cache|belong to another cache"
    with pytest.raises((AttributeError, ValueError), match=message):
        generate(TARGET, PROMPT, Changing(), 8)
    with pytest.raises((AttributeError, ValueError), match=message):
        generate_batch(TARGET, [PROMPT, PROMPT[:3]], Changing(), 8)


@pytest.mark.parametrize("length", [0, 1], ids=["emptied", "one token left"])
def test_a_drafter_that_cuts_the_targets_cache_is_named(length):
    class Cutting(Session):
        def propose(self, context):
            context.cache._cache.crop(length)
            return NOTHING

    class CuttingDrafter(Drafter):
        def start(self, context):
            return Cutting()

    with pytest.raises(ValueError, match="Cutting changed the target's cache: it has [01] tokens"):
        generate(native(), PROMPT, CuttingDrafter(), 8)
    with pytest.raises(ValueError, match="Cutting changed the target's cache"):
        generate_batch(native(), [PROMPT, PROMPT[:3]], CuttingDrafter(), 8)


@pytest.mark.parametrize(
    "proposal", [None, [1, 2], TokenTree.chain([1])], ids=["None", "list", "tree"]
)
def test_an_object_that_is_not_a_proposal_is_refused(proposal):
    with pytest.raises(
        TypeError, match=f"the drafter proposed a {type(proposal).__name__}: must be a Proposal"
    ):
        generate(TARGET, PROMPT, Scripted(proposal), max_new_tokens=8)


@pytest.mark.parametrize("call", [1, 3])
def test_a_drafter_that_raises_is_heard_and_the_model_stays_usable(call):
    class Raises(ModelDrafter):
        def start(self, context):
            session, calls = super().start(context), iter(range(1, 99))
            propose = session.propose

            def fail(context):
                if next(calls) == call:
                    raise RuntimeError("out of ideas")
                return propose(context)

            session.propose = fail
            return session

    seen = []
    with pytest.raises(RuntimeError, match="out of ideas"):
        for step in stream(TARGET, PROMPT, Raises(DRAFT, 3), 24):
            seen += step.tokens
    assert seen == GREEDY[: len(seen)] and bool(seen) == (call > 1)
    assert text(drafter=ModelDrafter(DRAFT, 3)) == GREEDY


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
    class Logged(SeededRng):
        """A log of its draws, empty at the start."""

        drawn = 0

        def __len__(self):
            return self.drawn

        def draw(self, probs):
            self.drawn += 1
            return super().draw(probs)

    rng = Logged(3)
    tokens = [
        token for step in stream(TARGET, PROMPT, None, 6, 1.0, rng=rng) for token in step.tokens
    ]
    assert tokens == generate(TARGET, PROMPT, None, 6, 1.0, seed=3).tokens.tolist()
    assert len(rng) == 6


def test_a_drafter_cannot_change_the_callers_prompt():
    class Writer(PromptLookupDrafter):
        def start(self, context):
            context.tokens[-1] = 0
            return super().start(context)

    prompt = torch.tensor([5, 6, 7])
    generate(TARGET, prompt, Writer(2), 2)
    assert prompt.tolist() == [5, 6, 7]
