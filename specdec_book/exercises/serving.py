"""Checks for the exercises on batches and servers: rows, γ under load, schedules, masks of an automaton."""

from collections.abc import Sequence

import numpy as np

from specdec_book.exercises.check import Check, leading
from specdec_lite.scheduling import within

MOVES = [[1, -1, -1, -1], [-1, -1, 2, 2], [-1, 3, 2, 2], [-1, -1, -1, -1]]
"""Of the states (begin, in, digits, end) by the tokens {, }, 0, 1; −1: not allowed."""
LOOP = [[1, -1], [0, 1]]
"""Two states that repeat, so that the last state, which −1 would name, allows tokens."""
PATHS = [(MOVES, 0, [0, 2, 1]), (MOVES, 1, [3, 3]), (MOVES, 2, [1]), (MOVES, 0, [0, 1, 2])]
PATHS += [(LOOP, 0, [1, 0]), (LOOP, 1, [0])]
tokens = lambda alpha, gamma: sum(alpha**i for i in range(gamma + 1))


def _masks(
    moves: Sequence[Sequence[int]], state: int, drafted: Sequence[int], guarded: bool = True
) -> list[list[float]]:
    rows, nothing = [], [-1] * len(moves[0])
    for token in [*drafted, 0]:
        allowed = moves[state] if state >= 0 or not guarded else nothing
        rows.append([float(move >= 0) for move in allowed])
        state = allowed[token]
    return rows


check_minimum_tokens = Check(
    "fn(alpha, gamma, batch) → tokens per row and pass if all rows are cut to the shortest",
    lambda alpha, gamma, batch: tokens(alpha**batch, gamma),
    [(0.8, 4, 1), (0.8, 4, 2), (0.8, 4, 8), (0.6, 2, 4), (1.0, 3, 5), (0.0, 3, 2)],
    {
        "that is a row with a length of its own:"
        " a position counts only if every row accepted it.": {"batch": 1},
        "the target's own token is missing: even where nothing is accepted a pass emits one.": -1,
        "rows accept independently: multiply their probabilities,"
        " do not divide.": lambda alpha, gamma, batch: tokens(alpha / batch, gamma),
        "each row is counted for itself; what shrinks is the probability that a"
        " position counts.": lambda alpha, gamma, batch: tokens(alpha, gamma) / batch,
    },
)


def _positions(lengths: Sequence[int], drafts: Sequence[int], last: int = 1, at_end: bool = True):
    widest = last + max(drafts)
    rows = [
        [length + i for i in range(last + count)]
        for length, count in zip(lengths, drafts, strict=True)
    ]
    padding = [[0] * (widest - len(row)) for row in rows]
    return [row + zeros if at_end else zeros + row for row, zeros in zip(rows, padding)]


check_positions = Check(
    "fn(lengths, drafts) → positions of the tokens that each row is fed, padded with 0",
    _positions,
    [  # tokens in each row's cache, and the drafted tokens that each row is fed
        ([10, 4], [3, 1]),
        ([7, 7, 2], [0, 2, 2]),
        ([5], [2]),
        ([3, 20, 8], [4, 0, 1]),
    ],
    {
        "those are the positions of the longest row: each row continues its"
        " own text.": lambda lengths, drafts: _positions([max(lengths)] * len(lengths), drafts),
        "the last token of the text is fed too, before the drafted ones.": {"last": 0},
        "positions begin at 0: a cache of n tokens holds positions 0 to n"
        " − 1.": lambda lengths, drafts: _positions([n + 1 for n in lengths], drafts),
        "pad at the end, so that the first column holds every row's last token.": {"at_end": False},
    },
)


check_running = Check(
    "fn(rate, tokens, per_round, seconds) → requests that run at a time",
    lambda rate, tokens, per_round, seconds: rate * tokens / per_round * seconds,
    [(2.0, 100, 1.0, 0.03), (2.0, 100, 3.36, 0.04), (0.5, 400, 2.0, 0.02), (10.0, 40, 1.5, 0.05)],
    {
        "that is plain decoding: with drafts a round emits per_round tokens.": {"per_round": 1},
        "tokens ÷ per_round is a number of rounds; each of them takes some seconds.": {
            "seconds": 1
        },
        "multiply the rounds by their seconds.": lambda rate, tokens, per_round, seconds: (
            rate * tokens / seconds / per_round
        ),
    },
)


def _switch_off(alpha: float, batches, plain, drafted, bonus: float = 1.0) -> int:
    rows = zip(batches, plain, drafted, strict=True)
    return next((b for b, one, two in rows if (bonus + alpha) / two < 1 / one), 0)


check_switch_off = Check(
    "fn(alpha, batches, plain, drafted) → first batch at which drafting loses; 0: none",
    _switch_off,
    [  # α, batches, and the seconds of plain passes and of rounds with γ = 1
        (0.7, [1, 8, 64], [10.0, 10.5, 14.0], [12.0, 13.0, 26.0]),
        (0.9, [1, 2], [1.0, 1.0], [1.0, 1.2]),
        (0.5, [1, 2], [1.0, 1.0], [1.5, 1.2]),
        (0.5, [1, 8, 32, 128], [5.0, 5.0, 6.0, 12.0], [6.0, 7.0, 8.5, 20.0]),
    ],
    {
        "a round emits 1 + α tokens: the target's own token is missing.": {"bonus": 0.0},
        "a round takes longer, but emits more: compare tokens per second.": {"alpha": 0.0},
        "return the batch, not its number in the list.": lambda alpha, batches, plain, drafted: (
            batches.index(_switch_off(alpha, batches, plain, drafted))
            if _switch_off(alpha, batches, plain, drafted)
            else 0
        ),
    },
)


check_chosen_gamma = Check(
    "fn(alpha, seconds) → the γ with the most expected tokens per second, the smaller one of equals."
    " seconds[γ]: duration of a round with γ drafts.",
    lambda alpha, seconds: max(range(len(seconds)), key=lambda g: tokens(alpha, g) / seconds[g]),
    [  # α, and the seconds of a round with γ = 0, 1, 2 …
        (0.8, [1.0, 1.1, 1.2, 1.3, 1.4]),
        (0.8, [1.0, 1.9, 2.8, 3.7]),
        (0.3, [1.0, 1.2, 1.3, 1.4]),
        (0.9, [2.0, 2.0, 2.0, 9.0]),
        (0.0, [1.0, 1.1]),
    ],
    {
        "that is the most tokens a round;"
        " divide them by the round's seconds.": lambda alpha, seconds: len(seconds) - 1,
        "that has the highest accepted ÷ drafted,"
        " at any load: the rate knows no seconds.": lambda alpha, seconds: 1,
        "γ = 0 is a choice too: under load it is often the right one.": lambda alpha, seconds: (
            1 + max(range(len(seconds) - 1), key=lambda g: tokens(alpha, g + 1) / seconds[g + 1])
        ),
    },
)


check_survivals = Check(
    "fn(chances) → the probability of each drafted token to survive",
    lambda chances: np.cumprod(chances).tolist(),
    [([0.9, 0.8, 0.5],), ([1.0, 0.5, 1.0, 0.25],), ([0.3],), ([0.7, 0.0, 0.9],)],
    {
        "a token survives only if all tokens before it were accepted"
        " too: multiply.": lambda chances: list(chances),
        "the least of the probabilities is too much: independent tests multiply.": lambda chances: (
            np.minimum.accumulate(chances).tolist()
        ),
    },
)


def _speeds(
    chances: Sequence[float], times: Sequence[float], own: float = 1.0, product: bool = True
) -> np.ndarray:
    alive = np.cumprod(chances) if product else np.asarray(chances)
    return (own + np.concatenate(([0.0], np.cumsum(alive)))) / np.asarray(times)


def _admitted(chances: Sequence[float], times: Sequence[float], **options) -> int:
    speeds = _speeds(chances, times, **options)
    return leading(speeds[1:] > speeds[:-1])


check_admitted = Check(
    "fn(chances, times) → number of drafted tokens to verify. One more token is verified as long"
    " as it raises the expected tokens per time, and no further.",
    _admitted,
    [
        ([0.8, 1.0], [1.0, 2.0, 2.3]),
        ([0.9, 0.8, 0.7], [1.0, 1.1, 1.2, 1.3]),
        ([0.9, 0.3, 0.9, 0.9], [1.0, 1.2, 1.5, 1.6, 1.7]),
        ([0.6, 0.9, 0.9, 0.9], [1.0, 1.7, 1.75, 1.8, 1.85]),
        ([0.7, 0.5, 0.5], [1.0, 1.3, 1.4, 1.6]),
        ([0.5, 0.5], [0.8, 1.2, 1.6]),
    ],
    {
        "that searches all lengths, so whether a token is tested depends on later chances, and"
        " these depend on the token: the distribution changes."
        " Stop at the first drop.": lambda chances, times: int(np.argmax(_speeds(chances, times))),
        "a token counts only if all earlier ones were accepted: multiply the chances.": {
            "product": False
        },
        "the target adds one token to every round: the sum begins at 1.": {"own": 0.0},
    },
)


def _without_products(chances: Sequence[Sequence[float]], budget: int) -> list[int]:
    entries = [
        (-chance, i, row) for row, each in enumerate(chances) for i, chance in enumerate(each)
    ]
    return [sum(row == r for _, _, r in sorted(entries)[:budget]) for row in range(len(chances))]


def _shared(chances: Sequence[Sequence[float]], budget: int) -> list[int]:
    lengths = [0] * len(chances)
    for _ in range(budget):
        row = min(
            (r for r in range(len(chances)) if lengths[r] < len(chances[r])),
            key=lengths.__getitem__,
            default=None,
        )
        if row is not None:
            lengths[row] += 1
    return lengths


check_lengths = Check(
    "fn(chances, budget) → the number of verified tokens of each row",
    lambda chances, budget: within(budget, chances),
    [
        ([[0.9, 0.9, 0.9], [0.6, 0.6, 0.6]], 3),
        ([[0.9, 0.9, 0.9], [0.3, 0.3, 0.3]], 3),
        ([[0.5, 1.0, 1.0], [0.8, 0.7, 0.2], [0.9, 0.1, 0.9]], 5),
        ([[0.8, 0.5], [0.7]], 0),
        ([[0.6, 0.95], [0.7, 0.9], []], 4),
    ],
    {
        "a token counts only if all earlier ones were accepted:"
        " sort by the products.": _without_products,
        "that gives every row the same: a sure row should get more than an unsure one.": _shared,
    },
)


check_masks = Check(
    "fn(moves, state, drafted) → masks, 1 where a token is allowed: one before the drafts, and one"
    " after each draft. After a token that is not allowed, nothing is allowed.",
    _masks,
    PATHS,
    {
        "that is the root's mask at every position:"
        " move the automaton along the draft.": lambda moves, state, drafted: (
            [[float(move >= 0) for move in moves[state]]] * (len(drafted) + 1)
        ),
        "the row after the last draft is missing: the bonus token needs a"
        " mask too.": lambda moves, state, drafted: _masks(moves, state, drafted)[:-1],
        "the first mask belongs before the first draft: look at the state,"
        " then move.": lambda moves, state, drafted: _masks(moves, state, drafted)[1:],
        "after a forbidden token nothing is allowed: in Python, −1 is the last state.": {
            "guarded": False
        },
    },
)
