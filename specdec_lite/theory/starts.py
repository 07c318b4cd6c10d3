"""Where rounds begin, in texts whose positions differ in how easily they are drafted."""

import numpy as np
from numpy.typing import ArrayLike

from specdec_lite.checks import SUM_TOLERANCE
from specdec_lite.theory.arrays import draft_length, number, within


def round_starts(rates: ArrayLike, moves: ArrayLike, gamma: int) -> np.ndarray:
    """Return the share of rounds whose first drafted token is in each state of a text.

    A text's positions move between states (easy and hard, for instance) as a Markov chain. A round
    that accepts n < γ drafts is followed by one that begins after its recovered token; a round that
    accepts all, by one that begins after its bonus token. The result is the stationary distribution
    of that walk, R = Σₙ (D·moves)ⁿ (1 − D) moves + (D·moves)^γ moves with D = diag(rates). Longer
    drafts leave easy stretches in one round and so begin more often in hard ones. Therefore
    `rates @ round_starts` is not a property of a pair: it falls with γ. Source: this book,
    chapter 19.

    Args:
        rates: acceptance in each state, [S].
        moves: [S, S]; row s is the distribution of the next position's state.
        gamma: draft length, a whole number ≥ 1.

    Returns:
        float64 [S].

    Raises:
        ValueError: the shapes do not fit, or a row of moves does not sum to 1.
    """
    rates = within("rates", rates, 0, 1)
    moves = within("moves", moves, 0, 1)
    gamma = int(draft_length(number("gamma", gamma)))
    if rates.ndim != 1 or moves.shape != (len(rates), len(rates)):
        raise ValueError(
            f"rates [S] and moves [S, S] must fit, got shapes {rates.shape} and {moves.shape}"
        )
    if not np.allclose(moves.sum(-1), 1, atol=SUM_TOLERANCE):
        raise ValueError(f"moves must have rows that sum to 1, they sum to {moves.sum(-1)}")
    step = rates[:, None] * moves
    passed = np.eye(len(rates))
    walk = np.zeros_like(moves)
    for _ in range(gamma):
        walk += passed @ ((1 - rates)[:, None] * moves)
        passed = passed @ step
    walk += passed @ moves
    balance = np.vstack((walk.T - np.eye(len(rates)), np.ones(len(rates))))
    return np.linalg.lstsq(balance, np.eye(len(rates) + 1)[-1], rcond=None)[0]
