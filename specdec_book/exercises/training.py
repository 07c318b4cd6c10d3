"""Checks for the exercises on training drafts: the loss that acceptance asks for, the positions a
draft learns from, the value of blocks of several tokens per pass."""

import math
from collections.abc import Callable, Sequence

from specdec_book.exercises.check import Mistake, Outcome, check

LAWS = [
    ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
    ([0.7, 0.2, 0.1], [0.6, 0.3, 0.1]),
    ([0.1, 0.9], [0.9, 0.1]),
]
ROUNDS = [
    (4, [(2, True), (3, False), (0, True)]),
    (1, [(0, True), (0, True)]),
    (7, [(3, False), (1, True)]),
]
BLOCKS = [(0.8, 0.5, 2, 2, 0.1), (0.75, 0.4, 3, 2, 0.25), (0.7, 0.7, 1, 4, 0.1)]


def _variation(p: Sequence[float], q: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(p, q)) / 2


def check_variation(fn: Callable[[list[float], list[float]], float]) -> Outcome:
    """Check fn(p, q) → the rate at which drafts from q are rejected."""
    return check(
        fn,
        _variation,
        LAWS,
        [
            Mistake(
                lambda p, q: 2 * _variation(p, q),
                "every difference is counted twice: once where q is too large and once where it is"
                " too small. So halve it.",
            ),
            Mistake(lambda p, q: 1 - _variation(p, q), "that is α itself. The loss is 1 − α."),
            Mistake(
                lambda p, q: sum(a * math.log(a / b) for a, b in zip(p, q)),
                "that is KL(p‖q). It bounds the rate of rejection, but it is a different number.",
            ),
        ],
    )


def _places(prompt: int, rounds: Sequence, bonus: bool = False, shift: int = 0) -> list[int]:
    """Return the number of tokens before each rejected draft. bonus: count rounds without a
    rejection too."""
    places, length = [], prompt
    for accepted, refused in rounds:
        if refused or bonus:
            places.append(length + accepted + shift)
        length += accepted + 1
    return places


def check_places(fn: Callable[[int, list], Sequence[int]]) -> Outcome:
    """Check fn(prompt, rounds) → for each rejected draft, the number of tokens before it."""
    return check(
        fn,
        _places,
        ROUNDS,
        [
            Mistake(
                lambda prompt, rounds: _places(prompt, rounds, shift=1),
                "one too far: the recovered token is at that position, and the row after it predicts"
                " the token that follows.",
            ),
            Mistake(
                lambda prompt, rounds: _places(prompt, rounds, bonus=True),
                "a round that accepts all drafts rejects nothing. Its last token is a bonus token.",
            ),
            Mistake(
                lambda prompt, rounds: [prompt + k for k, refused in rounds if refused],
                "the text grows. Every round adds its accepted tokens and one more.",
            ),
        ],
    )


def _blocks(alpha: float, beta: float, k: int, passes: int, c: float, anew: bool = True) -> float:
    """Return the speedup of a draft that drafts in blocks. anew: the first token of every block has
    seen all earlier tokens, not only that of the first block."""
    expected, chance = 1.0, 1.0
    for place in range(k * passes):
        chance *= alpha if place == 0 or (anew and place % k == 0) else beta
        expected += chance
    return expected / (1 + passes * c)


def check_blocks(fn: Callable[[float, float, int, int, float], float]) -> Outcome:
    """Check fn(alpha, beta, k, passes, c) → speedup of a draft that drafts k tokens with each of
    its passes.

    A block's first token is accepted at rate alpha, its others at rate beta, and a pass costs c.
    Source: Gao et al. 2024, arXiv 2412.12639 (Falcon's blocks).
    """
    return check(
        fn,
        _blocks,
        BLOCKS,
        [
            Mistake(
                lambda alpha, beta, k, passes, c: (
                    _blocks(alpha, beta, k, passes, c) * (1 + passes * c) / (1 + k * passes * c)
                ),
                "a pass drafts k tokens and is paid once. The cost is passes · c, not c per token.",
            ),
            Mistake(
                lambda alpha, beta, k, passes, c: (
                    _blocks(alpha, beta, k, passes, c) - 1 / (1 + passes * c)
                ),
                "every round emits one token more than it accepts.",
            ),
            Mistake(
                lambda alpha, beta, k, passes, c: _blocks(beta, alpha, k, passes, c),
                "the rates are exchanged. The first token of a block sees all tokens before it.",
            ),
            Mistake(
                lambda alpha, beta, k, passes, c: _blocks(alpha, beta, k, passes, c, False),
                "every block begins anew with a token that sees all tokens before it.",
            ),
        ],
    )
