"""Checks for the exercises on Jacobi iteration and Lookahead."""

from collections.abc import Sequence

from specdec_book.exercises.check import Check

check_next_guess = Check(
    "fn(predicted, accepted) → the guesses of the next pass",
    lambda predicted, accepted: predicted[accepted + 1 :],
    [([7, 3, 9, 4], 0), ([7, 3, 9, 4, 2], 2), ([5, 6], 0), ([5, 6, 1], 1)],
    {
        "predicted[accepted] is the token that the pass has just added;"
        " the guesses begin after it.": lambda predicted, accepted: predicted[accepted:],
        "the guesses are not shifted by the accepted tokens:"
        " they are at the wrong positions.": lambda predicted, accepted: predicted[1:],
        "these are all answers of the pass; the tokens up to the added one are already in"
        " the text.": lambda predicted, accepted: predicted,
    },
)


def _columns(root: int, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(column) for column in zip([root, *rows[0]], *rows[1:])]


check_ngrams = Check(
    "fn(root, rows) → the window's n-grams, one per column",
    _columns,
    [(9, [[1, 2], [3, 4, 5], [6, 7, 8]]), (0, [[1, 2, 3], [4, 5, 6, 7]]), (4, [[], [5], [6], [7]])],
    {
        "the first column begins with the root: put it before rows[0].": lambda root, rows: [
            list(column) for column in zip(*rows)
        ],
        "a row holds guesses for neighboring positions; an n-gram goes down a column, and each"
        " token is the prediction after the token above it.": lambda root, rows: (
            [[root, *row] for row in rows[:1]] + [list(row) for row in rows[1:]]
        ),
        "only the first column begins with the root;"
        " column i begins with rows[0][i − 1].": lambda root, rows: [
            [root, *(row[i] for row in rows[1:])] for i in range(len(rows[1]))
        ],
    },
)


def _needed(window: int, ngram: int, guesses: int, slope: float, root: int = 1) -> float:
    nodes = (ngram - 1) * window - 1 + guesses * (ngram - 1)
    return 1 + slope * (nodes + root - 1)


check_break_even = Check(
    "fn(window, ngram, guesses, slope) → tokens per pass at which Lookahead breaks even",
    _needed,
    [(5, 4, 5, 0.02), (3, 3, 3, 0.05), (7, 5, 2, 0.01), (1, 2, 4, 0.1)],
    {
        "the pass is also fed the root: k is one more than the nodes.": {"root": 0},
        "an n-gram's first token is the root: only n − 1 of its tokens"
        " are proposed.": lambda w, n, g, slope: _needed(w, n, g, slope) + slope * g,
        "the window's first row has W − 1 guesses: its first entry is the root, which you counted"
        " twice.": lambda w, n, g, slope: _needed(w, n, g, slope) + slope,
    },
)
