"""Checks for the exercises on EAGLE: pairs of features and tokens, the nodes that a confidence tree
keeps, the cost of choosing instead of drawing."""

from collections.abc import Callable, Sequence

from specdec_book.exercises.check import Mistake, Outcome, check

CHAIN = ([-1, 0, 1, 2], [0.9, 0.8, 0.7, 0.6])
TREES = [
    (*CHAIN, 2),
    ([-1, -1, 0, 0, 1, 1], [0.6, 0.3, 0.2, 0.1, 0.9, 0.05], 3),
    ([-1, 0, 1, -1], [1.0, 1.0, 1.0, 0.0], 2),
    ([-1, -1, 1, 1, 2], [0.5, 0.5, 1.0, 0.0, 1.0], 3),
]
LAWS = [
    ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
    ([0.7, 0.2, 0.1], [0.6, 0.3, 0.1]),
    ([0.1, 0.9], [1.0, 0.0]),
]


def _path_values(parents: Sequence[int], q: Sequence[float]) -> list[float]:
    values: list[float] = []
    for parent, chance in zip(parents, q):
        values.append(chance * (values[parent] if parent >= 0 else 1.0))
    return values


def _keep(parents: Sequence[int], q: Sequence[float], m: int, younger: bool = False) -> list[int]:
    values = _path_values(parents, q)
    order = sorted(range(len(q)), key=lambda node: (-values[node], -node if younger else node))
    return sorted(order[:m])


def check_pairs(fn: Callable[[int], Sequence]) -> Outcome:
    """Check fn(n) → n − 1 pairs [position of the feature, position of the token]."""
    return check(
        fn,
        lambda n: [[i, i + 1] for i in range(n - 1)],
        [(2,), (5,)],
        [
            Mistake(
                lambda n: [[i, i] for i in range(n - 1)],
                "that is the feature with its own token, which the feature already contains. Which"
                " token was drawn from its distribution?",
            ),
            Mistake(
                lambda n: [[i, i + 2] for i in range(n - 1)],
                "one position too far: that token is not drawn yet when the pair is made.",
            ),
        ],
    )


def check_keep(fn: Callable[[list[int], list[float], int], Sequence]) -> Outcome:
    """Check fn(parents, q, m) → the indices of the m nodes that EAGLE-2 keeps, ascending."""
    return check(
        fn,
        _keep,
        TREES,
        [
            Mistake(
                lambda parents, q, m: sorted(sorted(range(len(q)), key=lambda n: (-q[n], n))[:m]),
                "rank a node by the product of q along its path, not by its own q. A likely child of"
                " an unlikely parent is unlikely.",
            ),
            Mistake(
                lambda parents, q, m: _keep(parents, q, m, younger=True),
                "you keep the younger of two equal nodes, so a child may be kept without its parent.",
            ),
            Mistake(
                lambda parents, q, m: list(range(min(m, len(q)))),
                "the first m nodes are the oldest, not those with the largest product of q.",
            ),
        ],
    )


def _price(p: Sequence[float], q: Sequence[float]) -> float:
    return sum(map(min, p, q)) - p[max(range(len(q)), key=q.__getitem__)]


def check_price(fn: Callable[[list[float], list[float]], float]) -> Outcome:
    """Check fn(p, q) → Σ min(p, q) minus p of the token that is likeliest under q."""
    return check(
        fn,
        _price,
        LAWS,
        [
            Mistake(
                lambda p, q: sum(map(min, p, q)) - max(p),
                "the draft cannot see p. It chooses the token that is likeliest under q.",
            ),
            Mistake(
                lambda p, q: sum(map(min, p, q)) - max(q),
                "a chosen token is kept with p, its probability under the target, whatever its q is.",
            ),
            Mistake(lambda p, q: -_price(p, q), "it is the other way round: drawn minus chosen."),
        ],
    )
