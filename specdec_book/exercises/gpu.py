"""Checks for the exercises of chapters 16 and 16c: the speed over the fastest plain decoding, a pair
that must fit, the best γ at measured costs; a pass that waits for its launches, c in both ways, and
the accepted drafts of a round without a read."""

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
RATES = [  # tokens per second: plain one by one, plain in graphs, drafted one by one, in graphs
    (250.0, 950.0, 340.0, 1700.0),
    (100.0, 90.0, 150.0, 80.0),
    (40.0, 160.0, 60.0, 120.0),
]
BOTH = [  # seconds of reading of the target's and the draft's operations, a launch, the shortest
    ([9.0, 9.0, 9.0], [0.5, 0.5], 5.0, 2.0),
    ([30.0, 30.0], [1.0, 1.0, 1.0, 1.0], 10.0, 2.0),
    ([8.0] * 4, [0.4] * 4, 1.0, 0.5),
]
ROUNDS = [  # uniforms, p and q of the drafted tokens
    ([0.2, 0.9, 0.1], [0.5, 0.2, 0.8], [0.5, 0.4, 0.4]),
    ([0.3, 0.4], [0.4, 0.6], [0.8, 0.6]),
    ([0.9, 0.1], [0.1, 0.6], [0.8, 0.6]),
    ([0.5], [0.3], [0.6]),
]


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


def over_fastest(plain: float, plain_graphs: float, drafted: float, drafted_graphs: float) -> float:
    """Return the fastest drafted rate ÷ the fastest plain rate."""
    return max(drafted, drafted_graphs) / max(plain, plain_graphs)


def check_over_fastest(fn: Callable[[float, float, float, float], float]) -> Outcome:
    """Check fn(plain, plain_graphs, drafted, drafted_graphs) → speedup."""
    return check(
        fn,
        over_fastest,
        RATES,
        [
            Mistake(
                lambda p, g, d, b: max(d, b) / p,
                "that is over plain decoding one by one: graphs alone have made it faster.",
            ),
            Mistake(
                lambda p, g, d, b: max(d / p, b / g),
                "compare rates, not ratios: the reader can choose the fastest plain decoding.",
            ),
            Mistake(
                lambda p, g, d, b: b / g,
                "graphs are not always faster: take the faster of the two, on both sides.",
            ),
        ],
    )


def both_costs(
    target: Sequence[float], draft: Sequence[float], launch: float, least: float
) -> tuple[float, float]:
    """Return c with operations launched one by one, and c in graphs."""
    one, graphs = (
        pass_seconds(draft, each, least) / pass_seconds(target, each, least)
        for each in (launch, 0.0)
    )
    return one, graphs


def check_both_costs(fn: Callable[..., tuple[float, float]]) -> Outcome:
    """Check fn(target, draft, launch, least) → (c one by one, c in graphs)."""
    return check(
        fn,
        both_costs,
        BOTH,
        [
            Mistake(
                lambda t, d, launch, least: (sum(d) / sum(t),) * 2,
                "that is the ratio of the bytes: no operation is shorter than `least`.",
            ),
            Mistake(
                lambda t, d, launch, least: both_costs(t, d, launch, least)[::-1],
                "the order is: one by one, then in graphs.",
            ),
            Mistake(
                lambda t, d, launch, least: (len(d) / len(t), both_costs(t, d, launch, least)[1]),
                "one by one the pass waits for launches only if they take longer than the work.",
            ),
        ],
    )


def accepted_drafts(uniforms: Sequence[float], p: Sequence[float], q: Sequence[float]) -> int:
    """Return the number of drafts before the first failed test."""
    passed = [u < a / b for u, a, b in zip(uniforms, p, q)]
    return (passed + [False]).index(False)


def check_accepted(fn: Callable[..., int]) -> Outcome:
    """Check fn(uniforms, p, q) → accepted drafts."""
    tests = lambda u, p, q: [x < a / b for x, a, b in zip(u, p, q)]
    return check(
        fn,
        accepted_drafts,
        ROUNDS,
        [
            Mistake(
                lambda u, p, q: sum(tests(u, p, q)),
                "that counts all passed tests; a draft after the first failure is lost.",
            ),
            Mistake(
                lambda u, p, q: int(all(tests(u, p, q))) * len(p),
                "the drafts before the first failure stay.",
            ),
            Mistake(
                lambda u, p, q: ([x <= a / b for x, a, b in zip(u, p, q)] + [False]).index(False),
                "the test is u < p ÷ q: at equality the draft is rejected.",
            ),
        ],
    )
