"""Every composite around every drafter of the registry, alone and two levels deep.

Each runs beside an arm that sometimes wins, so that its session is asked for drafts on which it
hears no verdict. A combination either decodes the target's own text or is refused before a model
runs.
"""

from itertools import product

import pytest
from drafted_rows import changed
from models_zoo import PROMPT, native, perturbed
from registry import COMPOSITES, DRAFTERS, is_late_refusal, lookup

from specdec_lite import drafters as d, generate, stream
from specdec_lite.acceptance import block_verification
from specdec_lite.drafters.bandit import Arm, BanditSession
from specdec_lite.drafters.combined import children
from specdec_lite.options import prepare

SAMPLE = [
    "draft model",
    "suffix decoding",
    "EAGLE, a chain",
    "early exit whose layers are not run again",
    "block diffusion",
    "a cascade over prompt lookup",
    "Lookahead, a tree",
]
"""The drafters inside two composites, and inside one in `make test`."""
SELF = ("early exit whose layers are not run again", "early exit with an adapter")
TARGET = native()


def decode_or_refuse(make, length: int = 24):
    """Decode greedily and compare with plain decoding; refusals must come from the checks."""
    try:
        drafter = make(TARGET)
        prepare(TARGET, PROMPT, drafter, length)
    except ValueError as error:
        return str(error)
    try:
        text = generate(TARGET, PROMPT, drafter, length).tokens.tolist()
    except ValueError as error:
        assert is_late_refusal(error), error
        return str(error)
    assert text == generate(TARGET, PROMPT, None, length).tokens.tolist()
    return None


def inside(composite: str, make):
    return lambda target: COMPOSITES[composite](make, target)


ONE = [
    pytest.param(outer, name, marks=() if name in SAMPLE else pytest.mark.registry)
    for outer in COMPOSITES
    for name in DRAFTERS
]


@pytest.mark.parametrize(("outer", "name"), ONE)
def test_a_composite_of_any_drafter_writes_the_targets_own_text(outer, name):
    refusal = decode_or_refuse(inside(outer, DRAFTERS[name]))
    assert refusal is None or outer in ("relay", "cascade"), refusal


@pytest.mark.registry
@pytest.mark.parametrize("inner", COMPOSITES)
@pytest.mark.parametrize("outer", COMPOSITES)
def test_a_composite_of_a_composite_writes_the_targets_own_text(outer, inner):
    refusals = []
    for name in SAMPLE:
        refusal = decode_or_refuse(inside(outer, inside(inner, DRAFTERS[name])))
        refusals += [refusal] if refusal else []
    assert len(refusals) < len(SAMPLE) or "relay" in (outer, inner), refusals


@pytest.mark.parametrize("leg", [0, 1])
def test_a_relay_refuses_trees_of_a_drafter_that_does_not_tell_its_limits(leg):
    tree = DRAFTERS["a tree drawn with replacement, equal nodes merged"](TARGET)
    assert tree.limits() is None
    legs = [(d.PromptLookupDrafter(2), 2), (d.PromptLookupDrafter(2), 2)]
    legs[leg] = tree, 2
    with pytest.raises(ValueError, match=rf"legs\[{leg}\] proposed a tree"):
        generate(TARGET, PROMPT, d.RelayDrafter(legs), 24, temperature=1.0, seed=0)


@pytest.mark.parametrize("name", [*SELF, "look-ahead rows", "the target on sinks and a window"])
def test_only_the_first_leg_may_draft_with_the_targets_own_cache(name):
    legs = [(DRAFTERS[name](TARGET), 2), (d.PromptLookupDrafter(2), 2)]
    assert decode_or_refuse(lambda target: d.RelayDrafter(legs)) is None
    with pytest.raises(ValueError, match="only the first may draft with a part of the target"):
        d.RelayDrafter(legs[::-1])


def witness(session):
    """Require that a verdict is about the session's last proposal, and comes at most once."""
    propose, observe, unheard = session.propose, session.observe, []

    def proposing(context):
        proposal = propose(context)
        unheard[:] = [proposal.trimmed(context.wanted - 1).tree.tokens.tolist()]
        return proposal

    def observing(verdict, scores):
        assert unheard, "a verdict on no proposal"
        assert list(verdict.tokens) == unheard.pop(), "a verdict on another proposal"
        observe(verdict, scores)

    session.propose, session.observe = proposing, observing


TOLD = COMPOSITES | {
    "a bandit that often does not draft": lambda make, target, beside=lookup: d.BanditDrafter(
        [make(target), beside(target)], t=0.4
    )
}


WATCHED = [*SAMPLE, "a tree drawn by a draft, merged with heads"]


def run_with_witnesses(outer, name, temperature=0.0, inner=None):
    """Decode with a composite of two drafters, each behind a witness, or of another composite."""

    def watched(target):
        return changed(DRAFTERS[name](target), witness)

    def beside(target):
        return changed(lookup(target), witness)

    def make(target):
        return COMPOSITES[inner](watched, target, beside) if inner else watched(target)

    drafter = TOLD[outer](make, TARGET, beside)
    generate(TARGET, PROMPT, drafter, 40, temperature=temperature, seed=0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", WATCHED)
@pytest.mark.parametrize("outer", TOLD)
def test_a_composite_tells_every_session_what_became_of_its_own_draft(outer, name, temperature):
    try:
        run_with_witnesses(outer, name, temperature)
    except ValueError as refusal:
        assert outer in ("relay", "cascade", "coupled"), refusal


@pytest.mark.registry
@pytest.mark.parametrize("inner", COMPOSITES)
@pytest.mark.parametrize("outer", TOLD)
def test_a_composite_in_a_composite_tells_every_session_its_own_verdict(outer, inner):
    for name, temperature in product(WATCHED, (0.0, 1.0)):
        try:
            run_with_witnesses(outer, name, temperature, inner)
        except ValueError as refusal:
            assert {outer, inner} & {"relay", "cascade", "coupled"}, refusal


def test_the_witness_sees_a_verdict_on_an_earlier_draft(monkeypatch):
    propose = BanditSession.propose

    def keeps_the_arm(session, context):
        before = session.chosen
        proposal = propose(session, context)
        session.chosen = session.chosen or before
        return proposal

    monkeypatch.setattr(BanditSession, "propose", keeps_the_arm)
    with pytest.raises(AssertionError, match="a verdict on"):
        run_with_witnesses("a bandit that often does not draft", "draft model")


def texts_of_two_self_drafts() -> list[bool]:
    """Decode with a bandit over two drafts that write to the target's cache, one of them drawn."""
    plain = generate(TARGET, PROMPT, None, 24).tokens.tolist()
    first, second = (DRAFTERS[name](TARGET) for name in SELF)
    drafter = d.BanditDrafter([first, d.TemperedDrafter(second, 2.0)])
    return [
        generate(TARGET, PROMPT, drafter, 24, seed=seed).tokens.tolist() == plain
        for seed in range(8)
    ]


@pytest.mark.parametrize("marked, left_out", [*product((True, False), repeat=2)])
def test_either_of_two_precautions_keeps_the_text(monkeypatch, marked, left_out):
    """A draft that was not chosen must not change what the chosen one stored. A user's drafter may
    not say that it makes passes; then its states are left out.
    """
    if not left_out:
        monkeypatch.setattr(BanditSession, "_readable", lambda session, proposal: proposal)
    if not marked:
        monkeypatch.setattr(d.EarlyExitDrafter, "makes_passes", False)
    assert all(texts_of_two_self_drafts()) == (marked or left_out)


@pytest.mark.parametrize("name", DRAFTERS)
def test_an_arm_that_makes_passes_is_not_asked_in_every_round(name):
    drafter = DRAFTERS[name](TARGET)
    passes = sum(step.draft_passes for step in generate(TARGET, PROMPT, drafter, 12).steps)
    assert not (passes and Arm.is_free(drafter))


class Learner(d.PromptLookupDrafter):
    """Keep what it is given to learn."""

    def learn(self, tokens):
        self.heard = [*getattr(self, "heard", []), list(tokens)]


@pytest.mark.parametrize("outer", COMPOSITES)
def test_a_composite_passes_learning_on_once(outer):
    one = Learner(2)
    drafter = inside(outer, lambda target: one)(TARGET)
    drafter.learn([1, 2, 3])
    inside("bandit", lambda target: drafter)(TARGET).learn([4])
    d.MergedDrafter([one, one]).learn([5])
    assert one.heard == [[1, 2, 3], [4], [5]] and children(d.MergedDrafter([one, one])) == [one]


@pytest.mark.parametrize("outer", ["bandit", "merged", "tempered", "coupled"])
def test_a_rule_of_chains_refuses_a_tree_inside_a_composite_before_any_model_runs(outer):
    trees = (d.SuffixDrafter(8, factor=3, width=2), d.SpecExecDrafter(perturbed(TARGET), 3, 2, 3))
    for tree in trees:
        drafter = inside(outer, lambda target: tree)(TARGET)
        with pytest.raises(ValueError, match="takes chains only"):
            prepare(TARGET, PROMPT, drafter, 8, 1.0, rule=block_verification)


def test_the_inner_rounds_of_a_perfect_cascade_emit_three_tokens_each():
    whole = d.CascadeDrafter(TARGET, d.ModelDrafter(TARGET, 2), 6)
    assert all(step.draft_passes <= 4 for step in stream(TARGET, PROMPT, whole, 60))
