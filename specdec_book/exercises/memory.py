"""Checks for the exercises of chapter 2: bytes, operations, and which of the two a pass waits for."""

from specdec_book.exercises.check import Check
from specdec_lite import roofline


def _free_tokens(bytes_per_weight: float, bandwidth: float, throughput: float, batch: int) -> int:
    return int(roofline.ridge_tokens(bytes_per_weight, bandwidth, throughput) / batch + 1e-9)


check_intensity = Check(
    "fn(bytes_per_weight, tokens, batch) → operations per byte of weights read",
    roofline.arithmetic_intensity,
    [(2, 1, 1), (4, 1, 1), (2, 8, 1), (1, 5, 4), (0.5, 3, 16)],
    {
        "half of it: each weight is used for a multiplication *and* an addition, which are two"
        " operations.": lambda width, tokens, batch: tokens * batch / width,
        "tokens and batch are missing:"
        " one reading of a weight serves every position of the pass.": {"tokens": 1, "batch": 1},
        "the batch is missing: a weight that was read serves every sequence.": {"batch": 1},
        "operations *per* byte: wide weights lower it, so divide.": lambda width, tokens, batch: (
            2 * tokens * batch * width
        ),
        "that is bytes per operation; intensity is its inverse.": lambda width, tokens, batch: (
            width / (2 * tokens * batch)
        ),
    },
)


check_free_tokens = Check(
    "fn(bytes_per_weight, bandwidth, throughput, batch) → tokens per sequence that take no more"
    " time than one token, in the roofline's model",
    _free_tokens,
    [
        (2, 2e12, 312e12, 1),
        (2, 2e12, 312e12, 8),
        (1, 1.2e12, 275e12, 4),
        (2, 2e10, 3e10, 16),
        (4, 2e10, 7e10, 1),
    ],
    {
        "that is positions per pass; a batch shares them, so divide by it before rounding down.": {
            "batch": 1
        },
        "tokens are whole: round down.": lambda width, bandwidth, throughput, batch: (
            throughput / bandwidth * width / 2 / batch
        ),
        "that is the ridge in operations per byte; convert it to tokens with bytes_per_weight"
        " / 2.": lambda width, bandwidth, throughput, batch: int(
            throughput / bandwidth / batch + 1e-9
        ),
        "where even one token waits for arithmetic, none is free: answer 0.": lambda *case: max(
            1, _free_tokens(*case)
        ),
        "one too many: that pass already waits for arithmetic.": 1,
    },
)


check_crossover_context = Check(
    "fn(parameters, bytes_per_weight, cache_bytes_per_token) → context length at which the cache"
    " is as large as the weights",
    lambda n, width, cache: n * width / cache,
    [(70e9, 2, 320e3), (10e6, 2, 10e3), (7e9, 0.5, 512e3)],
    {
        "the weights' size in bytes is parameters × bytes_per_weight.": {"width": 1},
        "the other way round: how many tokens' worth of cache fit into the"
        " weights' bytes?": lambda n, width, cache: cache / (n * width),
        "no factor 2 here: bytes against bytes;"
        " the operations do not enter.": lambda n, width, cache: 2 * n * width / cache,
    },
)
