"""A bandit plays the drafter with the most tokens per cost, and every drafter sees all states."""

import pytest
from features_zoo import random_head
from models_zoo import PROMPT, native, perturbed

from specdec_lite import TokenTree, generate
from specdec_lite.drafters import BanditDrafter, EagleDrafter, ModelDrafter, PromptLookupDrafter
from specdec_lite.drafters.bandit import follow
from specdec_lite.proposal import Proposal

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


def test_every_drafter_learns_once_what_the_user_gives():
    class Learner(PromptLookupDrafter):
        def learn(self, tokens):
            self.learned = [*getattr(self, "learned", []), list(tokens)]

    one, other = Learner(4), Learner(4)
    BanditDrafter([one, other, one]).learn([1, 2, 3])
    assert one.learned == other.learned == [[1, 2, 3]]


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
