"""Checks for the exercises on EAGLE: pairs of features and tokens, the mask of unrolled training,
the nodes of a confidence tree, the cost of choosing instead of drawing."""

from collections.abc import Sequence

from specdec_book.exercises.check import Check
from specdec_lite import theory

CHAIN = ([-1, 0, 1, 2], [0.9, 0.8, 0.7, 0.6])
TREES = [
    (*CHAIN, 2),
    ([-1, -1, 0, 0, 1, 1], [0.6, 0.3, 0.2, 0.1, 0.9, 0.05], 3),
    ([-1, 0, 1, -1], [1.0, 1.0, 1.0, 0.0], 2),
    ([-1, -1, 1, 1, 2], [0.5, 0.5, 1.0, 0.0, 1.0], 3),
    ([-1, 0, -1], [0.5, 0.8, 0.45], 2),
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


check_pairs = Check(
    "fn(n) → n − 1 pairs [position of the feature, position of the token]",
    lambda n: [[i, i + 1] for i in range(n - 1)],
    [(2,), (5,)],
    {
        "that is the feature with its own token, which the feature already contains. Which token"
        " was drawn from its distribution?": lambda n: [[i, i] for i in range(n - 1)],
        "one position too far: that token is not drawn yet when the pair is made.": lambda n: [
            [i, i + 2] for i in range(n - 1)
        ],
    },
)


def _visible(i: int, j: int, n: int) -> list[int]:
    return [*range(i + 1), *(k * n + i for k in range(1, j + 1))]


check_visible = Check(
    "fn(i, j, n) → the entries that row i of pass j attends to, ascending",
    _visible,
    [(2, 0, 5), (1, 2, 4), (0, 3, 3)],
    {
        "row i knows the true pairs 0 … i and no later ones: it has guesses in"
        " their place.": lambda i, j, n: [*range(i + j + 1), *(k * n + i for k in range(1, j + 1))],
        "the guesses of other rows belong to drafters that know fewer pairs. From pass 1 on a row"
        " sees only"
        " its own.": lambda i, j, n: [k * n + r for k in range(j + 1) for r in range(i + 1)],
        "a row also attends to its own newest entry.": lambda i, j, n: (
            _visible(i, j - 1, n) if j else list(range(i))
        ),
    },
)


_expected = lambda alphas: theory.tokens_from_profile(alphas) - 1
check_expected = Check(
    "fn(alphas) → the expected number of accepted tokens of a chain",
    _expected,
    [([0.5],), ([0.8, 0.6, 0.5],), ([0.4, 0.35, 0.33, 0.32],)],
    {
        "a token counts only if all tokens before it are accepted too:"
        " multiply the rates.": lambda alphas: sum(alphas),
        "that includes the target's own token."
        " Asked is the number of accepted drafts.": lambda alphas: 1 + _expected(alphas),
        "every depth has a rate of its own.": lambda alphas: _expected(alphas[:1] * len(alphas)),
    },
)


check_values = Check(
    "fn(parents, q) → the value of every node: the product of q along its path",
    _path_values,
    [(parents, q) for parents, q, _ in TREES],
    {
        "that is a node's own q. Its path begins at the root.": lambda parents, q: q,
        "multiply by the parent's value,"
        " which contains its whole path, not by its q.": lambda parents, q: [
            chance * (q[parent] if parent >= 0 else 1.0) for parent, chance in zip(parents, q)
        ],
    },
)


check_keep = Check(
    "fn(parents, q, m) → the indices of the m nodes that EAGLE-2 keeps, ascending",
    _keep,
    TREES,
    {
        "rank a node by the product of q along its path, not by its own q. A likely child of an"
        " unlikely parent is unlikely.": lambda parents, q, m: sorted(
            sorted(range(len(q)), key=lambda n: (-q[n], n))[:m]
        ),
        "you keep the younger of two equal nodes, so a child may be kept without its parent.": {
            "younger": True
        },
        "the first m nodes are the oldest, not those with the largest product"
        " of q.": lambda parents, q, m: list(range(min(m, len(q)))),
    },
)


def _price(p: Sequence[float], q: Sequence[float]) -> float:
    return sum(map(min, p, q)) - p[max(range(len(q)), key=q.__getitem__)]


check_price = Check(
    "fn(p, q) → Σ min(p, q) minus p of the token that is likeliest under q",
    _price,
    [
        ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
        ([0.7, 0.2, 0.1], [0.6, 0.3, 0.1]),
        ([0.1, 0.9], [1.0, 0.0]),
    ],
    {
        "the draft cannot see p. It chooses the token that is likeliest under q.": lambda p, q: (
            sum(map(min, p, q)) - max(p)
        ),
        "a chosen token is kept with p, its probability under the target,"
        " whatever its q is.": lambda p, q: sum(map(min, p, q)) - max(q),
        "it is the other way round: drawn minus chosen.": lambda p, q: -_price(p, q),
    },
)
