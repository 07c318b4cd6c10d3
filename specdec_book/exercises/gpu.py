"""Checks for the exercises of chapters 16 and 16c: the speed over the fastest plain decoding, a pair
that must fit, the best γ at measured costs; a pass that waits for its launches, c in both ways, and
the accepted drafts of a round without a read."""

from collections.abc import Sequence

from specdec_book.exercises.check import Check, leading
from specdec_lite import theory

MAX_GAMMA = 16


def _pass_seconds(reading: Sequence[float], launch: float, least: float) -> float:
    return max(len(reading) * launch, _working(reading, least))


def _best_gamma(alpha: float, c: float, step: float, overhead: float, shortest: int = 0) -> int:
    def speedup(gamma: int) -> float:
        if gamma == 0:
            return 1.0
        tokens = theory.expected_tokens(alpha, gamma)
        return theory.corrected_improvement(tokens, gamma, c, 1 + step * gamma, overhead)

    return max(range(shortest, MAX_GAMMA + 1), key=speedup)


_working = lambda reading, least: sum(max(least, seconds) for seconds in reading)
check_pass_seconds = Check(
    "fn(reading, launch, least) → seconds of a pass of dependent kernels. reading: seconds that each"
    " kernel's bytes take. launch: seconds of the host per kernel, 0 in a captured graph. least: the"
    " shortest time of any kernel.",
    _pass_seconds,
    [  # seconds of reading, kernel by kernel; of a launch; of the shortest kernel
        ([7.0, 7.0, 7.0, 7.0], 5.0, 2.0),
        ([0.5, 0.5, 0.5], 5.0, 2.0),
        ([0.5, 0.5, 0.5], 0.0, 2.0),
        ([0.5, 9.0, 1.0, 6.0], 1.0, 2.0),
        ([4.0, 3.0], 0.0, 1.0),
    ],
    {
        "a kernel that reads next to nothing still takes `least`: a graph removes the launches, not"
        " the kernels.": {"least": 0.0},
        "each kernel takes the longer of `least` and its own reading: compare kernel by kernel,"
        " then add.": lambda reading, launch, least: max(
            len(reading) * launch, len(reading) * least, sum(reading)
        ),
        "`least` is a floor, not an extra:"
        " a kernel that reads for longer has passed it.": lambda reading, launch, least: max(
            len(reading) * launch, sum(reading) + len(reading) * least
        ),
        "launching and working overlap: the host is ahead of the device, so do not add"
        " them.": lambda reading, launch, least: len(reading) * launch + _working(reading, least),
        "the pass ends with the slower of the two,"
        " not with the faster.": lambda reading, launch, least: min(
            len(reading) * launch, _working(reading, least)
        ),
        "the launches are missing.": {"launch": 0.0},
        "the work is missing: a large model is not bound by"
        " its launches.": lambda reading, launch, least: len(reading) * launch,
    },
)


check_pair_bytes = Check(
    "fn(target, draft, width, target_cache, draft_cache, context) → bytes of both models' weights"
    " and of their caches, which are given in numbers per token",
    lambda t, d, w, tc, dc, n: w * (t + d + n * (tc + dc)),
    [
        (7_615_616_512, 494_032_768, 2, 28_672, 6_144, 4096),
        (10**9, 10**8, 4, 1000, 100, 10),
        (10**9, 10**8, 2, 0, 0, 1),
    ],
    {
        "the caches are missing.": {"n": 0},
        "the draft has a cache too.": {"dc": 0},
        "the caches hold `context` tokens each, not one.": {"n": 1},
        "the caches' numbers take `width` bytes each as well.": lambda t, d, w, tc, dc, n: (
            w * (t + d) + n * (tc + dc)
        ),
        "those are numbers; each takes `width` bytes.": {"w": 1},
    },
)


check_best_gamma = Check(
    "fn(alpha, c, step, overhead) → the γ ≤ 16 of the greatest corrected speedup, with T(k)/T(1) ="
    " 1 + step·(k − 1); 0 if plain decoding is as fast",
    _best_gamma,
    [
        (0.8, 0.1, 0.02, 0.05),
        (0.8, 0.1, 0.1, 0.0),
        (0.6, 0.3, 0.15, 0.1),
        (0.8, 0.1, 0.05, 0.8),
        (0.95, 0.02, 0.0, 0.0),
        (0.5, 0.5, 0.0, 0.0),
    ],
    {
        "that is the plain formula's: with a dear T(k) the best draft"
        " is shorter.": lambda a, c, s, o: theory.optimal_gamma(a, c, MAX_GAMMA)[0],
        "the overhead o is missing from the round.": {"overhead": 0.0},
        "where no draft length beats plain decoding, the answer is 0.": {"shortest": 1},
    },
)


check_over_fastest = Check(
    "fn(plain, plain_graphs, drafted, drafted_graphs) → speedup",
    lambda p, g, d, b: max(d, b) / max(p, g),
    [  # tokens per second: plain one by one, plain in graphs, drafted one by one, in graphs
        (250.0, 950.0, 340.0, 1700.0),
        (100.0, 90.0, 150.0, 80.0),
        (40.0, 160.0, 60.0, 120.0),
    ],
    {
        "that is over plain decoding one by one:"
        " graphs alone have made it faster.": lambda p, g, d, b: max(d, b) / p,
        "compare rates, not ratios:"
        " the reader can choose the fastest plain decoding.": lambda p, g, d, b: max(d / p, b / g),
        "graphs are not always faster:"
        " take the faster of the two, on both sides.": lambda p, g, d, b: b / g,
    },
)


def _both_costs(
    target: Sequence[float], draft: Sequence[float], launch: float, least: float
) -> list[float]:
    seconds = lambda reading, each: _pass_seconds(reading, each, least)
    return [seconds(draft, each) / seconds(target, each) for each in (launch, 0.0)]


check_both_costs = Check(
    "fn(target, draft, launch, least) → (c one by one, c in graphs)",
    _both_costs,
    [  # seconds of reading of the target's and the draft's operations, a launch, the shortest
        ([9.0, 9.0, 9.0], [0.5, 0.5], 5.0, 2.0),
        ([30.0, 30.0], [1.0, 1.0, 1.0, 1.0], 10.0, 2.0),
        ([8.0] * 4, [0.4] * 4, 1.0, 0.5),
    ],
    {
        "that is the ratio of the bytes: no operation is shorter than `least`.": {
            "launch": 0.0,
            "least": 0.0,
        },
        "the order is: one by one, then in graphs.": lambda *case: _both_costs(*case)[::-1],
        "one by one the pass waits for launches only if they take longer than the"
        " work.": lambda t, d, launch, least: (
            len(d) / len(t),
            _both_costs(t, d, launch, least)[1],
        ),
    },
)


_tests = lambda u, p, q: [x < a / b for x, a, b in zip(u, p, q)]
check_accepted = Check(
    "fn(uniforms, p, q) → accepted drafts",
    lambda *case: leading(_tests(*case)),
    [  # uniforms, p and q of the drafted tokens
        ([0.2, 0.9, 0.1], [0.5, 0.2, 0.8], [0.5, 0.4, 0.4]),
        ([0.3, 0.4], [0.4, 0.6], [0.8, 0.6]),
        ([0.9, 0.1], [0.1, 0.6], [0.8, 0.6]),
        ([0.5], [0.3], [0.6]),
    ],
    {
        "that counts all passed tests; a draft after the first failure is lost.": lambda *case: sum(
            _tests(*case)
        ),
        "the drafts before the first failure stay.": lambda u, p, q: (
            int(all(_tests(u, p, q))) * len(p)
        ),
        "the test is u < p ÷ q: at equality the draft is rejected.": lambda u, p, q: leading(
            x <= a / b for x, a, b in zip(u, p, q)
        ),
    },
)
