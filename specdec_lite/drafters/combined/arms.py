"""One drafter among several of which each round plays one: what it gained, and what it must see."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch

from specdec_lite.drafters.combined.composite import members
from specdec_lite.drafters.followed import common_prefix
from specdec_lite.engine.cache import Scores
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.speculation import Context, Drafter

LEAST = 1e-3
"""Number of rounds from which the sums are discounted no further, so that they never vanish."""


class Costs(Protocol):
    """The costs of a round in passes of the target over one token, and the discount of old rounds."""

    c: float
    discount: float

    def pass_cost(self, nodes: int) -> float:
        """Return the cost of the target's pass over the last token and this many drafted ones."""
        ...


class Arm:
    """A drafter's session, with discounted sums over the rounds in which it was measured.

    Args:
        drafter: of the session.
        context: context at the start of the generation.
        prior: tokens per cost that are expected before the arm is measured.
        weight: number of rounds, each at cost 1, that the expectation counts as.

    Attributes:
        session: the drafting of this generation.
        free: whether it costs so little that it can be measured in every round.
        tokens: discounted sum of the tokens that its rounds emitted or would have emitted.
        cost: discounted sum of what these rounds cost.
        rounds: discounted number of these rounds.
        missed: the target's states that the session has not read yet.
        seen: number of tokens whose states were added to `missed`.
        text: the text of the last round.
    """

    def __init__(self, drafter: Drafter, context: Context, prior: float = 2.0, weight: float = 1.0):
        self.session = drafter.start(context)
        self.free = self.is_free(drafter)
        self.tokens = prior * weight
        self.cost = self.rounds = weight
        self.draft: tuple[int, Proposal] = (0, NOTHING)
        self.waiting: list[tuple[int, Proposal]] = []
        self.missed: Scores | None = None
        self.seen = 0
        self.text = context.tokens[:0]
        self.passes = 0

    @staticmethod
    def is_free(drafter: Drafter) -> bool:
        """Return whether a drafter, and every drafter inside it, makes no passes and reads no states."""
        return not any(
            part.makes_passes or part.hidden_layers or part.draft_model()
            for part in members(drafter)
        )

    def index(self, rounds: float, bonus: float) -> float:
        """Return the tokens per cost, plus a bonus if the arm is measured only when it drafts."""
        waiting = 0.0 if self.free else math.sqrt(math.log(1 + rounds) / self.rounds)
        return self.tokens / self.cost + bonus * waiting

    def catch_up(self, context: Context, costs: Costs) -> None:
        """Measure earlier drafts by the text that followed, then draft again if the arm is free."""
        known, self.text = common_prefix(self.text, context.tokens), context.tokens
        self.forget(known)
        if not self.free:
            self.age(costs)
            self.remember(context)
            return
        text = context.tokens.tolist()
        undecided = []
        for start, proposal in self.waiting:
            accepted, decided = follow(proposal, text[start:])
            if decided:
                self.add(1 + accepted, len(proposal.tree), 0, costs)
            else:
                undecided.append((start, proposal))
        self.waiting = undecided
        proposal = self.session.propose(context)
        self.draft = len(text), proposal
        if len(proposal.tree):
            self.waiting.append(self.draft)

    def remember(self, context: Context) -> None:
        """Add the states of the newest tokens to those that the session has not read yet."""
        if context.scores is None:
            return
        scored = len(context.tokens) - 1
        new = rows(context.scores, scored - self.seen)
        self.missed = new if self.missed is None else joined(self.missed, new)
        self.seen = scored

    def propose(self, context: Context) -> Proposal:
        """Return this round's proposal."""
        if self.free:
            return self.draft[1]
        before = self.session.passes
        proposal = self.session.propose(replace(context, scores=self.missed))
        self.missed = None
        self.passes = self.session.passes - before
        return proposal

    def observe(self, verdict: Verdict, scores: Scores, costs: Costs) -> None:
        """Learn from the verdict on this arm's proposal.

        Shapes: scores [root].
        """
        self.session.observe(verdict, scores)
        if not self.free and verdict.tokens:
            self.add(1 + len(verdict.path), len(verdict.tokens), self.passes, costs)

    def add(self, tokens: int, nodes: int, passes: int, costs: Costs) -> None:
        """Add one measured round."""
        if self.free:
            self.age(costs)
        self.tokens += tokens
        self.cost += costs.pass_cost(nodes) + costs.c * passes
        self.rounds += 1

    def age(self, costs: Costs) -> None:
        """Discount all sums; their ratios stay. An arm that waits counts fewer and fewer rounds."""
        if self.rounds > LEAST:
            self.tokens *= costs.discount
            self.cost *= costs.discount
            self.rounds *= costs.discount

    def forget(self, length: int) -> None:
        """Forget the text beyond a length, which an outer round took back."""
        self.waiting = [(start, draft) for start, draft in self.waiting if start <= length]
        surplus = self.seen - (length - 1)
        if surplus > 0:
            self.seen = length - 1
            if self.missed is not None:
                hidden = {layer: each[:, :-surplus] for layer, each in self.missed.hidden.items()}
                self.missed = Scores(self.missed.logits, hidden)


def follow(proposal: Proposal, text: Sequence[int]) -> tuple[int, bool]:
    """Return how many levels of a proposal a text follows, and whether more text cannot change it."""
    path = proposal.tree.along(text)
    end = path[-1] if path else -1
    return len(path), len(path) < len(text) or not proposal.tree.children(end)


def rows(scores: Scores, count: int) -> Scores:
    """Return the scores with the hidden states of the last tokens alone."""
    hidden = {
        layer: each[:, max(0, each.shape[1] - count) :] for layer, each in scores.hidden.items()
    }
    return Scores(scores.logits, hidden)


def joined(first: Scores, second: Scores) -> Scores:
    """Return the scores of consecutive rounds; logits only of the second."""
    hidden = {
        layer: torch.cat((each, second.hidden[layer]), 1) for layer, each in first.hidden.items()
    }
    return Scores(second.logits, hidden)
