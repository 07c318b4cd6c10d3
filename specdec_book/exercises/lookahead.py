"""Checks for the exercises on Jacobi iteration and Lookahead."""

from collections.abc import Callable, Sequence

from specdec_book.exercises.check import Mistake, Outcome, check

SAID = [([7, 3, 9, 4], 0), ([7, 3, 9, 4, 2], 2), ([5, 6], 0), ([5, 6, 1], 1)]


def check_next_guess(fn: Callable[[list[int], int], Sequence]) -> Outcome:
    """Check fn(said, accepted) → the guesses of the next pass.

    said[i]: the target's token after guess i, counted from 1; said[0]: its token after the text
    itself. accepted: number of guesses that were right.
    """
    return check(
        fn,
        lambda said, accepted: said[accepted + 1 :],
        SAID,
        [
            Mistake(
                lambda said, accepted: said[accepted:],
                "said[accepted] is the token that the pass has just added: it stands already, and"
                " the guesses begin behind it.",
            ),
            Mistake(
                lambda said, accepted: said[1:],
                "the guesses are not shifted by what was accepted: they stand at the wrong places.",
            ),
            Mistake(
                lambda said, accepted: said,
                "these are all answers of the pass; those up to the added token stand already.",
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
    """Check fn(root, rows) → the window's n-grams, one per column.

    rows[0]: the W − 1 guesses after the root. Every other row: W answers to the row above it.
    """
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
                "a row holds guesses of one pass for neighbouring places; an n-gram goes down a"
                " column, each token the answer to the one above.",
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
    """Check fn(window, ngram, guesses, slope) → the tokens per pass from which Lookahead pays with
    a full tree. slope: a pass over k tokens takes 1 + slope · (k − 1) plain passes."""
    return check(
        fn,
        _needed,
        SIZES,
        [
            Mistake(
                lambda w, n, g, slope: _needed(w, n, g, slope, root=0),
                "the pass is fed the root too: k is one more than the nodes.",
            ),
            Mistake(
                lambda w, n, g, slope: _needed(w, n, g, slope) + slope * g,
                "an n-gram's first token is the root: n − 1 of it are proposed.",
            ),
            Mistake(
                lambda w, n, g, slope: _needed(w, n, g, slope) + slope,
                "the window's first row has W − 1 guesses: its first entry is the root, which you"
                " counted twice.",
            ),
        ],
    )
