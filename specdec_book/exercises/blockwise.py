"""Checks for the exercises on blockwise parallel decoding: the accepted block, counted passes, the
expected block size."""

import math
from collections.abc import Sequence

from specdec_book.exercises.check import Check, leading

_agreeing = lambda predicted, greedy: leading(a == b for a, b in zip(predicted, greedy))
check_accepted_block = Check(
    "fn(predicted, greedy) → number of tokens of the predicted block that are accepted. predicted:"
    " k tokens, the first by the target's own head. greedy: k tokens; greedy[i] is the target's"
    " argmax after predicted[i].",
    lambda predicted, greedy: 1 + _agreeing(predicted[1:], greedy),
    [
        ([5, 7, 9], [7, 9, 4]),
        ([5, 7, 9], [7, 8, 9]),
        ([5, 7, 9], [3, 9, 4]),
        ([5], [2]),
        ([4, 4, 6, 4], [4, 1, 4, 4]),
    ],
    {
        "the block's first token is the target's own, and always stays: a block never has fewer"
        " than one token.": -1,
        "that counts every token that agrees. One behind a disagreement was predicted after a token"
        " that is gone: stop at the"
        " first.": lambda predicted, greedy: 1 + sum(a == b for a, b in zip(predicted[1:], greedy)),
        "greedy[i] follows predicted[i], so it is predicted[i + 1] that it must equal.": _agreeing,
        "the target's own next token begins the next block; here it is not counted.": 1,
    },
)


def _passes(m: int, k: int, rounded=math.ceil, apart: int = 2, first: int = 1) -> tuple:
    return apart * rounded(m / k), rounded(m / k) + first


check_passes = Check(
    "fn(m, k) → (passes with one predict and one verify pass per block, passes with both merged)"
    " for m tokens, if every prediction is right",
    _passes,
    [(60, 4), (60, 8), (61, 4), (7, 1), (3, 8)],
    {
        "merged, the very first prediction still needs a pass of its own: one more.": {"first": 0},
        "a last, shorter block takes a whole pass too: round m/k up.": {"rounded": float},
        "a last, shorter block takes a whole pass too: round m/k up, not down.": {"rounded": int},
        "two passes a block: one predicts, one verifies.": {"apart": 1},
    },
)


def _expected(chances: Sequence[float]) -> float:
    return 1 + sum(math.prod(chances[: i + 1]) for i in range(len(chances)))


check_expected_block = Check(
    "fn(chances) → expected accepted block size. chances[i]: probability that extra head i is"
    " right, given that all earlier heads are.",
    _expected,
    [([0.5],), ([0.5, 0.5],), ([0.6, 0.3, 0.2],), ([1.0, 1.0, 1.0],), ([],)],
    {
        "head i only counts when every head before it was right too:"
        " multiply, then add.": lambda chances: 1 + sum(chances),
        "the block's first token is the target's own and always stays: add 1.": -1,
        "that is the chance of the whole block. Shorter prefixes count as well: one term for every"
        " length.": lambda chances: 1 + math.prod(chances) * bool(chances),
    },
)
