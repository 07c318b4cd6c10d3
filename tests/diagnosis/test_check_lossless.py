"""`check_lossless` passes drafters of every kind and names what is wrong with broken ones."""

import broken
import pytest
import torch
from broken import grow
from broken_drafts import shifted_states
from chosen import one_in
from conftest import ROOT
from drafted_rows import Scripted, altered
from models_zoo import TreeDrafter
from registry import DRAFTERS

from specdec_lite import acceptance, check_lossless
from specdec_lite.diagnosis import lossless
from specdec_lite.diagnosis.lossless import CAUSES, tiny_draft, tiny_target
from specdec_lite.drafters import (
    CoupledDrafter,
    Drafter,
    EarlyExitDrafter,
    MergedDrafter,
    ModelDrafter,
    Session,
    SparseCacheDrafter,
    draft_chain,
)
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.sampling import Sampling
from specdec_lite.tree import TokenTree

GOOD = [
    "draft model",
    "draft model that stops when unsure",
    "prompt lookup",
    "n-gram model, drawn",
    "a cascade over suffix decoding",
    "early exit whose layers are not run again",
    "EAGLE, a tree of ranks, two thirds of the tokens",
    "block diffusion with a Markov correction",
    "look-ahead rows",
    "draft model of another temperature",
    "draft model with the target's noise",
    "a tree drawn in Sequoia's shape",
    "a tree drawn in a given shape, then chosen",
    "a tree drawn, then chosen",
    "the drafter of CONTRIBUTING.md",
]


@pytest.mark.parametrize("name", one_in(4, GOOD))
def test_drafters_of_every_kind_pass(name):
    report = check_lossless(DRAFTERS[name])
    assert report and not report.names and report.drafted, report
    assert "is lossless on what was enumerated" in repr(report)


@pytest.mark.weekly
@pytest.mark.parametrize("name", [name for name in DRAFTERS if name not in GOOD])
def test_every_drafter_passes(name):
    assert check_lossless(DRAFTERS[name]), name


# Broken drafters ----------------------------------------------------------------------------------


def a_row_that_is_claimed(proposal, context):
    """The commonest bug of a prototype: take the argmax and report the row."""
    if proposal.probs is None:
        return proposal
    first = proposal.probs[:1]
    return Proposal(TokenTree.chain(first.argmax(-1)), first)


def chance_of_its_own(proposal, context):
    if proposal.probs is None or context.sampling.greedy:
        return proposal
    first = proposal.probs[:1]
    return Proposal(TokenTree.chain(torch.multinomial(first[0], 1)), first)


def rows_that_do_not_sum_to_one(proposal, context):
    return proposal if proposal.probs is None else Proposal(proposal.tree, proposal.probs * 0.9)


def rows_of_the_next_token(proposal, context):
    if proposal.probs is None or len(proposal.tree) < 2:
        return proposal
    return Proposal(proposal.tree, proposal.probs.flip(0))


def an_entry_of_the_targets_cache(proposal, context):
    context.cache.keys(0)[..., 0, :] += 1
    return proposal


def the_targets_cache_cut(proposal, context):
    context.cache.crop(0)
    return proposal


def uniform_rows(where):
    """Return a change of a proposal: report uniform rows in some contexts alone."""

    def propose(proposal, context):
        if proposal.probs is None or not where(context):
            return proposal
        return Proposal(proposal.tree, torch.full_like(proposal.probs, 1 / context.vocab_size))

    return propose


class RowsBeforeSampling(Drafter, Session):
    """Draw after temperature and top-p, and report the row from before."""

    def __init__(self, target):
        self.model = tiny_draft(target)

    def start(self, context):
        return self

    def propose(self, context):
        if context.sampling.greedy:
            return NOTHING
        logits = self.model.score(context.tokens, self.model.new_cache()).logits[0, -1]
        token = context.rng.draw(context.sampling(logits))
        return Proposal(TokenTree.chain([token]), Sampling()(logits)[None])


class DraftsInTheTargetsCache(SparseCacheDrafter):
    def draft_cache(self, context):
        return context.cache


class TwoStates(Drafter):
    """The draft depends on how often this drafter has been asked."""

    def __init__(self):
        self.asked = 0

    def start(self, context):
        return self.Asked(self)

    class Asked(Session):
        def __init__(self, drafter):
            self.drafter = drafter

        def propose(self, context):
            self.drafter.asked += 1
            return Proposal(TokenTree.chain([self.drafter.asked % 2]))


def tree(draft):
    return lambda target: TreeDrafter(tiny_draft(target), draft, 1)


def wrong(propose):
    """Return a maker of chains of two tokens that go through `propose(proposal, context)`."""
    alter = lambda session, proposal, context: propose(proposal, context)
    return lambda target: altered(ModelDrafter(tiny_draft(target), 2), alter)


BROKEN = {
    "the row of an argmax": (wrong(a_row_that_is_claimed), "argmax row", CAUSES["text"]),
    "the rows of chosen siblings": (tree(grow(broken.chosen(2, soft=True))), "argmax row"),
    "rows before sampling": (RowsBeforeSampling, "row before sampling", CAUSES["text"]),
    "rows that still hold older siblings": (
        tree(grow(broken.without_replacement(2, honest=False))),
        "row before exclusion",
    ),
    "siblings sorted by q": (tree(grow(broken.sorted_by_q(2))), "sorted siblings", CAUSES["text"]),
    "equal draws dropped": (
        tree(grow(broken.with_replacement(2), merge="draws")),
        "row before exclusion",
    ),
    "a draw dropped after a look": (
        lambda target: TreeDrafter(tiny_draft(target), broken.stops_at_unsure(0.35, False), 2),
        "dropped draw",
    ),
    "rows of another position": (wrong(rows_of_the_next_token), "wrong row"),
    "chance of its own": (wrong(chance_of_its_own), "not repeatable"),
    "a memory across generations": (lambda target: TwoStates(), "not repeatable"),
    "rows that are wrong late": (
        wrong(uniform_rows(lambda context: len(context.tokens) > 10)),
        "wrong row",
    ),
    "rows that are wrong with top-k and top-p alone": (
        wrong(uniform_rows(lambda c: None not in (c.sampling.top_k, c.sampling.top_p))),
        "wrong row",
        "top-k 2, top-p 0.9",
    ),
    "rows of another sum": (wrong(rows_that_do_not_sum_to_one), "invalid proposal"),
    "a written entry of the cache": (wrong(an_entry_of_the_targets_cache), "target's cache"),
    "a cache that is cut": (wrong(the_targets_cache_cut), "target's cache"),
    "drafts left in the cache": (
        lambda target: DraftsInTheTargetsCache(target, 0, 99, 2),
        "target's cache",
    ),
    "stale states": (
        lambda target: altered(EarlyExitDrafter(target, 1, 2), shifted_states),
        "states",
    ),
    "no proposal": (wrong(lambda made, _: made.tree), "error"),
    "more than limits() states": (wrong(lambda *_: Proposal(TokenTree.chain([0] * 5))), "limits"),
    "noise shared by a merge": (
        lambda target: MergedDrafter([CoupledDrafter(ModelDrafter(tiny_draft(target), 1))] * 2),
        "error",
    ),
}


RARE = [case for case in BROKEN if "wrong" in case or "sorted" in case]
"""Late, at one setting of several, or by the order alone: they run in every commit."""


@pytest.mark.parametrize("case", one_in(4, BROKEN, RARE))
def test_a_broken_drafter_is_named(case):
    make, name, *words = BROKEN[case]
    report = check_lossless(make)
    assert not report and report.names[0] == name, report
    assert all(each in repr(report) for each in (CAUSES[name], *words))


HALF, MOST = [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]
DRAWN = [
    ("row before exclusion", [0, 0.6, 0.4], HALF, {"older": (0,)}),
    ("wrong row", [0, 0.4, 0.6], HALF, {"older": (0,)}),
    ("row before sampling", [0.5, 0.5, 0], MOST, {}),
    ("dropped draw", [0.2, 0.3, 0.5], HALF, {"is_dropped": True, "is_sorted": True}),
    ("argmax row", [1, 0, 0], HALF, {"is_sorted": True}),
    ("sorted siblings", [1, 0, 0], HALF, {"is_sorted": True, "is_only_row": False}),
    ("wrong row", [1, 0, 0], HALF, {"is_only_row": False}),
]


@pytest.mark.parametrize("name, actual, reported, more", DRAWN)
def test_a_cause_is_concluded_from_what_was_drawn(name, actual, reported, more):
    row = lambda values: torch.tensor(values, dtype=torch.float64)
    about = {"older": (), "is_sorted": False, "is_dropped": False, "is_only_row": True} | more
    draw = lossless._Draw(row(reported), about.pop("older"), row([]), about.pop("is_sorted"))
    assert lossless._cause(row(actual), draw, Sampling(top_k=2), **about) == name


@pytest.mark.parametrize(
    "rule, names",
    [
        (broken.bonus_by_argmax, ("text",)),
        pytest.param(acceptance.sample_and_match, (), marks=pytest.mark.registry),
        pytest.param(acceptance.lenient(0.5), ("text",), marks=pytest.mark.registry),
    ],
)
def test_a_rule_is_checked_too(rule, names):
    assert check_lossless(DRAFTERS["draft model"], rule).names == names


def test_a_text_is_wrong_although_every_row_is_right():
    zeros = lambda context: draft_chain(context, lambda token: torch.zeros(context.vocab_size), 1)

    def shifted(proposal, target_probs, rng):
        return acceptance.speculative_sampling(proposal, target_probs.roll(1, -1), rng)

    assert check_lossless(lambda target: Scripted(zeros))
    assert "text" in check_lossless(lambda target: Scripted(zeros), shifted).names


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(ValueError, match="more than max_outcomes=1 outcomes"):
        check_lossless(DRAFTERS["draft model"], max_outcomes=1)


def test_the_tiny_models_agree_often_but_not_always():
    target = tiny_target()
    draft = tiny_draft(target)
    p, q = (m.score([1, 2, 0], m.new_cache()).logits[0].softmax(-1) for m in (target, draft))
    assert 0.01 < (p - q).abs().sum(-1).max() / 2 < 0.9
    assert torch.equal(
        tiny_target().score([1], tiny_target().new_cache()).logits[0],
        target.score([1], target.new_cache()).logits[0],
    )


def test_the_examples_of_the_guide_run(capsys):
    """The README's run in test_wheel."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = [code.split("```")[0] for code in text.split("```python\n")[1:]]
    scope: dict = {"ModelDrafter": ModelDrafter}
    for part in code:
        if "(Drafter)" in part or "check_lossless" in part:
            exec(part, scope)
    assert "is lossless" in capsys.readouterr().out
