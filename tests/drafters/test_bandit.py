"""A bandit plays the drafter with the most tokens per cost; `automatic` makes one from times T(k)."""

from dataclasses import replace

import pytest
import torch
from heads_zoo import random_head
from models_zoo import PROMPT, native, perturbed, shipped

from specdec_lite import TokenTree, generate
from specdec_lite.contract import Context
from specdec_lite.drafters import (
    BanditDrafter,
    EagleDrafter,
    ModelDrafter,
    PromptLookupDrafter,
    automatic,
)
from specdec_lite.drafters.bandit import LONGEST, best_length, follow
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Sampling, SeededRng

TARGET = native(num_layers=3)
GOOD, BAD = ModelDrafter(TARGET, 3), ModelDrafter(perturbed(TARGET, 3.0, seed=5), 3)


def taken(drafter: BanditDrafter, tokens: int = 60) -> tuple[list[int], float]:
    """Return the text, and τ."""
    output = generate(TARGET, PROMPT, drafter, tokens)
    return output.tokens.tolist(), tokens / len(output.steps)


def test_the_better_drafter_drafts_nearly_always():
    plain = generate(TARGET, PROMPT, None, 60).tokens.tolist()
    for drafters in ([GOOD, BAD], [BAD, GOOD]):
        text, tau = taken(BanditDrafter(drafters))
        assert text == plain and tau > 3
        assert taken(BanditDrafter(drafters, bonus=20.0))[1] < tau  # broken: it only explores


def test_priors_decide_until_rounds_are_measured():
    """Two equal drafters that read the model: the one with the larger prior drafts alone."""

    def drafted(priors, weight=50.0):
        bandit = BanditDrafter([GOOD, BAD], bonus=0.0, discount=1.0, priors=priors, weight=weight)
        return [step.tree.tokens.tolist() for step in generate(TARGET, PROMPT, bandit, 20).steps]

    alone = {
        drafter: [s.tree.tokens.tolist() for s in generate(TARGET, PROMPT, drafter, 20).steps]
        for drafter in (GOOD, BAD)
    }
    assert drafted([9, 2]) == alone[GOOD] != alone[BAD] == drafted([2, 9])
    assert drafted([0.5, 0.5]) == [[]] * 20, "both are expected to be slower than plain decoding"
    assert drafted([2, 9], 0.01) != alone[BAD], "a light prior gives way to what was measured"


def test_a_costly_draft_is_left_to_the_lookup():
    passes = lambda c: sum(
        step.draft_passes
        for step in generate(
            TARGET, PROMPT * 4, BanditDrafter([PromptLookupDrafter(3), GOOD], c=c), 60
        ).steps
    )
    assert passes(5.0) < passes(0.0) / 4


@pytest.mark.parametrize("tokens", [40, 80])
def test_a_head_that_waited_drafts_as_if_it_had_drafted_in_every_round(tokens):
    head = EagleDrafter(TARGET, random_head(TARGET), 2)
    bandit = BanditDrafter([head, GOOD], discount=0.9, bonus=5.0)
    every = {}
    output = generate(TARGET, PROMPT, bandit, tokens)
    text, seen = [*PROMPT, *output.tokens.tolist()], len(PROMPT)
    for step in output.steps:  # the head's own draft after each prefix at which it drafted
        if len(step.tree) == 2 and step.draft_passes and seen > len(PROMPT):
            alone = generate(TARGET, text[:seen], head, 3).steps[0].tree.tokens.tolist()
            every[seen] = step.tree.tokens.tolist() == alone
        seen += len(step.tokens)
    assert len(every) >= 3 and all(every.values())


def test_what_a_text_accepts_of_a_draft():
    tree = Proposal(TokenTree([7, 8, 9], [-1, -1, 1]))
    assert follow(tree, []) == (0, False)
    assert follow(tree, [8]) == (1, False)
    assert follow(tree, [8, 9]) == (2, True) == follow(tree, [8, 9, 4])
    assert follow(tree, [8, 4]) == (1, True) and follow(tree, [7]) == (1, True)
    assert follow(tree, [5]) == (0, True)


def test_a_lookup_is_measured_when_the_text_decides_it():
    context = Context(torch.tensor([1, 2, 3, 4, 1]), None, Sampling(0.0), SeededRng(0), 9, 48)
    session = BanditDrafter([PromptLookupDrafter(3, 1)], discount=1.0).start(context)
    for text in ([], [2], [2, 3], [2, 3, 4]):  # its first draft, token by token
        assert session.arms[0].tokens == 2
        session.propose(
            replace(context, tokens=torch.cat((context.tokens, torch.tensor(text).long())))
        )
    assert session.arms[0].tokens == 2 + 4


# The automatic choice ------------------------------------------------------------------------------

STAIRS = (1.0, 1.2, 1.4, 1.55, 2.1, 2.25, 2.45, 2.6, 3.2)
"""T(k) of a product that shares the unpacking between four rows (PyTorch's)."""
FLAT = (1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.12, 1.14, 1.16)
"""T(k) of a product that shares it between all."""


def cost(output, drafter: BanditDrafter) -> float:
    """Return what the rounds of a text cost, in plain passes, as the drafter counts."""
    steps = output.steps
    return sum(drafter.pass_cost(len(step.tree)) + drafter.c * step.draft_passes for step in steps)


def test_the_length_with_the_most_tokens_per_cost_fills_a_step_of_four_rows():
    assert best_length(0.7, STAIRS)[0] == 3
    assert best_length(0.7, FLAT)[0] > 3
    assert best_length(0.95, FLAT)[0] == LONGEST
    assert best_length(0.7, FLAT, c=0.3)[0] < best_length(0.7, FLAT)[0]
    assert best_length(0.5, (1.0, 1.1), 0.2) == (1, pytest.approx(1.5 / 1.3))
    assert best_length(0.5, (1.0,)) == (1, 0.0)
    assert BanditDrafter([GOOD], t=0.1).pass_cost(3) == pytest.approx(1.3)


@pytest.mark.parametrize("passes", [STAIRS, FLAT])
def test_text_that_never_repeats_costs_next_to_nothing(passes):
    target = native()
    drafter = automatic(target, passes=passes)
    total = tokens = 0.0
    for seed in range(4):
        output = generate(target, PROMPT, drafter, 100, temperature=3.0, seed=seed)
        total += cost(output, drafter)
        tokens += len(output.tokens)
    assert tokens / total >= 0.97


def test_text_that_repeats_is_copied():
    target = native(scale=0.1)  # its greedy text soon runs in circles
    drafter = automatic(target, passes=FLAT)
    output = generate(target, PROMPT, drafter, 120)
    assert torch.equal(output.tokens, generate(target, PROMPT, None, 120).tokens)
    assert len(output.tokens) / cost(output, drafter) > 1.5


def test_costs_are_measured_without_a_table():
    drafter = automatic(native())
    assert drafter.passes[0] == 1.0 and len(drafter.passes) == LONGEST + 1
    assert drafter.passes == sorted(drafter.passes)
    assert not any(isinstance(each, EagleDrafter) for each in drafter.drafters)


def test_a_shipped_head_is_used_and_timed():
    target = shipped().target
    drafter = automatic(target)
    assert isinstance(drafter.drafters[-1], EagleDrafter) and 0 < drafter.c < 5
    given = automatic(target, passes=FLAT, c=0.1)  # nothing is measured
    assert given.c == 0.1 and given.passes == list(FLAT)
    plain = generate(target, PROMPT, None, 40).tokens
    assert torch.equal(generate(target, PROMPT, given, 40).tokens, plain)
