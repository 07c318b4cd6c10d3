"""How many tokens to draft: policies for γ, usable by every chain drafter.

A policy may look at what has been drafted, but a drawn token that it has looked at stays: it ends a
draft *after* a token, never before.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lite.checks import is_number, number, whole
from specdec_lite.proposal import Verdict
from specdec_lite.speculation import Context
from specdec_lite.theory import optimal_gamma


class Length:
    """A policy for γ.

    gamma: the most tokens it ever drafts, ≥ 1. looks: whether `go_on` is asked after each token.
    """

    looks = False

    def __init__(self, gamma: int):
        self.gamma = whole("gamma", gamma, 1)

    @classmethod
    def of(cls, gamma: "int | Length") -> "Length":
        """A policy as it is; a number as the constant policy."""
        return gamma if isinstance(gamma, Length) else Constant(gamma)

    def start(self) -> "Length":
        """The policy of one generation: what it learns there stays there."""
        return self

    def most(self, context: Context) -> int:
        """The most tokens that this round may draft."""
        return self.gamma

    def go_on(self, row: Tensor, token: int) -> bool:
        """Whether to draft another token after `token`, drawn from (or the argmax of) row [V]."""
        return True

    def observe(self, verdict: Verdict) -> None:
        """Hear what became of the draft."""


class Constant(Length):
    """Always γ tokens."""


class Confidence(Length):
    """Stop after the first token that the draft gave less than `threshold`, in [0, 1].

    Hugging Face's `assistant_confidence_threshold`, .4 there as here.
    """

    looks = True

    def __init__(self, gamma: int, threshold: float = 0.4):
        super().__init__(gamma)
        if not (is_number(threshold) and 0 <= threshold <= 1):
            raise ValueError(f"threshold={threshold!r}: must be in [0, 1]")
        self.threshold = threshold

    def go_on(self, row: Tensor, token: int) -> bool:
        return row[token].item() >= self.threshold


class Heuristic(Length):
    """Two tokens more after a draft that was accepted whole, one less after any other, from `first`
    up to γ: Hugging Face's schedule "heuristic".
    """

    def __init__(self, gamma: int, first: int = 5):
        super().__init__(gamma)
        self.current = whole("first", first, 1, gamma)

    def start(self) -> "Heuristic":
        return Heuristic(self.gamma, self.current)

    def most(self, context: Context) -> int:
        return self.current

    def observe(self, verdict: Verdict) -> None:
        if verdict.kind == "bonus":
            self.current = min(self.gamma, self.current + 2)
        elif verdict.kind == "recovered":
            self.current = max(1, self.current - 1)


class Entropy(Length):
    """Stop after the first token that came from a row of more than `threshold` nats of entropy."""

    looks = True

    def __init__(self, gamma: int, threshold: float = 1.0):
        super().__init__(gamma)
        self.threshold = number("threshold", threshold)

    def go_on(self, row: Tensor, token: int) -> bool:
        return torch.special.entr(row).sum().item() <= self.threshold


class Optimal(Length):
    """The γ that pays best for the acceptance seen so far, tokens accepted independently.

    Args:
        gamma: the most.
        c: cost of a drafted token, in passes of the target.
        alpha: the acceptance rate before anything was seen, in [0, 1].
        memory: the weight in tests that the past keeps from round to round is multiplied by this,
            in [0, 1].

    It drafts one token at least: without a test it would never learn that drafting pays again.
    Source: Leviathan et al. 2023, section 3.5, fed as in Liu et al. 2024 (SmartSpec) at batch 1.
    """

    def __init__(self, gamma: int, c: float, alpha: float = 0.7, memory: float = 0.9):
        super().__init__(gamma)
        self.c = number("c", c)
        for name, value in (("alpha", alpha), ("memory", memory)):
            if not (is_number(value) and 0 <= value <= 1):
                raise ValueError(f"{name}={value!r}: must be in [0, 1]")
        self.alpha = alpha
        self.memory = memory
        self.weight = 4.0  # tests that `alpha` stands for
        self.accepted = alpha * self.weight

    def start(self) -> "Optimal":
        return Optimal(self.gamma, self.c, self.alpha, self.memory)

    def most(self, context: Context) -> int:
        rate = min(1.0, self.accepted / self.weight) if self.weight else self.alpha
        return max(1, optimal_gamma(rate, self.c, self.gamma)[0])

    def observe(self, verdict: Verdict) -> None:
        self.accepted = self.memory * self.accepted + len(verdict.path)
        self.weight = self.memory * self.weight + verdict.tested


class Predicted(Length):
    """Stop after a token once the draft has probably been refused: 1 − a₁a₂… above `risk`.

    Args:
        gamma: the most.
        weights: of a logistic regression that predicts aᵢ, the chance that the target keeps a
            token, from what `clues` sees; `training.acceptance` fits them.
        risk: in [0, 1].

    Source: Huang et al. 2024 (SpecDec++), whose head reads the draft's hidden state; ours reads the
    draft's row, so that it fits every drafter.
    """

    looks = True

    def __init__(self, gamma: int, weights: Sequence[float], risk: float = 0.3):
        super().__init__(gamma)
        if len(weights) != CLUES or not all(is_number(weight) for weight in weights):
            raise ValueError(f"weights={weights!r}: must be {CLUES} numbers, one for every clue")
        if not (is_number(risk) and 0 <= risk <= 1):
            raise ValueError(f"risk={risk!r}: must be in [0, 1]")
        self.weights = [float(weight) for weight in weights]
        self.risk = risk
        self.alive = 1.0

    def start(self) -> "Predicted":
        return Predicted(self.gamma, self.weights, self.risk)

    def most(self, context: Context) -> int:
        self.alive = 1.0
        return self.gamma

    def go_on(self, row: Tensor, token: int) -> bool:
        logit = sum(w * clue for w, clue in zip(self.weights, clues(row, token)))
        self.alive /= 1 + math.exp(-logit)
        return 1 - self.alive <= self.risk


CLUES = 4


def clues(row: Tensor, token: int) -> list[float]:
    """What a draft's row [V] tells of its token: 1, log q, the entropy in nats, and whether it is the
    likeliest.
    """
    q = row[token].clamp(min=1e-9).log()
    entropy = torch.special.entr(row).sum()
    return [1.0, *torch.stack((q, entropy, (row[token] >= row.max()).to(q))).tolist()]
