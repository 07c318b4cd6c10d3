"""Checks for exercises on speed: expected tokens, the best γ, a profile of rates."""

import numpy as np

from specdec_book.exercises.check import Check
from specdec_lite import theory

check_expected_tokens = Check(
    "fn(alpha, gamma) → tokens that one target pass emits on average, for any alpha in [0, 1]",
    theory.expected_tokens,
    [(0.5, 1), (0.8, 4), (0.3, 7), (0.0, 3), (1.0, 5)],
    {
        "that counts the accepted drafts only. Every pass emits one more token:"
        " recovered or bonus.": -1,
        "that tests every draft. A draft after a rejection is not tested: draft i is accepted with"
        " probability αⁱ.": lambda a, g: 1 + a * g,
        "one term is missing: the sum runs from α⁰ to α^γ, that is γ + 1 terms.": lambda a, g: (
            theory.expected_tokens(a, g - 1) if g > 1 else 1.0
        ),
    },
)


_optimal = lambda alpha, c: theory.optimal_gamma(alpha, c)[0]
_at_least_one = lambda alpha, c: max(1, _optimal(alpha, c))
check_optimal_gamma = Check(
    "fn(alpha, c) → the draft length of the greatest speedup, 0 if none exceeds 1",
    _optimal,
    [(0.8, 0.1), (0.5, 0.1), (0.9, 0.02), (0.3, 0.2), (0.2, 0.2), (0.95, 0.01), (0.99, 0.001)],
    {
        "where α ≤ c no draft length pays: answer 0, draft nothing.": _at_least_one,
        "search further: at α = 0.95 and c = 0.01 the best γ is 40.": lambda alpha, c: min(
            20, _optimal(alpha, c)
        ),
        "off by one: is your list of γ counted from 0 or from 1?": lambda alpha, c: (
            _at_least_one(alpha, c) - 1
        ),
    },
)


check_tokens_from_profile = Check(
    "fn(profile) → tokens per pass if position i is accepted with probability profile[i], given"
    " that it is tested",
    theory.tokens_from_profile,
    [([0.9, 0.6, 0.3],), ([0.5],), ([1.0, 1.0, 0.0, 1.0],)],
    {
        "position 2 is tested only if position 1 was accepted:"
        " multiply along the way.": lambda profile: 1 + sum(profile),
        "add the recovered or bonus token of every pass.": -1,
        "that replaces the profile by its mean, which is the assumption"
        " to remove.": lambda profile: theory.expected_tokens(np.mean(profile), len(profile)),
    },
)
