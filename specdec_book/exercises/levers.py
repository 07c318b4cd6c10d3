"""Checks for the exercises on what changes acceptance: the rule, and how the draft picks its token."""

from collections.abc import Callable, Sequence

import numpy as np

from specdec_book.exercises.check import Mistake, Outcome, check
from specdec_book.exercises.speed import check_lenient_acceptance_rate

__all__ = ["check_block_weights", "check_chosen_rate", "check_lenient_acceptance_rate"]

RATIOS = [[0.5, 2.0], [2.0, 0.5], [0.5, 0.5, 3.0], [1.2, 0.9, 4.0, 0.2], []]
PAIRS = [
    ([0.5, 0.3, 0.2], [0.3, 0.5, 0.2]),
    ([0.9, 0.1], [0.6, 0.4]),
    ([0.2, 0.5, 0.3], [0.1, 0.3, 0.6]),
]


def block_weights(ratios: Sequence[float]) -> list[float]:
    """Return the weights that block verification carries from draft to draft: w_i = min(1, w_{i−1}
    · p_i/q_i).

    ratios: p/q of each drafted token. Source: Sun et al. 2025, algorithm 2.
    """
    weights = [1.0]
    for ratio in ratios:
        weights.append(min(1.0, weights[-1] * ratio))
    return weights[1:]


def chosen_rate(p: Sequence[float], q: Sequence[float]) -> float:
    """Return the probability that the draft's likeliest token is accepted if it is proposed without
    a draw."""
    return float(np.asarray(p)[int(np.argmax(q))])


def check_block_weights(fn: Callable[[list[float]], Sequence[float]]) -> Outcome:
    """Check fn(ratios) → the weights, one per draft."""
    product = lambda ratios: np.cumprod(np.asarray(ratios, dtype=float))
    return check(
        fn,
        block_weights,
        [(ratios,) for ratios in RATIOS],
        [
            Mistake(
                product,
                "a weight is a probability: cap it at 1 after every token, so that an early surplus"
                " cannot be saved up.",
            ),
            Mistake(
                lambda ratios: np.minimum(1, product(ratios)),
                "cap at every step, not at the end: a surplus before a ratio below 1 must not pay"
                " for it.",
            ),
            Mistake(
                lambda ratios: np.cumprod(np.minimum(1, np.asarray(ratios, dtype=float))),
                "that is the rule token by token, which loses the surplus: cap the product, not the"
                " ratios.",
            ),
            Mistake(
                lambda ratios: np.minimum(1, np.asarray(ratios, dtype=float)),
                "each weight contains the one before it: multiply by it.",
            ),
        ],
    )


def check_chosen_rate(fn: Callable[[list[float], list[float]], float]) -> Outcome:
    """Check fn(p, q) → probability that the draft's argmax is accepted."""
    best = lambda q: int(np.argmax(q))
    return check(
        fn,
        chosen_rate,
        PAIRS,
        [
            Mistake(
                lambda p, q: np.minimum(p, q).sum(),
                "that is the rate of a *drawn* token. The argmax is proposed every time.",
            ),
            Mistake(
                lambda p, q: min(1.0, p[best(q)] / q[best(q)]),
                "its q is 1, not its soft probability: nothing was drawn.",
            ),
            Mistake(lambda p, q: max(p), "the draft proposes its own argmax, not the target's."),
            Mistake(
                lambda p, q: min(p[best(q)], q[best(q)]),
                "that is how often it is drawn *and* kept; here it is proposed every time.",
            ),
        ],
    )
