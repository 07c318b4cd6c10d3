"""Policies for γ, the number of drafted tokens; every chain drafter accepts one.

A policy may look at drafted tokens, but a drawn token that it has looked at stays in the draft: a
policy ends a draft after a token, never before it.
"""

import math
from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from specdec_lite.checks import is_number, number, whole
from specdec_lite.contract import Context
from specdec_lite.proposal import Verdict


class Length:
    """Base class of the policies for γ.

    Args:
        gamma: largest number of drafted tokens, ≥ 1.

    Attributes:
        looks: whether `go_on` is called after each token.
    """

    looks = False

    def __init__(self, gamma: int):
        self.gamma = whole("gamma", gamma, 1)

    @classmethod
    def of(cls, gamma: "int | Length") -> "Length":
        """Return a policy as it is, and a number as the constant policy.

        Args:
            gamma: number of tokens ≥ 1, or a policy.
        """
        return gamma if isinstance(gamma, Length) else Constant(gamma)

    def start(self) -> "Length":
        """Return the policy of one generation, which keeps what it learns to itself."""
        return copy(self)

    def most(self, context: Context) -> int:
        """Return the largest number of tokens that this round may draft.

        Args:
            context: context of this round.
        """
        return self.gamma

    def go_on(self, row: Tensor, token: int | Tensor) -> bool:
        """Return whether to draft another token.

        Args:
            row: the draft's distribution of the last token, over V tokens or over those that the
                draft knows.
            token: the last token's number in the row, an int or a tensor [].
        """
        return True

    def observe(self, verdict: Verdict) -> None:
        """Learn from the verdict on the last draft.

        Args:
            verdict: the verdict.
        """


class Constant(Length):
    """Always draft γ tokens."""


class Confidence(Length):
    """Stop after the first token whose draft probability is below a threshold.

    Args:
        gamma: largest number of drafted tokens, ≥ 1.
        threshold: probability in [0, 1] (Hugging Face's `assistant_confidence_threshold`, also 0.4
            by default).
    """

    looks = True

    def __init__(self, gamma: int, threshold: float = 0.4):
        super().__init__(gamma)
        self.threshold = probability("threshold", threshold)

    def go_on(self, row: Tensor, token: int | Tensor) -> bool:
        return row[token].item() >= self.threshold


class Heuristic(Length):
    """Draft two tokens more after a fully accepted draft and one less after any other.

    This is Hugging Face's schedule "heuristic".

    Args:
        gamma: largest number of drafted tokens, ≥ 1.
        first: number of tokens of the first draft, 1 … γ.
    """

    def __init__(self, gamma: int, first: int = 5):
        super().__init__(gamma)
        self.current = whole("first", first, 1, gamma)

    def most(self, context: Context) -> int:
        return self.current

    def observe(self, verdict: Verdict) -> None:
        # Another kind means that nothing was tested: there is nothing to learn.
        if verdict.kind == "bonus":
            self.current = min(self.gamma, self.current + 2)
        elif verdict.kind == "recovered":
            self.current = max(1, self.current - 1)


class Entropy(Length):
    """Stop after the first token whose row has a larger entropy than a threshold.

    Args:
        gamma: largest number of drafted tokens, ≥ 1.
        threshold: entropy in nats, ≥ 0.
    """

    looks = True

    def __init__(self, gamma: int, threshold: float = 1.0):
        super().__init__(gamma)
        self.threshold = number("threshold", threshold)

    def go_on(self, row: Tensor, token: int | Tensor) -> bool:
        return torch.special.entr(row).sum().item() <= self.threshold


class Optimal(Length):
    """Draft the γ with the largest predicted speedup for the acceptance rate observed so far.

    The prediction assumes that tokens are accepted independently. At least one token is drafted,
    since without a test the policy could not find out that drafting pays again. Source: Leviathan
    et al. 2023, section 3.5, with estimates as in Liu et al. 2024 (SmartSpec) at batch 1.

    Args:
        gamma: largest number of drafted tokens, ≥ 1.
        c: cost of one drafted token, in target passes, ≥ 0.
        alpha: acceptance rate assumed before any observation, in [0, 1].
    """

    def __init__(self, gamma: int, c: float, alpha: float = 0.7):
        super().__init__(gamma)
        self.c = number("c", c)
        self.memory = 0.9  # the factor by which the weight of past tests shrinks per round
        # The prior has a weight, so that a first rejection alone does not make the estimate 0.
        self.weight = 4.0  # number of tests that `alpha` counts as
        self.accepted = probability("alpha", alpha) * self.weight

    def most(self, context: Context) -> int:
        from specdec_lite.theory import optimal_gamma  # only this policy needs it

        rate = min(1.0, self.accepted / self.weight)
        return max(1, optimal_gamma(rate, self.c, self.gamma)[0])

    def observe(self, verdict: Verdict) -> None:
        self.accepted = self.memory * self.accepted + len(verdict.path)
        self.weight = self.memory * self.weight + verdict.tested


class Predicted(Length):
    """Stop once the predicted probability that a token was rejected exceeds a risk.

    A logistic regression predicts the probability aᵢ that the target accepts a token, and the
    draft ends when 1 − a₁a₂… > risk. Source: Huang et al. 2024 (SpecDec++), whose head reads the
    draft's hidden state; this one reads the draft's row, so it works with every drafter.

    Args:
        gamma: largest number of drafted tokens, ≥ 1.
        weights: weights [4] of the regression on `clues`; `training.acceptance_predictor` fits them.
        risk: probability in [0, 1].
    """

    looks = True

    def __init__(self, gamma: int, weights: Sequence[float], risk: float = 0.3):
        super().__init__(gamma)
        if len(weights) != CLUES or not all(is_number(weight) for weight in weights):
            raise ValueError(f"weights={weights!r}: must be {CLUES} numbers, one for every clue")
        self.weights = [float(weight) for weight in weights]
        self.risk = probability("risk", risk)
        self.alive = 1.0

    def most(self, context: Context) -> int:
        self.alive = 1.0
        return self.gamma

    def go_on(self, row: Tensor, token: int | Tensor) -> bool:
        logit = sum(w * clue for w, clue in zip(self.weights, clues(row, token)))
        self.alive /= 1 + math.exp(-logit)  # times a_i, the logistic function of the logit
        return 1 - self.alive <= self.risk


CLUES = 4


def clues(row: Tensor, token: int | Tensor) -> list[float]:
    """Return 1, log q, the row's entropy in nats, and whether the token is the likeliest."""
    q = row[token].clamp(min=1e-9).log()
    entropy = torch.special.entr(row).sum()
    return [1.0, *torch.stack((q, entropy, (row[token] >= row.max()).to(q))).tolist()]


def probability(name: str, value) -> float:
    """Return `value` if it is a number in [0, 1]."""
    if not (is_number(value) and 0 <= value <= 1):
        raise ValueError(f"{name}={value!r}: must be in [0, 1]")
    return value
