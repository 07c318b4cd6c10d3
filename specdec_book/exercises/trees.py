"""Checks for the exercises on several draws at one node and on trees of a budget: acceptance of
siblings, the best possible acceptance, the budget that pays."""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from specdec_book.exercises.check import Check
from specdec_lite import theory
from specdec_lite.drafters.trees import best_shape, expected_tokens

PAIRS = [
    ([0.5, 0.3, 0.2], [0.3, 0.5, 0.2]),
    ([0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.1, 0.4]),
    ([0.5, 0.5], [0.5, 0.5]),
]
CASES = [(p, q, k) for p, q in PAIRS for k in (1, 2, 3)]


def _siblings(
    p: Sequence[float], q: Sequence[float], k: int, remaining: Callable = theory.residual
) -> float:
    p, q = np.array(p), np.array(q)
    left = 1.0
    for _ in range(k):
        left *= 1 - np.minimum(p, q).sum()
        p = remaining(p, q)
    return float(1 - left)


check_sibling_acceptance = Check(
    "fn(p, q, k) → probability that the walk accepts one of k independent draws from q",
    _siblings,
    CASES,
    {
        "that tests every draw against the untouched p: after a rejection p becomes the residual,"
        " norm(max(0, p − q)).": {"remaining": lambda p, q: p},
        "the residual must be a distribution again: divide it by its sum.": {
            "remaining": lambda p, q: np.maximum(p - q, 0)
        },
        "that is the probability that all k are accepted; one of them is enough.": lambda p, q, k: (
            _siblings(p, q, 1) ** k
        ),
    },
)


_all_inside = lambda inside, k: sum(inside) ** k


def _cut(p: Sequence[float], q: Sequence[float], k: int, inside: Callable = _all_inside) -> float:
    subsets = (h for size in range(len(p) + 1) for h in combinations(range(len(p)), size))
    return min(sum(p[x] for x in h) + 1 - inside([q[x] for x in h], k) for h in subsets)


check_best_acceptance = Check(
    "fn(p, q, k) → the highest acceptance that any lossless rule reaches with k independent draws",
    _cut,
    CASES,
    {
        "D is inside H only if all k draws are in H: raise it, q(H) to the k.": {
            "inside": lambda inside, k: sum(inside)
        },
        "the draws may be different tokens of H: use (Σ q)^k, not Σ q^k.": {
            "inside": lambda inside, k: sum(x**k for x in inside)
        },
        "Σ min(p, k·q) is only an upper bound: it is not reached, because two draws may be one"
        " token.": lambda p, q, k: min(1.0, sum(min(a, k * b) for a, b in zip(p, q))),
    },
)


def _tokens(rates: Sequence[float], nodes: int) -> float:
    return expected_tokens(best_shape(rates, nodes), rates)


_per_second = lambda tokens, time: tokens / time


def _budget(rates: Sequence[float], times: Sequence[float], worth: Callable = _per_second) -> int:
    return int(np.argmax([worth(_tokens(rates, m), time) for m, time in enumerate(times)]))


check_best_budget = Check(
    "fn(rates, times) → the number of drafted nodes with the most tokens per second. times[m]:"
    " duration of a round with m nodes.",
    _budget,
    [
        ([0.6, 0.15, 0.06], [1.0, 1.1, 1.15, 1.2, 1.3, 1.6, 2.2]),
        ([0.4, 0.3, 0.1], [1.0, 1.3, 1.35, 1.4, 1.45, 1.5, 1.55]),
        ([0.8], [1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2]),
        ([0.2, 0.1], [1.0, 1.4, 1.8, 2.2, 2.6, 3.0, 3.4]),
    ],
    {
        "that is the budget with the most tokens per *pass*: divide by the round's time.": {
            "worth": lambda tokens, time: tokens
        },
        "the target adds one token to every round, drafted or not: begin at 1.": {
            "worth": lambda tokens, time: (tokens - 1) / time
        },
    },
)
