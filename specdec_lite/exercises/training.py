"""Checks for the exercises on training drafts. How a check works: `exercises.check.check`.

What lives here: the loss that acceptance asks for, the places a draft learns from, what is written
when another row is handed over than was drawn from.
"""

import math
from collections.abc import Callable, Sequence

from specdec_lite.exercises.check import Mistake, Outcome, check

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
ROWS = [
    ([0.9, 0.1], [0.8, 0.2], [0.5, 0.5]),
    ([0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]),
    ([0.5, 0.5], [0.25, 0.75], [0.5, 0.5]),
]


def _variation(p: Sequence[float], q: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(p, q)) / 2


def check_variation(fn: Callable[[list[float], list[float]], float]) -> Outcome:
    """fn(p, q) → the rate at which drafts from q are refused."""
    return check(
        fn,
        _variation,
        LAWS,
        [
            Mistake(
                lambda p, q: 2 * _variation(p, q),
                "every difference is counted twice, once where q has too much and once where it"
                " has too little: halve it.",
            ),
            Mistake(
                lambda p, q: 1 - _variation(p, q), "that is α itself; the loss is what is missing."
            ),
            Mistake(
                lambda p, q: sum(a * math.log(a / b) for a, b in zip(p, q)),
                "that is KL(p‖q). The rate of refusal is bounded by it, and is another thing.",
            ),
        ],
    )


def _places(prompt: int, rounds: Sequence, bonus: bool = False, shift: int = 0) -> list[int]:
    """How many tokens stand before each refused draft. bonus: rounds without a refusal too."""
    places, length = [], prompt
    for accepted, refused in rounds:
        if refused or bonus:
            places.append(length + accepted + shift)
        length += accepted + 1
    return places


def check_places(fn: Callable[[int, list], Sequence[int]]) -> Outcome:
    """fn(prompt, rounds) → for each refused draft, how many tokens stand before it."""
    return check(
        fn,
        _places,
        ROUNDS,
        [
            Mistake(
                lambda prompt, rounds: _places(prompt, rounds, shift=1),
                "one too far: the token that came instead stands there itself, and the row behind"
                " it speaks of the token after it.",
            ),
            Mistake(
                lambda prompt, rounds: _places(prompt, rounds, bonus=True),
                "a round whose drafts were all kept refused nothing: its last token is a bonus.",
            ),
            Mistake(
                lambda prompt, rounds: [prompt + k for k, refused in rounds if refused],
                "the text grows: every round adds its accepted tokens and one more.",
            ),
        ],
    )


def _written(
    p: Sequence[float], drawn: Sequence[float], handed: Sequence[float], again: bool = False
) -> list[float]:
    """again: a refused token is drawn anew from p."""
    kept = [d * min(1.0, a / h) for a, d, h in zip(p, drawn, handed)]
    missing = [max(0.0, a - h) for a, h in zip(p, handed)]
    total = sum(missing)
    rest = [m / total for m in missing] if total and not again else list(p)
    return [k + (1 - sum(kept)) * r for k, r in zip(kept, rest)]


def check_written(fn: Callable[[list[float], list[float], list[float]], Sequence]) -> Outcome:
    """fn(p, drawn, handed) → the law of the token that is written, when a token is drawn from
    `drawn` and the rule is handed `handed`.
    """
    return check(
        fn,
        _written,
        ROWS,
        [
            Mistake(
                lambda p, drawn, handed: list(p),
                "that is what is written when both rows are one. Go through the two ways in which"
                " a token can be written: kept, or recovered.",
            ),
            Mistake(
                lambda p, drawn, handed: [d * min(1.0, a / h) for a, d, h in zip(p, drawn, handed)],
                "those are the kept tokens alone, and do not sum to 1: something is recovered in"
                " the rest of the cases.",
            ),
            Mistake(
                lambda p, drawn, handed: _written(p, drawn, handed, again=True),
                "after a refusal nothing is drawn from p itself: what is recovered comes from"
                " where p exceeds the row that was handed over.",
            ),
        ],
    )
