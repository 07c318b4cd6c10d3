"""Verify only what will survive: choose which drafted tokens of a batch the next pass verifies.

A drafted token *survives* if it and all tokens before it are accepted; the predicted probability of
that is a product. A pass verifies the tokens with the largest products, over all requests. Source:
DSpark (arXiv 2607.05147), section 3.2 and appendix A.

A drawn token may not be left untested because of its own value. The prediction for a position has
read the tokens before it, so it may decide about this position and later ones, but not about an
earlier one. `FirstDrop` and `StaleBudget` are the two ways to keep this rule.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul

from specdec_lite import checks
from specdec_lite.proposal import Proposal, Verdict

Chances = Sequence[Sequence[float]]
"""For each row of a batch, the predicted acceptance of each drafted token, given those before it."""
Seconds = Callable[[int, int], float]
"""Function of a batch's rows and of the drafted tokens that a pass verifies, over all rows, that
returns the seconds of the round, such as `PassTimes.of_drafted`."""


def by_survival(chances: Chances) -> list[tuple[float, int, int]]:
    """Return (survival, position, row) of every drafted token, the likeliest survivor first.

    A token never comes before an earlier one of its row, even if both have the same survival.
    """
    entries = (
        (survival, position, row)
        for row, each in enumerate(chances)
        for position, survival in enumerate(accumulate(each, mul))
    )
    return sorted(entries, key=lambda entry: (-entry[0], *entry[1:]))


def within(budget: int, chances: Chances) -> list[int]:
    """Return how many drafted tokens of each row a budget verifies: the likeliest survivors."""
    lengths = [0] * len(chances)
    for _, _, row in by_survival(chances)[:budget]:
        lengths[row] += 1
    return lengths


def speeds(chances: Chances, seconds: Seconds) -> list[float]:
    """Return the expected tokens per second of the batch for every budget, from 0."""
    rows = len(chances)
    survivals = (survival for survival, _, _ in by_survival(chances))
    tokens = accumulate(survivals, initial=float(rows))  # the target adds one token to each row
    return [expected / seconds(rows, budget) for budget, expected in enumerate(tokens)]


def first_drop(chances: Chances, seconds: Seconds) -> int:
    """Return the budget at which one more token first lowers the tokens per second."""
    each = speeds(chances, seconds)
    return next((i for i in range(len(each) - 1) if each[i + 1] <= each[i]), len(each) - 1)


def best_budget(chances: Chances, seconds: Seconds) -> int:
    """Return the budget with the most tokens per second.

    It has read predictions that depend on drawn tokens, so it may not decide about these tokens.
    """
    each = speeds(chances, seconds)
    return max(range(len(each)), key=each.__getitem__)


class Confidence:
    """Predict the acceptance of each position from the draft's row, and learn while decoding.

    The prediction is a logistic curve of the log-odds of the row's largest probability, one curve
    per position. It starts at that probability and is fitted to the verdicts by gradient steps of
    decreasing size (AdaGrad). It reads the row and not the drawn token: a prediction that has read
    the token would decide whether this token is tested. Source: vLLM's pull request 52228.

    Args:
        step: size of the first gradient step; 0: never learn.

    Attributes:
        curves: [intercept, slope] of each position.
        squares: sums of the squared gradients of each curve.
    """

    def __init__(self, step: float = 0.5):
        self.step = checks.number("step", step)
        self.curves: list[list[float]] = []
        self.squares: list[list[float]] = []

    def chances(self, proposal: Proposal) -> list[float]:
        """Return the predicted acceptance of each token of a chain.

        Args:
            proposal: a chain; for chosen tokens, which have no row, only the position counts.
        """
        return [self._chance(*pair) for pair in enumerate(log_odds(proposal))]

    def _chance(self, position: int, odds: float) -> float:
        while len(self.curves) <= position:
            self.curves.append([0.0, 1.0])
            self.squares.append([1e-9, 1e-9])
        intercept, slope = self.curves[position]
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, intercept + slope * odds))))

    def observe(self, proposal: Proposal, verdict: Verdict) -> None:
        """Learn from the tested tokens of a chain.

        Args:
            proposal: the chain, as it was verified.
            verdict: the verdict on it.
        """
        accepted = len(verdict.path)
        for position, odds in enumerate(log_odds(proposal)[: accepted + 1]):
            error = (position < accepted) - self._chance(position, odds)
            for i, gradient in enumerate((error, error * odds)):
                self.squares[position][i] += gradient * gradient
                size = self.step / math.sqrt(self.squares[position][i])
                self.curves[position][i] += size * gradient


def log_odds(proposal: Proposal) -> list[float]:
    """Return the log-odds of each row's largest probability; 0 for chosen tokens."""
    if proposal.probs is None:
        return [0.0] * len(proposal.tree)
    largest = proposal.probs.amax(-1).double().clamp(1e-6, 1 - 1e-6)
    return (largest / (1 - largest)).log().tolist()


class FirstDrop:
    """A schedule that adds the likeliest survivors until the tokens per second fall.

    Nothing after the first drop is looked at, so no token is tested or left out because of a
    prediction that has read it. Each row keeps the target's distribution.

    Args:
        seconds: the cost of a round.
        confidence: predicts acceptances; default: a new `Confidence`.
    """

    def __init__(self, seconds: Seconds, confidence: Confidence | None = None):
        self.seconds = seconds
        self.confidence = Confidence() if confidence is None else confidence

    def lengths(self, chances: Chances) -> list[int]:
        """Return how many drafted tokens of each row are verified."""
        return within(first_drop(chances, self.seconds), chances)

    def schedule(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Return the part of each row's chain that the pass verifies.

        Args:
            proposals: one per row.

        Raises:
            ValueError: a proposal is not a chain of one draw per level.
        """
        if not all(proposal.is_plain_chain for proposal in proposals):
            raise ValueError(
                "a schedule needs a drafter of chains: a proposal is a tree, or holds merged draws"
                " or candidates"
            )
        chances = [self.confidence.chances(proposal) for proposal in proposals]
        pairs = zip(proposals, self.lengths(chances), strict=True)
        return [proposal.trimmed(length) for proposal, length in pairs]

    def observe(self, proposal: Proposal, verdict: Verdict) -> None:
        """Learn from the verdict on a row.

        Args:
            proposal: the row's chain, as it was verified.
            verdict: the verdict on it.
        """
        self.confidence.observe(proposal, verdict)


class StaleBudget(FirstDrop):
    """A schedule whose budget was best for the round before, and is unlimited in the first round.

    The budget may be searched over all lengths, because its predictions have read none of this
    round's tokens. Only who gets it follows from this round's predictions. It changes with the
    round and not with the row, so a pass has a size that is known before drafting.
    """

    def __init__(self, seconds: Seconds, confidence: Confidence | None = None):
        super().__init__(seconds, confidence)
        self.budget: int | None = None

    def lengths(self, chances: Chances) -> list[int]:
        budget = sum(map(len, chances)) if self.budget is None else self.budget
        self.budget = best_budget(chances, self.seconds)
        return within(budget, chances)
