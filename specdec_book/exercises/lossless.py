"""Checks for the exercises of chapter 6 on exactness. The distribution that a reader's rule emits
is computed outcome by outcome, not estimated."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from specdec_book.exercises.answer import has_gap, run
from specdec_book.exercises.check import UNWRITTEN, Check, Outcome, concluded
from specdec_lite import theory
from specdec_lite.sampling import Rng, outcomes

SHYNESS = (1.0, 0.9, 0.5)
PAIRS = [
    ([0.5, 0.3, 0.2], [0.3, 0.5, 0.2]),
    ([0.6, 0.3, 0.1], [0.4, 0.5, 0.1]),
    ([0.1, 0.2, 0.7], [0.6, 0.4, 0.0]),
]
TRIED = [
    *PAIRS,
    ([0.4, 0.35, 0.25], [0.1, 0.2, 0.7]),
    ([0.2, 0.8, 0.0], [0.2, 0.8, 0.0]),
    ([0.0, 1.0, 0.0], [0.5, 0.2, 0.3]),
    ([0.5, 0.3, 0.2], [0.9, 0.05, 0.05]),
]


def shy_residual(p: Sequence[float], q: Sequence[float], k: float) -> np.ndarray:
    """Return the distribution [V] that a rule which accepts with k·min(1, p/q) must recover from:
    norm(p − k·min(p, q)), or p if nothing remains."""
    missing = np.subtract(p, k * np.minimum(p, q))
    return missing / missing.sum() if missing.sum() > 1e-12 else np.asarray(p, dtype=float)


def _array(argument: Sequence[float] | float) -> np.ndarray | float:
    """Return a list as an array, as the chapter's rows are."""
    return np.array(argument) if isinstance(argument, list) else argument


check_shy_residual = Check(
    "fn(p, q, k) → the distribution to recover from if drafts are accepted with k·min(1, p/q)",
    shy_residual,
    [(*pair, k) for pair in PAIRS for k in SHYNESS],
    {
        "that is the residual for k = 1. With k below 1 every token is accepted too rarely, so"
        " every token has something missing.": lambda p, q, k: theory.residual(p, q),
        "p itself is right only when every token is accepted in proportion to p.": lambda p, q, k: (
            np.asarray(p, dtype=float)
        ),
        "that is the missing mass; divide it by its sum to draw from it.": lambda p, q, k: (
            np.subtract(p, k * np.minimum(p, q))
        ),
        "the mass accepted as x is k·min(p, q), not k·q.": lambda p, q, k: (
            np.maximum(np.subtract(p, k * np.asarray(q)), 0)
            / np.maximum(np.subtract(p, k * np.asarray(q)), 0).sum()
        ),
    },
    given_as=_array,
)


check_recovered_from_p = Check(
    "fn(p, q) → the distribution emitted by the broken rule that tests correctly but recovers from"
    " p",
    lambda p, q: np.minimum(p, q) + theory.total_variation(p, q) * np.asarray(p),
    PAIRS,
    {
        "that is what the right rule emits; here the rejected mass is spread by p, not by the"
        " residual.": lambda p, q: np.asarray(p, dtype=float),
        "that is the accepted part only: it does not sum to 1. Add the rejected mass, times what it"
        " is drawn from.": lambda p, q: np.minimum(p, q),
        "a replacement is drawn when a draft is *rejected*.": lambda p, q: (
            np.minimum(p, q) + theory.acceptance_rate(p, q) * np.asarray(p)
        ),
        "the replacement comes from p in this rule, not from q.": lambda p, q: (
            np.minimum(p, q) + theory.total_variation(p, q) * np.asarray(q)
        ),
    },
    given_as=_array,
)


Judge = Callable[[torch.Tensor, torch.Tensor, int, Rng], int]
CHOICES = 16


class Endless(Exception):
    """Raised if a rule draws more random numbers than an enumeration can follow."""


class Bounded:
    """An rng that stops a rule after `CHOICES` random numbers: a rule that redraws until it is
    satisfied never ends."""

    def __init__(self, rng: Rng):
        self.rng = rng
        self.left = CHOICES

    def _chance(self) -> Rng:
        if not self.left:
            raise Endless(f"has not ended after {CHOICES} draws and flips")
        self.left -= 1
        return self.rng

    def flip(self, prob: float) -> bool:
        return self._chance().flip(prob)

    def draw(self, probs: torch.Tensor) -> int:
        return self._chance().draw(probs)


def _joint(rule: Judge, p: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Return the probabilities [V, V] that x is drafted and y emitted, and whether every run ended.

    Raises what the rule raises, TypeError if it returns something that is not a token,
    NotImplementedError if it returns the stub's `...`.
    """

    def experiment(rng: Rng) -> tuple[int, int | type[Endless]]:
        drafted = rng.draw(q)
        try:
            return drafted, rule(p, q, drafted, Bounded(rng))
        except Endless:
            return drafted, Endless

    ended = True
    joint = torch.zeros(len(p), len(p), dtype=torch.float64)
    for (drafted, emitted), weight in outcomes(experiment):
        if emitted is Endless:
            ended = False
            continue
        if emitted is ...:
            raise NotImplementedError
        if emitted is None:
            raise TypeError("it returns nothing (None): is its `return` missing?")
        if isinstance(emitted, bool) or not isinstance(emitted, int) or not 0 <= emitted < len(p):
            raise TypeError(
                f"it emits {emitted!r}: return a token, a whole number from 0 to {len(p) - 1}"
            )
        joint[drafted, emitted] += weight
    return joint, ended


KNOWN = {
    "the distribution of recovering from p instead of the residual.": lambda p, q, kept: (
        kept + theory.total_variation(p, q) * p
    ),
    "the distribution of taking the replacement from q.": lambda p, q, kept: (
        kept + theory.total_variation(p, q) * q
    ),
    "the distribution of keeping every draft of the target's likeliest token. Where q is larger"
    " than p there, the rule keeps too many of them, and no replacement can repair it.": (
        lambda p, q, kept: torch.where(p == p.max(), q, (1 - q[p.argmax()]) * p / (1 - p.max()))
    ),
    "q: every draft is kept.": lambda p, q, kept: q,
}
"""Wrong distributions of rules that end."""
ENDLESS = {
    "Drawing from q again until a draft is accepted emits min(p, q) divided by its sum, so a token"
    " that q proposes too rarely stays too rare. One draft, one test: then draw from what is"
    " missing.": lambda p, q, kept: kept / kept.sum(),
    "The runs that end emit p: textbook rejection sampling. But it may take any number of draws, and"
    " each of them costs a draft. One draft, one test: then draw from what is"
    " missing.": lambda p, q, kept: p,
}
"""Distributions of the runs that end, of rules that need not end."""


def _named(known: dict, p: torch.Tensor, q: torch.Tensor, total: torch.Tensor) -> str | None:
    """Return the words for a distribution; None for an unknown one."""
    kept = torch.minimum(p, q)
    is_it = lambda formula: torch.allclose(total, formula(p, q, kept), atol=1e-9)
    return next((words for words, formula in known.items() if is_it(formula)), None)


FOREIGN = (
    "the same draws and flips do not always lead to the same token: take all randomness from rng,"
    " with rng.flip and rng.draw."
)
"""The message for a rule that emits something else when it is enumerated again."""
REPEATS = 40


def check_lossless(rule: Judge) -> Outcome:
    """Check rule(p, q, x, rng) → the emitted token, where x was drawn from q. p, q: float64 tensors
    [V].

    The rule is run over every outcome of its draws and flips, on several pairs of p and q. Whatever
    it raises is reported, not raised.
    """
    return concluded(rule, _enumerated(rule))


def _enumerated(rule: Judge) -> Outcome:
    """Return the outcome of enumerating a rule on every pair."""
    kept, most = [], []
    for pair in TRIED:
        p, q = (torch.tensor(row, dtype=torch.float64) for row in pair)
        result, trouble = run(rule, lambda: _on_pair(rule, p, q))
        share, wrong = result or (0.0, trouble and f"for p={pair[0]} and q={pair[1]} it {trouble}")
        if wrong and (wrong == UNWRITTEN or has_gap(rule)):
            return Outcome(False, UNWRITTEN, begun=False)
        if wrong:
            return Outcome(False, wrong)
        kept.append(share)
        most.append(theory.acceptance_rate(p, q).item())
    share = (
        f"it emits the drafted token {sum(kept) / len(kept):.3f} of the time; no exact rule emits"
        f" it more often than {sum(most) / len(most):.3f}."
    )
    return Outcome(True, f"Exact on all {len(TRIED)} pairs: {share}")


def _on_pair(rule: Judge, p: torch.Tensor, q: torch.Tensor) -> tuple[float, str | None]:
    """Return (how often the rule emits the drafted token, what is wrong with it or None)."""
    try:
        joint, ended = _joint(rule, p, q)
    except NotImplementedError:
        return 0.0, UNWRITTEN
    total, share = joint.sum(0), joint.trace().item()
    mass, case = total.sum().item(), f"for p={p.tolist()} and q={q.tolist()} your rule"
    if not ended:
        endless = f"{case} has not ended after {CHOICES} draws and flips, so its outcomes cannot be"
        known = _named(ENDLESS, p, q, total / (mass or 1))
        return share, f"{endless} listed.{f' {known}' if known else ''}"
    if torch.allclose(total, p, atol=1e-9):
        return share, None
    if any(not torch.equal(_joint(rule, p, q)[0], joint) for _ in range(REPEATS)):
        return share, FOREIGN
    emits = f"{case} emits {[round(x, 4) for x in total.tolist()]}"
    if abs(mass - 1) > 1e-9:
        wrong = f"{emits}, which sums to {mass:.4g}: a row that you draw from does not sum to 1."
        return share, f"{wrong} Divide the missing mass by its sum."
    known = _named(KNOWN, p, q, total)
    return share, f"{emits}. {f'That is {known}' if known else 'It should emit p.'}"
