"""How many tokens to draft: policies for γ, usable by every chain drafter.

A policy may look at what has been drafted, but a drawn token that it has looked at stays: it ends a
draft *after* a token, never before.
"""

from torch import Tensor

from specdec_lite.checks import is_number, whole
from specdec_lite.proposal import Verdict
from specdec_lite.speculation import Context


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
