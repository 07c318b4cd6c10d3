"""Checks for the exercises on block verification. Source: Sun et al. 2025, algorithm 2."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from specdec_book.exercises.check import Check

_product = lambda ratios: np.cumprod(np.asarray(ratios, dtype=float))
check_block_weights = Check(
    "fn(ratios) → the weights, one per draft",
    lambda ratios: [*accumulate(ratios, lambda w, ratio: min(1.0, w * ratio), initial=1.0)][1:],
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


_mass = lambda w, p, q: np.maximum(0, w * np.asarray(p) - np.asarray(q)).sum()


def _success(w: float, p: Sequence[float], q: Sequence[float]) -> float:
    mass = _mass(w, p, q)
    return float(mass / (mass + 1 - w)) if mass > 0 else 0.0


check_success = Check(
    "fn(w, p, q) → the probability that the test of a prefix with weight w succeeds",
    _success,
    [
        (0.8, [0.5, 0.3, 0.2], [0.3, 0.5, 0.2]),
        (0.9, [0.9, 0.1], [0.4, 0.6]),
        (1.0, [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]),
        (0.5, [0.5, 0.3, 0.2], [0.3, 0.5, 0.2]),
        (1.0, [0.5, 0.5], [0.5, 0.5]),
    ],
    {
        "that is m, the probability of stopping here. The test matters only if no longer prefix was"
        " accepted: divide by the probability of that.": _mass,
        "the target's row is multiplied by the weight: w·p − q.": lambda w, p, q: (
            _mass(1.0, p, q) / max(1e-9, _mass(1.0, p, q) + 1 - w)
        ),
        "w is the probability of accepting at least this prefix, and longer prefixes are part of"
        " it: only m must come from this test.": lambda w, p, q: w,
        "divide by the probability that no longer prefix was accepted,"
        " m + 1 − w.": lambda w, p, q: _mass(w, p, q) / w,
    },
)


def _longest(successes: Sequence[float]) -> float:
    failures = 1 - np.asarray(successes, dtype=float)
    return float((1 - failures[::-1].cumprod()).sum())


check_accepted_drafts = Check(
    "fn(successes) → expected number of accepted drafts",
    _longest,
    [([0.5, 0.5],), ([0.0, 1.0],), ([0.2, 0.0, 0.6],), ([1.0, 0.0, 0.0],), ([0.3],)],
    {
        "that adds up the tests, but only the longest prefix that succeeds counts, with its whole"
        " length.": sum,
        "that stops at the first failure: a longer prefix may succeed although a shorter one"
        " failed.": lambda row: float(np.cumprod(row).sum()),
        "that counts the recovered or bonus token too: return the drafts alone.": 1,
    },
)
