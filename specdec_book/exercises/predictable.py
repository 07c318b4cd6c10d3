"""Checks for the exercises on predictable and unpredictable text."""

from collections.abc import Sequence

import numpy as np
import torch

from specdec_book.exercises.check import Check
from specdec_lite import theory
from specdec_lite.sampling import Sampling


def _softmax(logits: Sequence[float], temperature: float) -> np.ndarray:
    return Sampling(temperature)(torch.tensor(logits, dtype=torch.float64)).numpy()


def _alpha(p_logits, q_logits, p_temperature: float, q_temperature: float) -> float:
    return theory.acceptance_rate(
        _softmax(p_logits, p_temperature), _softmax(q_logits, q_temperature)
    )


check_alpha_at = Check(
    "fn(p_logits, q_logits, temperature) → acceptance of a drawn token if target and draft both"
    " use this temperature, above 0",
    lambda p, q, t: _alpha(p, q, t, t),
    [
        ([2.0, 1.0, 0.0], [2.0, 0.0, 1.0], 1.0),
        ([2.0, 1.0, 0.0], [2.0, 0.0, 1.0], 0.25),
        ([1.0, 0.5, -1.0], [0.5, 1.0, 0.0], 0.1),
        ([0.3, 0.0, -0.2, 1.4], [0.1, 0.4, 0.0, 0.9], 3.0),
    ],
    {
        "only the target's row has the temperature: the draft draws at it too.": lambda p, q, t: (
            _alpha(p, q, t, 1.0)
        ),
        "the temperature does nothing:"
        " divide the logits by it before the softmax.": lambda p, q, t: _alpha(p, q, 1.0, 1.0),
        "divide the logits by the temperature; do not multiply them by it.": lambda p, q, t: _alpha(
            p, q, 1 / t, 1 / t
        ),
    },
)


def _nucleus(probs: Sequence[float], top_p: float) -> np.ndarray:
    row = torch.tensor(probs, dtype=torch.float64)
    return Sampling(1.0, top_p=top_p)(row.log()).numpy()


def _by_targets(p, q, top_p):
    kept = _nucleus(p, top_p)
    row = np.where(kept > 0, q, 0)
    return theory.acceptance_rate(kept, row / row.sum())


check_nucleus_alpha = Check(
    "fn(p, q, top_p) → acceptance if target and draft both keep their nucleus: the smallest set of"
    " likeliest tokens whose mass reaches top_p, renormalized",
    lambda p, q, top_p: theory.acceptance_rate(_nucleus(p, top_p), _nucleus(q, top_p)),
    [
        ([0.5, 0.3, 0.2], [0.3, 0.5, 0.2], 0.6),
        ([0.5, 0.3, 0.2], [0.3, 0.5, 0.2], 0.4),
        ([0.6, 0.25, 0.1, 0.05], [0.2, 0.1, 0.3, 0.4], 0.5),
        ([0.6, 0.25, 0.1, 0.05], [0.2, 0.1, 0.3, 0.4], 1.0),
        ([0.25, 0.4, 0.35], [0.3, 0.36, 0.34], 0.7),
    ],
    {
        "the draft cannot know the target's nucleus when it draws: it keeps its own.": _by_targets,
        "the draft's row is cut to its nucleus too.": lambda p, q, top_p: theory.acceptance_rate(
            _nucleus(p, top_p), q
        ),
        "nothing is cut: keep the likeliest tokens until their mass reaches top_p.": {"top_p": 1.0},
    },
)


def _mixed_tokens(share: float, easy: float, hard: float, gamma: int) -> float:
    both = (theory.expected_tokens(alpha, gamma) for alpha in (easy, hard))
    return share * next(both) + (1 - share) * next(both)


check_mixed_tokens = Check(
    "fn(share, easy, hard, gamma) → tokens per round if a share of the rounds meets easy text (α ="
    " easy in the whole round) and the others hard text",
    _mixed_tokens,
    [(0.5, 0.9, 0.3, 4), (0.2, 0.95, 0.6, 8), (0.8, 0.7, 0.1, 2), (1.0, 0.8, 0.2, 5)],
    {
        "that is the mean length at the mean α. The formula is convex in α, so average the lengths,"
        " not the rates.": lambda share, easy, hard, gamma: theory.expected_tokens(
            share * easy + (1 - share) * hard, gamma
        ),
        "`share` belongs to the easy rounds: exchange the two.": lambda s, easy, hard, gamma: (
            _mixed_tokens(s, hard, easy, gamma)
        ),
        "every round emits one token of the target's own: add 1.": -1,
    },
)
