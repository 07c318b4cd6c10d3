"""Checks for the exercises of chapter 19: break-even, conditional rates, α from τ."""

from collections.abc import Callable, Sequence

import numpy as np

from specdec_book.exercises.check import Mistake, Outcome, check
from specdec_lite import theory

ROUNDS = [  # γ, c, v, o and o₀
    (4, 0.1, 1.05, 0.1, 0.04),
    (8, 0.2, 1.3, 0.15, 0.1),
    (1, 0.0, 1.0, 0.0, 0.0),
    (3, 0.5, 2.0, 0.2, 0.25),
]
RATES = [[0.821, 0.609, 0.437], [0.58, 0.34, 0.22, 0.15, 0.11], [1.0, 0.5], [0.7]]


def check_break_even(fn: Callable[[int, float, float, float, float], float]) -> Outcome:
    """Check fn(gamma, c, verify, overhead, plain_overhead) → the τ at which a round is as fast as
    plain decoding."""
    return check(
        fn,
        theory.break_even_tokens,
        ROUNDS,
        [
            Mistake(
                lambda g, c, v, o, o_0: 1 + g * c,
                "that is the paper's cost: verification counts as one pass, and the rest as free.",
            ),
            Mistake(
                lambda g, c, v, o, o_0: (v + c + o) / (1 + o_0),
                "the draft runs γ times in a round, not once.",
            ),
            Mistake(
                lambda g, c, v, o, o_0: (v + g * c + o) / (1 + o_0) - 1,
                "τ counts the bonus token as well: the round has to earn its whole cost.",
            ),
            Mistake(
                lambda g, c, v, o, o_0: v + g * c + o,
                "that is the cost in plain passes; a plain step costs 1 + o₀ of them.",
            ),
        ],
    )


def check_conditional(fn: Callable[[Sequence[float]], Sequence[float]]) -> Outcome:
    """Check fn(rates) → accepted ÷ tested by position, from rates that are shares of all drafts."""
    return check(
        fn,
        lambda rates: theory.conditional_acceptance(rates)[0],
        [(rates,) for rates in RATES],
        [
            Mistake(
                lambda rates: rates,
                "those are the printed ones: a draft rejected early counts in them at every later"
                " position.",
            ),
            Mistake(
                lambda rates: np.asarray(rates) / rates[0],
                "that divides by the first position; divide each by the one before it.",
            ),
        ],
    )


def check_alpha_from_tau(fn: Callable[[float, int], float]) -> Outcome:
    """Check fn(tau, gamma) → the α whose expected tokens are τ, for 1 < τ < γ + 1."""
    return check(
        fn,
        theory.implied_alpha,
        [(2.5, 4), (1.5, 2), (3.0, 8), (1.2, 1)],
        [
            Mistake(
                lambda tau, gamma: (tau - 1) / gamma,
                "that is accepted ÷ drafted, what engines print: drafts after a rejection were"
                " never tested.",
            ),
            Mistake(
                lambda tau, gamma: 1 - 1 / tau,
                "that holds for drafts without an end; a round ends after γ tokens even if all are"
                " accepted.",
            ),
        ],
    )
