"""Checks for the exercises on block verification."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from specdec_book.exercises.check import Check


def block_weights(ratios: Sequence[float]) -> list[float]:
    """Return the weights that block verification carries from draft to draft: w_i = min(1, w_{i−1}
    · p_i/q_i).

    ratios: p/q of each drafted token. Source: Sun et al. 2025, algorithm 2.
    """
    return [*accumulate(ratios, lambda weight, ratio: min(1.0, weight * ratio), initial=1.0)][1:]


def success(w: float, p: Sequence[float], q: Sequence[float]) -> float:
    """Return the probability that the test of a prefix with weight w succeeds; p and q are the
    rows after the prefix. Source: Sun et al. 2025, algorithm 2.
    """
    mass = np.maximum(0, w * np.asarray(p) - np.asarray(q)).sum()
    return float(mass / (mass + 1 - w)) if mass > 0 else 0.0


def accepted_drafts(successes: Sequence[float]) -> float:
    """Return the expected length of the longest prefix whose test succeeds."""
    failures = 1 - np.asarray(successes, dtype=float)
    return float((1 - failures[::-1].cumprod()).sum())


_product = lambda ratios: np.cumprod(np.asarray(ratios, dtype=float))
check_block_weights = Check(
    "fn(ratios) → the weights, one per draft",
    block_weights,
    [([0.5, 2.0],), ([2.0, 0.5],), ([0.5, 0.5, 3.0],), ([1.2, 0.9, 4.0, 0.2],), ([],)],
    {
        "a weight is a probability: cap it at 1 after every token, so that an early surplus cannot"
        " be saved up.": _product,
        "cap at every step, not at the end: a surplus before a ratio below 1 must not pay"
        " for it.": lambda ratios: np.minimum(1, _product(ratios)),
        "that is the rule token by token, which loses the surplus: cap the product, not"
        " the ratios.": lambda ratios: np.cumprod(np.minimum(1, np.asarray(ratios, dtype=float))),
        "each weight contains the one before it: multiply by it.": lambda ratios: np.minimum(
            1, np.asarray(ratios, dtype=float)
        ),
    },
)


_rest = lambda w, p, q: np.maximum(0, w * np.asarray(p) - np.asarray(q)).sum()
check_success = Check(
    "fn(w, p, q) → the probability that the test of a prefix with weight w succeeds",
    success,
    [
        (0.8, [0.5, 0.3, 0.2], [0.3, 0.5, 0.2]),
        (0.9, [0.9, 0.1], [0.4, 0.6]),
        (1.0, [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]),
        (0.5, [0.5, 0.3, 0.2], [0.3, 0.5, 0.2]),
        (1.0, [0.5, 0.5], [0.5, 0.5]),
    ],
    {
        "that is m, the probability of stopping here. The test matters only if no longer prefix was"
        " accepted: divide by the probability of that.": _rest,
        "the target's row is multiplied by the weight: w·p − q.": lambda w, p, q: (
            _rest(1.0, p, q) / max(1e-9, _rest(1.0, p, q) + 1 - w)
        ),
        "w is the probability of accepting at least this prefix, and longer prefixes are part of"
        " it: only m must come from this test.": lambda w, p, q: w,
        "divide by the probability that no longer prefix was accepted,"
        " m + 1 − w.": lambda w, p, q: _rest(w, p, q) / w,
    },
)


check_accepted_drafts = Check(
    "fn(successes) → expected number of accepted drafts",
    accepted_drafts,
    [([0.5, 0.5],), ([0.0, 1.0],), ([0.2, 0.0, 0.6],), ([1.0, 0.0, 0.0],), ([0.3],)],
    {
        "that adds up the tests, but only the longest prefix that succeeds counts, with its whole"
        " length.": sum,
        "that stops at the first failure: a longer prefix may succeed although a shorter one"
        " failed.": lambda row: float(np.cumprod(row).sum()),
        "that counts the recovered or bonus token too: return the drafts alone.": 1,
    },
)
