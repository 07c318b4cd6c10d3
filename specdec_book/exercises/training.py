"""Checks for the exercises on training drafts and on drafting in one pass: losses, the positions a
draft learns from, masks, the best choice among k tokens, blocks of several tokens per pass."""

import math
from collections.abc import Sequence

from specdec_book.exercises.check import Check, leading
from specdec_lite.theory import total_variation

LAWS = [
    ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
    ([0.7, 0.2, 0.1], [0.6, 0.3, 0.1]),
    ([0.1, 0.9], [0.9, 0.1]),
]


check_variation = Check(
    "fn(p, q) → the rate at which drafts from q are rejected",
    total_variation,
    LAWS,
    {
        "every difference is counted twice: once where q is too large and once where it is too"
        " small. So halve it.": lambda p, q: 2 * total_variation(p, q),
        "that is α itself. The loss is 1 − α.": lambda p, q: 1 - total_variation(p, q),
        "that is KL(p‖q). It bounds the rate of rejection, but it is a"
        " different number.": lambda p, q: sum(a * math.log(a / b) for a, b in zip(p, q)),
    },
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


check_places = Check(
    "fn(prompt, rounds) → for each rejected draft, the number of tokens before it",
    _places,
    [
        (4, [(2, True), (3, False), (0, True)]),
        (1, [(0, True), (0, True)]),
        (7, [(3, False), (1, True)]),
    ],
    {
        "one too far: the recovered token is at that position, and the row after it predicts the"
        " token that follows.": {"shift": 1},
        "a round that accepts all drafts rejects nothing. Its last token is a bonus token.": {
            "bonus": True
        },
        "the text grows. Every round adds its accepted tokens and"
        " one more.": lambda prompt, rounds: [prompt + k for k, refused in rounds if refused],
    },
)


def _kl(p: Sequence[float], q: Sequence[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q) if a)


def _hybrid(
    p: Sequence[float], q: Sequence[float], sign: float = -1.0, reverse: bool = False
) -> float:
    """Return λ KL + (1 − λ) TV with λ = exp(3 · sign · α)."""
    kl = _kl(q, p) if reverse else _kl(p, q)
    share = math.exp(3 * sign * (1 - total_variation(p, q)))
    return share * kl + (1 - share) * total_variation(p, q)


check_hybrid = Check(
    "fn(p, q) → λ KL(p‖q) + (1 − λ) TV, with λ = exp(−3α)",
    _hybrid,
    LAWS,
    {
        "λ is the weight of the divergence: it must be near 1 while α is small.": lambda p, q: (
            total_variation(p, q) + _kl(p, q) - _hybrid(p, q)
        ),
        "mind the sign: λ = exp(−3α) is at most 1.": {"sign": 1.0},
        "that uses KL(q‖p). The hybrid begins as the forward divergence, KL(p‖q).": {
            "reverse": True
        },
    },
)


check_fed = Check(
    "fn(fresh, gamma, mask) → the tokens of PARD's pass: the new text and the masks",
    lambda fresh, gamma, mask: [*fresh, *[mask] * (gamma - 1)],
    [([5, 7], 4, 9), ([3], 1, 9), ([2, 2, 8], 2, 9)],
    {
        "one mask too many: the last token of the text predicts the first"
        " draft itself.": lambda fresh, gamma, mask: [*fresh, *[mask] * gamma],
        "the pass also feeds the text that the cache lacks.": lambda fresh, gamma, mask: (
            [mask] * (gamma - 1)
        ),
    },
)


def _kept(ranks: Sequence[Sequence[int]], k: int) -> float:
    return sum(leading(rank < k for rank in row) for row in ranks) / len(ranks)


check_kept = Check(
    "fn(ranks, k) → drafted tokens per round that the best choice among k would keep",
    _kept,
    [([[0, 3, 2], [1, 0, 5]], 1), ([[0, 3, 0], [1, 0, 5]], 4), ([[2, 0], [0, 0], [9, 0]], 2)],
    {
        "stop at the first miss: later tokens of the round are rejected"
        " with it.": lambda ranks, k: sum(rank < k for row in ranks for rank in row) / len(ranks),
        "rank 0 is the likeliest token,"
        " so the k likeliest have the ranks below k.": lambda ranks, k: _kept(ranks, k + 1),
    },
)


def _blocks(alpha: float, beta: float, k: int, passes: int, c: float, anew: bool = True) -> float:
    """Return the speedup of a draft that drafts in blocks. anew: the first token of every block has
    seen all earlier tokens, not only that of the first block."""
    expected, chance = 1.0, 1.0
    for place in range(k * passes):
        chance *= alpha if place == 0 or (anew and place % k == 0) else beta
        expected += chance
    return expected / (1 + passes * c)


check_blocks = Check(
    "fn(alpha, beta, k, passes, c) → speedup of a draft that drafts k tokens with each of its"
    " passes. A block's first token is accepted at rate alpha, its others at rate beta, and a pass"
    " costs c. Source: Gao et al. 2024, arXiv 2412.12639 (Falcon's blocks).",
    _blocks,
    [(0.8, 0.5, 2, 2, 0.1), (0.75, 0.4, 3, 2, 0.25), (0.7, 0.7, 1, 4, 0.1)],
    {
        "a pass drafts k tokens and is paid once."
        " The cost is passes · c, not c per token.": lambda alpha, beta, k, passes, c: (
            _blocks(alpha, beta, k, passes, c) * (1 + passes * c) / (1 + k * passes * c)
        ),
        "every round emits one token more than it accepts.": lambda alpha, beta, k, passes, c: (
            _blocks(alpha, beta, k, passes, c) - 1 / (1 + passes * c)
        ),
        "the rates are exchanged. The first token of a block sees all tokens"
        " before it.": lambda alpha, beta, k, passes, c: _blocks(beta, alpha, k, passes, c),
        "every block begins anew with a token that sees all tokens before it.": {"anew": False},
    },
)
