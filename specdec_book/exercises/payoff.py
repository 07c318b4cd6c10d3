"""Checks for the exercises of chapter 19: break-even, conditional rates, α from τ."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import brentq

from specdec_book.exercises.check import Mistake, Outcome, check
from specdec_lite import theory

ROUNDS = [(4, 0.1, 1.05, 0.1), (8, 0.2, 1.3, 0.15), (1, 0.0, 1.0, 0.0), (3, 0.5, 2.0, 0.2)]
RATES = [[0.821, 0.609, 0.437], [0.58, 0.34, 0.22, 0.15, 0.11], [1.0, 0.5], [0.7]]


def check_break_even(fn: Callable[[int, float, float, float], float]) -> Outcome:
    """Check fn(gamma, c, verify, overhead) → the τ at which a round costs as much as its tokens
    cost plainly."""
    return check(
        fn,
        lambda gamma, c, verify, overhead: verify + gamma * c + overhead,
        ROUNDS,
        [
            Mistake(
                lambda g, c, v, o: 1 + g * c,
                "that is the paper's cost: it takes verifying for one pass and the rest for"
                " nothing.",
            ),
            Mistake(lambda g, c, v, o: v + c + o, "the draft runs γ times in a round, not once."),
            Mistake(
                lambda g, c, v, o: v + g * c + o - 1,
                "τ counts the bonus token as well: the round has to earn its whole cost.",
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
        lambda tau, gamma: brentq(
            lambda alpha: theory.expected_tokens(alpha, gamma) - tau, 0, 1, xtol=1e-14
        ),
        [(2.5, 4), (1.5, 2), (3.0, 8), (1.2, 1)],
        [
            Mistake(
                lambda tau, gamma: (tau - 1) / gamma,
                "that is accepted ÷ drafted, what engines print: drafts behind a rejection were"
                " never tested.",
            ),
            Mistake(
                lambda tau, gamma: 1 - 1 / tau,
                "that holds for drafts without an end; γ tokens end the round even when all are"
                " accepted.",
            ),
        ],
    )
