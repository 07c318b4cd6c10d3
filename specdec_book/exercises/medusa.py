"""Checks for the exercises on token trees: masks, the value of a tree, its best size."""

from collections.abc import Sequence

import numpy as np

from specdec_book.exercises.check import Check
from specdec_lite.tree import TokenTree


def _mask(parents: Sequence[int]) -> np.ndarray:
    return TokenTree([0] * len(parents), parents).mask.numpy().astype(int)


def _without_ancestors(parents: Sequence[int]) -> np.ndarray:
    seen = np.eye(len(parents), dtype=int)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node, parent] = 1
    return seen


def _aliased(parents: Sequence[int]) -> list[list[int]]:
    """Return the rows that result if children share the list of their parent, as `mask[node] =
    mask[parent]` does."""
    mask = [[0] * len(parents) for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] = mask[parent]
        mask[node][node] = 1
    return mask


def _causal(parents: Sequence[int]) -> np.ndarray:
    """Return a mask that shows every earlier node, except on the first level, whose rows start
    empty."""
    first = np.array(parents)[:, None] < 0
    return np.where(first, np.eye(len(parents)), np.tril(np.ones((len(parents),) * 2)))


check_mask = Check(
    "fn(parents) → n rows of n entries: 1 if node i may see node j, else 0",
    _mask,
    [
        ([-1, 0, 1],),
        ([-1, -1, 0, 0, 0, 1, 1, 1],),
        ([-1, -1, 0, 1, 2, 2, 4],),
        ([-1, 0, 0, 2, 0, 3],),
    ],
    {
        "that is the plain causal mask: every node sees all earlier nodes, including those of other"
        " branches."
        " Follow the parents.": lambda parents: np.tril(np.ones((len(parents),) * 2, dtype=int)),
        "that is the plain causal mask below the first level: a node sees its ancestors only, not"
        " every earlier node.": _causal,
        "`mask[node] = mask[parent]` makes both nodes share one row, so the parent sees its"
        " children too. Copy the row: list(mask[parent]).": _aliased,
        "a node sees its grandparents too:"
        " continue upwards until the parent is −1.": _without_ancestors,
        "a node sees itself too: it attends to its own position.": lambda parents: (
            _mask(parents) - np.eye(len(parents), dtype=int)
        ),
        "rows and columns are exchanged: row i lists what node i sees.": lambda parents: (
            _mask(parents).T
        ),
    },
)


ACCURACIES = [[0.6, 0.2, 0.1], [0.5, 0.2, 0.1], [0.3, 0.2, 0.1]]
TREES = [
    [(0,), (0, 0), (0, 0, 0)],
    [(0,), (1,), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
    [(0,), (1,), (0, 0), (2,), (0, 1), (0, 0, 0)],
    [],
]


def _worth(path: Sequence[int], accuracies: Sequence[Sequence[float]]) -> float:
    return float(np.prod([accuracies[level][rank] for level, rank in enumerate(path)]))


def _expected(
    paths: Sequence[Sequence[int]], accuracies: Sequence[Sequence[float]], own: float = 1.0
) -> float:
    return own + sum(_worth(path, accuracies) for path in paths)


_leaves = lambda paths: [
    p for p in paths if not any(q[: len(p)] == p and len(q) > len(p) for q in paths)
]
check_expected_tokens = Check(
    "fn(paths, accuracies) → expected tokens per round",
    _expected,
    [(paths, ACCURACIES) for paths in TREES],
    {
        "the target adds one token to every round: the sum begins at 1.": {"own": 0.0},
        "every node counts, not only the leaves: a node adds one token whenever the text passes"
        " through it.": lambda paths, a: _expected(_leaves(paths), a),
        "a node is reached only if all its ancestors are right: multiply along"
        " its path.": lambda paths, a: 1 + sum(a[len(path) - 1][path[-1]] for path in paths),
        "do not multiply by its depth: the node's ancestors are counted as nodes of"
        " their own.": lambda paths, a: 1 + sum(len(path) * _worth(path, a) for path in paths),
    },
)


def _best_size(worths: Sequence[float], times: Sequence[float]) -> int:
    speeds = [(1 + sum(worths[:size])) / times[size] for size in range(len(times))]
    return int(np.argmax(np.array(speeds) > max(speeds) - 1e-12))


def _one_too_few(worths: Sequence[float], times: Sequence[float]) -> int:
    """Return the size that looks best if the value of m + 1 nodes is divided by the time of m."""
    speeds = [1 / times[0], *((1 + sum(worths[: m + 1])) / times[m] for m in range(len(worths)))]
    return max(0, int(np.argmax(speeds)) - 1)


check_best_size = Check(
    "fn(worths, times) → the number of nodes that decodes fastest",
    _best_size,
    [
        ([0.5, 0.25, 0.2, 0.1, 0.05], [1.0, 1.02, 1.05, 1.1, 1.2, 1.5]),
        ([0.6, 0.36, 0.2, 0.15, 0.1, 0.09, 0.05], [1.0, 1.3, 1.3, 1.3, 1.5, 1.5, 1.8, 1.9]),
        ([0.5, 0.4, 0.05], [1.0, 1.3, 1.35, 1.6]),
        ([0.5, 0.25], [0.8, 1.2, 1.6]),
    ],
    {
        "more nodes always give more tokens per round, but not more tokens per second: divide by"
        " the time of the round.": lambda worths, times: len(worths),
        "no tree at all is also a choice: begin with 0 nodes.": lambda worths, times: max(
            1, _best_size(worths, times)
        ),
        "the target adds one token to every round:"
        " divide 1 + the nodes' values by the time.": lambda worths, times: int(
            np.argmax([sum(worths[:m]) / times[m] for m in range(len(times))])
        ),
        "that divides the tokens of m + 1 nodes by the time of m: `enumerate` counts from 0 unless"
        " you pass start=1. Mind the off-by-one.": _one_too_few,
        "times[m] is the time with m nodes: mind the off-by-one.": lambda worths, times: min(
            _best_size(worths, times) + 1, len(worths)
        ),
    },
)
