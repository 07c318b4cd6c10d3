"""Checks for the exercises of chapter 19: break-even, conditional rates, α from τ."""

import numpy as np

from specdec_book.exercises.check import Check
from specdec_lite import theory

check_break_even = Check(
    "fn(gamma, c, verify, overhead, plain_overhead) → the τ at which a round is as fast as plain"
    " decoding",
    theory.break_even_tokens,
    [  # γ, c, v, o and o₀
        (4, 0.1, 1.05, 0.1, 0.04),
        (8, 0.2, 1.3, 0.15, 0.1),
        (1, 0.0, 1.0, 0.0, 0.0),
        (3, 0.5, 2.0, 0.2, 0.25),
    ],
    {
        "that is the paper's cost: verification counts as one pass, and the rest as free.": {
            "verify": 1.0,
            "overhead": 0.0,
            "plain_overhead": 0.0,
        },
        "the draft runs γ times in a round, not once.": {"gamma": 1},
        "τ counts the bonus token as well: the round has to earn its whole cost.": -1,
        "that is the cost in plain passes; a plain step costs 1 + o₀ of them.": {
            "plain_overhead": 0.0
        },
    },
)


check_conditional = Check(
    "fn(rates) → accepted ÷ tested by position, from rates that are shares of all drafts",
    lambda rates: theory.conditional_acceptance(rates)[0],
    [([0.821, 0.609, 0.437],), ([0.58, 0.34, 0.22, 0.15, 0.11],), ([1.0, 0.5],), ([0.7],)],
    {
        "those are the printed ones:"
        " a draft rejected early counts in them at every later position.": lambda rates: rates,
        "that divides by the first position; divide each by the one before it.": lambda rates: (
            np.asarray(rates) / rates[0]
        ),
    },
)


check_alpha_from_tau = Check(
    "fn(tau, gamma) → the α whose expected tokens are τ, for 1 < τ < γ + 1",
    theory.implied_alpha,
    [(2.5, 4), (1.5, 2), (3.0, 8), (1.2, 1)],
    {
        "that is accepted ÷ drafted, what engines print: drafts after a rejection were never"
        " tested.": lambda tau, gamma: (tau - 1) / gamma,
        "that holds for drafts without an end; a round ends after γ tokens even if all are"
        " accepted.": lambda tau, gamma: 1 - 1 / tau,
    },
)
