"""Checks for the exercises on when to stop drafting."""

from collections.abc import Callable, Sequence

import numpy as np

from specdec_book.exercises.check import Mistake, Outcome, check

SURE = [
    ([0.9, 0.8, 0.3, 0.9, 0.2], 0.4),
    ([0.9, 0.8, 0.7], 0.4),
    ([0.1, 0.9], 0.4),
    ([0.9, 0.2, 0.9, 0.9], 0.4),
    ([0.5, 0.4, 0.39, 0.9], 0.4),
]


def _length(q: Sequence[float], threshold: float, after: int = 1) -> int:
    at = next((i for i, value in enumerate(q) if value < threshold), None)
    return len(q) if at is None else at + after


def check_length(fn: Callable[[list[float], float], int]) -> Outcome:
    """Check fn(q, threshold) → number of drafted tokens.

    Args:
        fn: The reader's function. q holds the draft's probability of each token that it would
            draw.
    """
    return check(
        fn,
        _length,
        SURE,
        [
            Mistake(
                lambda q, threshold: _length(q, threshold, after=0),
                "that drops the unsure token after looking at it, which changes the distribution:"
                " stop after it, never before.",
            ),
            Mistake(
                lambda q, threshold: sum(value >= threshold for value in q),
                "drafting ends at the first unsure token; you count sure ones after it.",
            ),
            Mistake(
                lambda q, threshold: next(
                    (i + 1 for i, value in enumerate(q) if value <= threshold), len(q)
                ),
                "a token exactly at the threshold is sure enough: stop below it.",
            ),
        ],
    )


CHANCES = [
    ([0.8, 1.0], [1.0, 2.0, 2.3]),
    ([0.9, 0.8, 0.7], [1.0, 1.1, 1.2, 1.3]),
    ([0.9, 0.3, 0.9, 0.9], [1.0, 1.2, 1.5, 1.6, 1.7]),
    ([0.1], [1.0, 1.3]),
    ([0.6, 0.9, 0.9, 0.9], [1.0, 1.7, 1.75, 1.8, 1.85]),
    ([0.7, 0.5, 0.5], [1.0, 1.3, 1.4, 1.6]),
]


def _speeds(
    chances: Sequence[float], times: Sequence[float], own: float = 1.0, product: bool = True
) -> np.ndarray:
    alive = np.cumprod(chances) if product else np.asarray(chances)
    return (own + np.concatenate(([0.0], np.cumsum(alive)))) / np.asarray(times)


def _admitted(chances: Sequence[float], times: Sequence[float], **options) -> int:
    speeds = _speeds(chances, times, **options)
    return next((k for k in range(len(chances)) if speeds[k + 1] <= speeds[k]), len(chances))


def check_admitted(fn: Callable[[list[float], list[float]], int]) -> Outcome:
    """Check fn(chances, times) → number of drafted tokens to verify.

    One more token is verified as long as it raises the expected tokens per time, and no further.

    Args:
        fn: The reader's function. chances[i] is the probability that token i is accepted, given
            that the earlier ones are; times[k] is the duration of a round that verifies k.
    """
    return check(
        fn,
        _admitted,
        CHANCES,
        [
            Mistake(
                lambda chances, times: int(np.argmax(_speeds(chances, times))),
                "that searches all lengths, so whether a token is tested depends on later chances,"
                " and these depend on the token: the distribution changes. Stop at the first drop.",
            ),
            Mistake(
                lambda chances, times: _admitted(chances, times, product=False),
                "a token counts only if all earlier ones were accepted: multiply the chances.",
            ),
            Mistake(
                lambda chances, times: _admitted(chances, times, own=0.0),
                "the target adds one token to every round: the sum begins at 1.",
            ),
        ],
    )


OVERLAP = [(0.1, 6, 0.8), (0.3, 4, 0.5), (0.05, 4, 1.0), (0.2, 5, 0.0)]


def check_overlap_gain(fn: Callable[[float, int, float], float]) -> Outcome:
    """Check fn(c, gamma, hit) → speedup if a share of all drafts was made during verification.

    Args:
        fn: The reader's function. A pass takes 1 and a drafted token c, with c · gamma ≤ 1; hit
            is the share.
    """
    return check(
        fn,
        lambda c, gamma, hit: (1 + c * gamma) / (1 + (1 - hit) * c * gamma),
        OVERLAP,
        [
            Mistake(
                lambda c, gamma, hit: 1 + c * gamma,
                "after a miss the draft is made after the verdict: only hits save its time.",
            ),
            Mistake(
                lambda c, gamma, hit: 1 + hit * c * gamma,
                "use mean times, not mean speeds: a round takes 1 + (1 − hit)·c·gamma on average;"
                " divide the time without overlap by that.",
            ),
            Mistake(
                lambda c, gamma, hit: (1 + c * gamma) / (1 + hit * c * gamma),
                "a hit saves the draft's time, a miss costs it: exchange them.",
            ),
        ],
    )
