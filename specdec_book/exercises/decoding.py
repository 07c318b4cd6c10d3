"""Checks for the exercises on plain decoding and on drafting and verifying: adjusted distributions,
counted work, one round of a chain and its caches."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from specdec_book.exercises.check import Check, leading

DISTRIBUTIONS = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.25, 0.05], [0.25, 0.05, 0.3, 0.15, 0.25]]
TIED = [0.4, 0.3, 0.3]


def _normalised(kept: np.ndarray) -> np.ndarray:
    return kept / kept.sum()


def _top_k(probs: Sequence[float], k: int, normalise: bool = True) -> np.ndarray:
    probs = np.asarray(probs, dtype=float)
    kept = np.zeros_like(probs)
    best = np.argsort(-probs, kind="stable")[:k]
    kept[best] = probs[best]
    return _normalised(kept) if normalise else kept


check_top_k = Check(
    "fn(probs, k) → the distribution that keeps the k likeliest tokens",
    _top_k,
    [
        (DISTRIBUTIONS[0], 2),
        (DISTRIBUTIONS[1], 1),
        (DISTRIBUTIONS[1], 3),
        (DISTRIBUTIONS[0], 3),
        (TIED, 2),
    ],
    {
        "the probabilities must sum to 1 again: divide them by their sum.": {"normalise": False},
        "a threshold keeps every token that is as likely as the k-th: of [0.4, 0.3, 0.3] with k = 2"
        " it keeps three. Keep exactly k tokens;"
        " of equally likely ones, keep the earlier.": lambda probs, k: _normalised(
            np.where(probs >= np.sort(probs)[-k], probs, 0.0)
        ),
        "that keeps the first k tokens of the vocabulary, not the k likeliest: sort"
        " first.": lambda probs, k: _normalised(np.where(np.arange(len(probs)) < k, probs, 0.0)),
        "that keeps the k least likely tokens.": lambda probs, k: _normalised(
            np.where(np.argsort(np.argsort(probs)) < k, probs, 0.0)
        ),
    },
)


def _nucleus(
    probs: Sequence[float], top_p: float, crossing: bool = True, normalise: bool = True
) -> np.ndarray:
    probs = np.asarray(probs, dtype=float)
    order = np.argsort(-probs, kind="stable")
    reached = np.cumsum(probs[order])
    inside = reached - probs[order] < top_p - 1e-12 if crossing else reached <= top_p + 1e-12
    kept = np.zeros_like(probs)
    kept[order[inside]] = probs[order[inside]]
    return kept / kept.sum() if normalise and kept.sum() else kept


check_nucleus = Check(
    "fn(probs, top_p) → the distribution over the smallest set of likeliest tokens whose mass"
    " reaches top_p",
    _nucleus,
    [
        (DISTRIBUTIONS[0], 0.7),
        (DISTRIBUTIONS[1], 0.5),
        (DISTRIBUTIONS[1], 0.9),
        (DISTRIBUTIONS[2], 0.6),
        (DISTRIBUTIONS[0], 1.0),
        (DISTRIBUTIONS[0], 0.5),
    ],
    {
        "the token that reaches top_p belongs to the nucleus: without it the mass stays below"
        " top_p, and a very likely first token would leave an"
        " empty nucleus.": {"crossing": False},
        "if the mass is exactly top_p, it has reached top_p: stop there and do not add another"
        " token.": lambda probs, p: _nucleus(probs, p + 1e-6),
        "the probabilities must sum to 1 again: divide them by their sum.": {"normalise": False},
        "top_p bounds the mass of the tokens together,"
        " not the probability of each.": lambda probs, p: (
            _normalised(np.where(np.asarray(probs) >= p, probs, 0.0))
            if max(probs) >= p
            else np.zeros(len(probs))
        ),
    },
)


check_positions_scored = Check(
    "fn(prompt, new, cached) → positions computed to decode `new` tokens, with or without a cache",
    lambda n, m, cached: n + m - 1 if cached else sum(n + i for i in range(m)),
    [(10, 1, True), (10, 1, False), (10, 5, True), (10, 5, False), (3, 100, False), (3, 100, True)],
    {
        "the last new token is never fed to the model, because decoding stops after it. The count"
        " is prompt + new"
        " − 1.": lambda n, m, cached: n + m if cached else sum(n + i for i in range(m)),
        "the first pass computes the prompt alone: the sum runs from prompt to prompt + new"
        " − 1.": lambda n, m, cached: n + m - 1 if cached else sum(n + i for i in range(1, m + 1)),
        "without a cache the text grows by one position with every pass.": lambda n, m, cached: (
            n + m - 1 if cached else n * m
        ),
        "with a cache the prompt must still be computed once.": lambda n, m, cached: (
            m if cached else sum(n + i for i in range(m))
        ),
    },
)


_accepted = lambda ratios, uniforms: leading(u < r for r, u in zip(ratios, uniforms))
check_accepted = Check(
    "fn(ratios, uniforms) → number of accepted drafts. ratios[i]: p/q of draft i.",
    _accepted,
    [
        ([2.0, 0.5, 0.9], [0.3, 0.4, 0.1]),
        ([0.5, 2.0, 2.0], [0.6, 0.1, 0.1]),
        ([2.0, 0.2, 3.0], [0.9, 0.5, 0.2]),
        ([2.0, 0.0], [0.5, 0.0]),
        ([], []),
    ],
    {
        "that counts every draft that passes its own test. A draft after a rejection continues a"
        " rejected token: stop at the"
        " first failure.": lambda ratios, uniforms: sum(u < r for r, u in zip(ratios, uniforms)),
        "the rejected draft itself is not accepted.": lambda ratios, uniforms: min(
            _accepted(ratios, uniforms) + 1, len(ratios)
        ),
        "the comparison is the wrong way round: a draft with p/q = 1 or more must always stay, so"
        " keep it while u"
        " < p/q.": lambda ratios, uniforms: _accepted([-r for r in ratios], [-u for u in uniforms]),
        "at u = p/q the draft is rejected too: with p = 0 and u = 0 the target never"
        " emits it.": lambda ratios, uniforms: _accepted([r + 1e-12 for r in ratios], uniforms),
    },
)


_cache_lengths = lambda m, gamma, accepted: (m + accepted, min(m + gamma - 1, m + accepted))
check_cache_lengths = Check(
    "fn(committed, gamma, accepted) → (length of the target cache, length of the draft cache)"
    " after the round's rollback. committed: tokens committed before the round. gamma: drafted"
    " tokens, ≥ 1. accepted: number of them that are accepted.",
    _cache_lengths,
    [(10, 4, 0), (10, 4, 2), (10, 4, 4), (1, 1, 1), (7, 3, 2)],
    {
        "after a fully accepted round the draft's cache is one shorter: the draft model was never"
        " fed its last draft.": lambda m, gamma, accepted: (m + accepted, m + accepted),
        "the recovered or bonus token is in neither cache yet:"
        " it is fed in the next round.": lambda m, gamma, accepted: (
            m + accepted + 1,
            min(m + gamma - 1, m + accepted + 1),
        ),
        "the round also fed the last committed token, which stays: both lengths are one larger.": (
            lambda m, gamma, accepted: (m + accepted - 1, m + accepted - 1),
            lambda *case: tuple(length - 1 for length in _cache_lengths(*case)),
        ),
        "rejected drafts must be cut away.": lambda m, gamma, accepted: (m + gamma, m + gamma - 1),
    },
)


def _inverse(probs: Sequence[float], uniform: float) -> int:
    return int(np.searchsorted(np.cumsum(probs), uniform, side="right"))


def _round(tokens, p, q, uniforms, last, recover=None, bonus=True) -> list[int]:
    recover = recover or (lambda p, q: _normalised(np.maximum(np.subtract(p, q), 0)))
    ratios = [p[i][x] / q[i][x] for i, x in enumerate(tokens)]
    kept = _accepted(ratios, uniforms)
    if kept < len(tokens):
        return [*tokens[:kept], _inverse(recover(p[kept], q[kept]), last)]
    return [*tokens, _inverse(p[kept], last)] if bonus else list(tokens)


def _going_on(tokens, p, q, uniforms, last, bonus) -> list[int]:
    """Return the tokens of a broken round that tests every draft, replaces each rejected one and
    does not stop."""
    recover = lambda i: _normalised(np.maximum(np.subtract(p[i], q[i]), 0))
    passed = [u < p[i][x] / q[i][x] for i, (x, u) in enumerate(zip(tokens, uniforms))]
    out = [x if passed[i] else _inverse(recover(i), last) for i, x in enumerate(tokens)]
    return [*out, _inverse(p[-1], last)] if bonus(passed) else out


ROWS_P = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.6, 0.3, 0.1]]
ROWS_Q = [[0.3, 0.5, 0.2], [0.2, 0.6, 0.2]]


def _rows(argument):
    """Return a list of rows as a tensor [rows, V], as the chapter's p and q are."""
    is_rows = isinstance(argument, list) and isinstance(argument[0], list)
    return torch.tensor(argument, dtype=torch.float64) if is_rows else argument


check_round = Check(
    "fn(tokens, p, q, uniforms, last) → the list of tokens that the round emits. tokens: list of γ"
    " drafts. p: tensor [γ + 1, V]. q: tensor [γ, V]. uniforms: list, one per test. last: the"
    " uniform of the recovered or bonus token, by inversion: the first token at which the"
    " cumulative probability exceeds it.",
    _round,
    [
        ([1, 2], ROWS_P, ROWS_Q, [0.7, 0.1], 0.9),
        ([1, 1], ROWS_P, ROWS_Q, [0.5, 0.5], 0.15),
        ([0, 0], ROWS_P, ROWS_Q, [0.1, 0.6], 0.5),
        ([2, 2], ROWS_P, ROWS_Q, [0.2, 0.3], 0.2),
        ([2], [[0.25, 0.25, 0.5]] * 2, [[0.25, 0.25, 0.5]], [0.5], 0.25),
        ([0], [[0.25, 0.25, 0.5]] * 2, [[0.5, 0.25, 0.25]], [0.5], 0.25),
    ],
    {
        "the recovered token is drawn from the residual norm(max(0, p − q)), not from p: the kept"
        " drafts already contain a part of p.": {"recover": lambda p, q: p},
        "the residual must sum to 1 before a token is read off it: divide max(0, p − q) by its"
        " sum.": {"recover": lambda p, q: np.maximum(np.subtract(p, q), 0)},
        "the round ends with the first rejection: later drafts continue the rejected"
        " token, so emit the recovered token and stop.": tuple(
            partial(_going_on, bonus=bonus)
            for bonus in (lambda passed: True, all, lambda passed: False)
        ),
        "when every draft is accepted the last row of p gives a bonus token.": {"bonus": False},
        "every round emits one more token: recovered or bonus.": lambda *case: _round(*case)[:-1],
        "the residual is the excess of p over q, not of q over p.": {
            "recover": lambda p, q: _normalised(np.maximum(np.subtract(q, p), 0))
        },
        "a token whose cumulative probability equals `last` does not exceed it:"
        " take the next one.": lambda tokens, p, q, u, last: _round(tokens, p, q, u, last - 1e-12),
    },
    given_as=_rows,
)
