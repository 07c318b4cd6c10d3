"""Checks for the exercises on claims: the largest possible speedup, the α that a claim implies, a
verdict from an interval."""

from scipy.optimize import brentq

from specdec_book.exercises.check import Check
from specdec_lite import theory


def _implied(speedup: float, gamma: int, c: float) -> float:
    return brentq(lambda alpha: theory.walltime_improvement(alpha, gamma, c) - speedup, 0, 1)


def _verdict(low: float, high: float, claimed: float) -> int:
    return (low >= claimed) - (high < claimed)


check_largest_speedup = Check(
    "fn(gamma, c) → speedup of a round in which every draft is accepted",
    lambda gamma, c: (gamma + 1) / (gamma * c + 1),
    [(4, 0.05), (8, 0.02), (1, 0.5), (5, 0.0)],
    {
        "the bonus token counts too: γ accepted drafts give γ + 1 tokens.": lambda gamma, c: (
            gamma / (gamma * c + 1)
        ),
        "that is the number of emitted tokens; the drafts also cost time, γc target passes.": {
            "c": 0.0
        },
        "the draft runs γ times in a round, not once.": lambda gamma, c: (gamma + 1) / (c + 1),
    },
)


check_implied_alpha = Check(
    "fn(speedup, gamma, c) → the α at which the plain formula gives this speedup",
    _implied,
    [(2.0, 4, 0.05), (1.2, 2, 0.1), (3.0, 8, 0.02), (1.01, 3, 0.2)],
    {
        "that assumes free drafts: divide the tokens by γc + 1.": {"c": 0.0},
        "that is the formula for infinitely many free drafts;"
        " here γ is finite.": lambda speedup, gamma, c: 1 - 1 / speedup,
    },
)


check_verdict = Check(
    'fn(low, high, claimed) → verdict on the claim "at least `claimed` times as fast", measured'
    " as the interval from low to high: 1 if it holds, −1 if it does not, 0 if the interval cannot"
    " decide",
    _verdict,
    [(1.4, 1.6, 1.3), (1.4, 1.6, 1.5), (1.4, 1.6, 1.4), (1.4, 1.6, 1.6), (0.9, 1.2, 2.0)],
    {
        "a claim inside the interval is undecided, and a claim below it holds, because the claim"
        " says 'at least'.": lambda low, high, claimed: 1 if low <= claimed <= high else -1,
        "that uses the middle of the interval and never returns 0 for"
        " 'cannot decide'.": lambda low, high, claimed: 1 if (low + high) / 2 >= claimed else -1,
        "the two ends are exchanged: a claim holds if even the lower end"
        " reaches it.": lambda low, high, claimed: -_verdict(low, high, claimed),
    },
)
