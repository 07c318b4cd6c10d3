"""Checks for the exercises on Jacobi iteration and Lookahead."""

from collections.abc import Callable, Sequence

from specdec_book.exercises.check import Mistake, Outcome, check

PREDICTIONS = [([7, 3, 9, 4], 0), ([7, 3, 9, 4, 2], 2), ([5, 6], 0), ([5, 6, 1], 1)]


def check_next_guess(fn: Callable[[list[int], int], Sequence]) -> Outcome:
    """Check fn(predicted, accepted) → the guesses of the next pass."""
    return check(
        fn,
        lambda predicted, accepted: predicted[accepted + 1 :],
        PREDICTIONS,
        [
            Mistake(
                lambda predicted, accepted: predicted[accepted:],
                "predicted[accepted] is the token that the pass has just added; the guesses begin after"
                " it.",
            ),
            Mistake(
                lambda predicted, accepted: predicted[1:],
                "the guesses are not shifted by the accepted tokens: they are at the wrong positions.",
            ),
            Mistake(
                lambda predicted, accepted: predicted,
                "these are all answers of the pass; the tokens up to the added one are already in the"
                " text.",
            ),
        ],
    )


WINDOWS = [
    (9, [[1, 2], [3, 4, 5], [6, 7, 8]]),
    (0, [[1, 2, 3], [4, 5, 6, 7]]),
    (4, [[], [5], [6], [7]]),
]


def _columns(root: int, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(column) for column in zip([root, *rows[0]], *rows[1:])]


def check_ngrams(fn: Callable[[int, list], Sequence]) -> Outcome:
    """Check fn(root, rows) → the window's n-grams, one per column."""
    width = lambda rows: len(rows[1])
    return check(
        fn,
        _columns,
        WINDOWS,
        [
            Mistake(
                lambda root, rows: [list(column) for column in zip(*rows)],
                "the first column begins with the root: put it before rows[0].",
            ),
            Mistake(
                lambda root, rows: (
                    [[root, *row] for row in rows[:1]] + [list(row) for row in rows[1:]]
                ),
                "a row holds guesses for neighboring positions; an n-gram goes down a column, and each"
                " token is the prediction after the token above it.",
            ),
            Mistake(
                lambda root, rows: [
                    [root, *(row[i] for row in rows[1:])] for i in range(width(rows))
                ],
                "only the first column begins with the root; column i begins with rows[0][i − 1].",
            ),
        ],
    )


SIZES = [(5, 4, 5, 0.02), (3, 3, 3, 0.05), (7, 5, 2, 0.01), (1, 2, 4, 0.1)]


def _needed(window: int, ngram: int, guesses: int, slope: float, root: int = 1) -> float:
    nodes = (ngram - 1) * window - 1 + guesses * (ngram - 1)
    return 1 + slope * (nodes + root - 1)


def check_break_even(fn: Callable[[int, int, int, float], float]) -> Outcome:
    """Check fn(window, ngram, guesses, slope) → tokens per pass at which Lookahead breaks even."""
    return check(
        fn,
        _needed,
        SIZES,
        [
            Mistake(
                lambda w, n, g, slope: _needed(w, n, g, slope, root=0),
                "the pass is also fed the root: k is one more than the nodes.",
            ),
            Mistake(
                lambda w, n, g, slope: _needed(w, n, g, slope) + slope * g,
                "an n-gram's first token is the root: only n − 1 of its tokens are proposed.",
            ),
            Mistake(
                lambda w, n, g, slope: _needed(w, n, g, slope) + slope,
                "the window's first row has W − 1 guesses: its first entry is the root, which you"
                " counted twice.",
            ),
        ],
    )
