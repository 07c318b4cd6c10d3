"""Checks for the exercises of chapter 2: bytes, operations, and which of the two a pass waits for."""

from collections.abc import Callable

from specdec_book.exercises.check import Mistake, Outcome, check
from specdec_lite import roofline

WIDTHS_TOKENS_BATCHES = [(2, 1, 1), (4, 1, 1), (2, 8, 1), (1, 5, 4), (0.5, 3, 16)]
MACHINES = [
    (2, 2e12, 312e12, 1),
    (2, 2e12, 312e12, 8),
    (1, 1.2e12, 275e12, 4),
    (2, 2e10, 3e10, 16),
    (4, 2e10, 7e10, 1),
]
MODELS = [(70e9, 2, 320e3), (10e6, 2, 10e3), (7e9, 0.5, 512e3)]


def free_tokens(bytes_per_weight: float, bandwidth: float, throughput: float, batch: int) -> int:
    """Return the most tokens of each of `batch` sequences that one pass can take without waiting
    for arithmetic; 0 if not even one."""
    return int(roofline.ridge_tokens(bytes_per_weight, bandwidth, throughput) / batch + 1e-9)


def crossover_context(
    parameters: float, bytes_per_weight: float, cache_bytes_per_token: float
) -> float:
    """Return the context length at which one sequence's key/value cache is as large as the weights."""
    return parameters * bytes_per_weight / cache_bytes_per_token


def check_intensity(fn: Callable[[float, int, int], float]) -> Outcome:
    """Check fn(bytes_per_weight, tokens, batch) → operations per byte of weights read."""
    return check(
        fn,
        roofline.arithmetic_intensity,
        WIDTHS_TOKENS_BATCHES,
        [
            Mistake(
                lambda width, tokens, batch: tokens * batch / width,
                "half of it: each weight is used for a multiplication *and* an addition, which are"
                " two operations.",
            ),
            Mistake(
                lambda width, tokens, batch: 2 / width,
                "tokens and batch are missing: one reading of a weight serves every position of the"
                " pass.",
            ),
            Mistake(
                lambda width, tokens, batch: 2 * tokens / width,
                "the batch is missing: a weight that was read serves every sequence.",
            ),
            Mistake(
                lambda width, tokens, batch: 2 * tokens * batch * width,
                "operations *per* byte: wide weights lower it, so divide.",
            ),
            Mistake(
                lambda width, tokens, batch: width / (2 * tokens * batch),
                "that is bytes per operation; intensity is its inverse.",
            ),
        ],
    )


def check_free_tokens(fn: Callable[[float, float, float, int], int]) -> Outcome:
    """Check fn(bytes_per_weight, bandwidth, throughput, batch) → tokens per sequence that take no
    more time than one token, in the roofline's model."""
    per_pass = lambda width, bandwidth, throughput, batch: free_tokens(
        width, bandwidth, throughput, 1
    )
    return check(
        fn,
        free_tokens,
        MACHINES,
        [
            Mistake(
                per_pass,
                "that is positions per pass; a batch shares them, so divide by it before rounding"
                " down.",
            ),
            Mistake(
                lambda width, bandwidth, throughput, batch: (
                    throughput / bandwidth * width / 2 / batch
                ),
                "tokens are whole: round down.",
            ),
            Mistake(
                lambda width, bandwidth, throughput, batch: int(
                    throughput / bandwidth / batch + 1e-9
                ),
                "that is the ridge in operations per byte; convert it to tokens with"
                " bytes_per_weight / 2.",
            ),
            Mistake(
                lambda *case: max(1, free_tokens(*case)),
                "where even one token waits for arithmetic, none is free: answer 0.",
            ),
            Mistake(
                lambda *case: free_tokens(*case) + 1,
                "one too many: that pass already waits for arithmetic.",
            ),
        ],
    )


def check_crossover_context(fn: Callable[[float, float, float], float]) -> Outcome:
    """Check fn(parameters, bytes_per_weight, cache_bytes_per_token) → context length at which the
    cache is as large as the weights."""
    return check(
        fn,
        crossover_context,
        MODELS,
        [
            Mistake(
                lambda n, width, cache: n / cache,
                "the weights' size in bytes is parameters × bytes_per_weight.",
            ),
            Mistake(
                lambda n, width, cache: cache / (n * width),
                "the other way round: how many tokens' worth of cache fit into the weights' bytes?",
            ),
            Mistake(
                lambda n, width, cache: 2 * n * width / cache,
                "no factor 2 here: bytes against bytes; the operations do not enter.",
            ),
        ],
    )
