"""Checks for the exercises of chapter 16: a pass that waits for its launches, a pair that must fit,
the best γ at measured costs."""

from collections.abc import Callable, Sequence

from specdec_book.exercises.check import Mistake, Outcome, check
from specdec_lite import theory

PASSES = [  # seconds of reading, kernel by kernel; of a launch; of the shortest kernel
    ([7.0, 7.0, 7.0, 7.0], 5.0, 2.0),
    ([0.5, 0.5, 0.5], 5.0, 2.0),
    ([0.5, 0.5, 0.5], 0.0, 2.0),
    ([0.5, 9.0, 1.0, 6.0], 1.0, 2.0),
    ([4.0, 3.0], 0.0, 1.0),
]
PAIRS = [
    (7_615_616_512, 494_032_768, 2, 28_672, 6_144, 4096),
    (10**9, 10**8, 4, 1000, 100, 10),
    (10**9, 10**8, 2, 0, 0, 1),
]
COSTS = [
    (0.8, 0.1, 0.02, 0.05),
    (0.8, 0.1, 0.1, 0.0),
    (0.6, 0.3, 0.15, 0.1),
    (0.8, 0.1, 0.05, 0.8),
    (0.95, 0.02, 0.0, 0.0),
    (0.5, 0.5, 0.0, 0.0),
]
MAX_GAMMA = 16


def pass_seconds(reading: Sequence[float], launch: float, least: float) -> float:
    """Return the seconds of a pass of dependent kernels that the host launches while the device
    works.

    reading: seconds that each kernel's bytes take. launch: seconds of the host per kernel, 0 in a
    captured graph. least: the shortest time of any kernel, in seconds.
    """
    return max(len(reading) * launch, sum(max(least, seconds) for seconds in reading))


def pair_bytes(
    target: int, draft: int, width: int, target_cache: int, draft_cache: int, context: int
) -> int:
    """Return the bytes for the weights of both models and for both caches of `context` tokens.
    Caches are given in numbers per token."""
    return width * (target + draft + context * (target_cache + draft_cache))


def best_gamma(alpha: float, c: float, step: float, overhead: float) -> int:
    """Return the γ in 1 … 16 of the greatest corrected speedup with T(k)/T(1) = 1 + step·(k − 1),
    or 0 if plain decoding is as fast."""
    speedups = {
        gamma: _speedup(alpha, gamma, c, step, overhead) for gamma in range(1, MAX_GAMMA + 1)
    }
    best = max(speedups, key=speedups.get)
    return best if speedups[best] > 1 else 0


def _speedup(alpha: float, gamma: int, c: float, step: float, overhead: float) -> float:
    return theory.corrected_improvement(
        theory.expected_tokens(alpha, gamma), gamma, c, 1 + step * gamma, overhead
    )


def check_pass_seconds(fn: Callable[[list[float], float, float], float]) -> Outcome:
    """Check fn(reading, launch, least) → seconds of the pass."""
    working = lambda reading, least: sum(max(least, seconds) for seconds in reading)
    return check(
        fn,
        pass_seconds,
        PASSES,
        [
            Mistake(
                lambda reading, launch, least: max(len(reading) * launch, sum(reading)),
                "a kernel that reads next to nothing still takes `least`: a graph removes the"
                " launches, not the kernels.",
            ),
            Mistake(
                lambda reading, launch, least: max(
                    len(reading) * launch, len(reading) * least, sum(reading)
                ),
                "each kernel takes the longer of `least` and its own reading: compare kernel by"
                " kernel, then add.",
            ),
            Mistake(
                lambda reading, launch, least: max(
                    len(reading) * launch, sum(reading) + len(reading) * least
                ),
                "`least` is a floor, not an extra: a kernel that reads for longer has passed it.",
            ),
            Mistake(
                lambda reading, launch, least: len(reading) * launch + working(reading, least),
                "launching and working overlap: the host is ahead of the device, so do not add"
                " them.",
            ),
            Mistake(
                lambda reading, launch, least: min(len(reading) * launch, working(reading, least)),
                "the pass ends with the slower of the two, not with the faster.",
            ),
            Mistake(
                lambda reading, launch, least: working(reading, least), "the launches are missing."
            ),
            Mistake(
                lambda reading, launch, least: len(reading) * launch,
                "the work is missing: a large model is not bound by its launches.",
            ),
        ],
    )


def check_pair_bytes(fn: Callable[[int, int, int, int, int, int], int]) -> Outcome:
    """Check fn(target, draft, width, target_cache, draft_cache, context) → bytes."""
    return check(
        fn,
        pair_bytes,
        PAIRS,
        [
            Mistake(lambda t, d, w, tc, dc, n: w * (t + d), "the caches are missing."),
            Mistake(lambda t, d, w, tc, dc, n: w * (t + d + n * tc), "the draft has a cache too."),
            Mistake(
                lambda t, d, w, tc, dc, n: w * (t + d + tc + dc),
                "the caches hold `context` tokens each, not one.",
            ),
            Mistake(
                lambda t, d, w, tc, dc, n: w * (t + d) + n * (tc + dc),
                "the caches' numbers take `width` bytes each as well.",
            ),
            Mistake(
                lambda t, d, w, tc, dc, n: t + d + n * (tc + dc),
                "those are numbers; each takes `width` bytes.",
            ),
        ],
    )


def check_best_gamma(fn: Callable[[float, float, float, float], int]) -> Outcome:
    """Check fn(alpha, c, step, overhead) → γ in 0 … 16."""

    def without_zero(alpha, c, step, overhead):
        return max(
            range(1, MAX_GAMMA + 1), key=lambda gamma: _speedup(alpha, gamma, c, step, overhead)
        )

    return check(
        fn,
        best_gamma,
        COSTS,
        [
            Mistake(
                lambda a, c, s, o: theory.optimal_gamma(a, c, MAX_GAMMA)[0],
                "that is the plain formula's: with a dear T(k) the best draft is shorter.",
            ),
            Mistake(
                lambda a, c, s, o: best_gamma(a, c, s, 0.0),
                "the overhead o is missing from the round.",
            ),
            Mistake(without_zero, "where no draft length beats plain decoding, the answer is 0."),
        ],
    )
