"""Checks for the exercises on token recycling: a row's successors, the tree, the rates of its ranks."""

from collections.abc import Sequence

from specdec_book.exercises.check import Check

Table = dict[int, list[int]]


def _successors(row: Sequence[float], k: int) -> list[int]:
    return sorted(range(len(row)), key=lambda token: -row[token])[:k]


check_successors = Check(
    "fn(row, k) → the ids of the k largest logits, the largest first",
    _successors,
    [([0.1, 2.0, -1.0, 0.7], 2), ([5.0, 1.0, 3.0], 3), ([-2.0, -0.5, -1.0, -3.0], 1)],
    {
        "these are the logits. The table stores tokens:"
        " the positions of these logits.": lambda row, k: sorted(row, reverse=True)[:k],
        "these are the least likely tokens. A larger logit is a likelier token.": lambda row, k: (
            sorted(range(len(row)), key=lambda token: row[token])[:k]
        ),
        "the right tokens in the wrong order: rank 0 is the likeliest one,"
        " not the smallest id.": lambda row, k: sorted(_successors(row, k)),
    },
)


def _tree(
    table: Table, root: int, ranks: Sequence[int], parents: Sequence[int], drop: bool = True
) -> list[int]:
    words: dict[int, int] = {-1: root}
    for node, (rank, parent) in enumerate(zip(ranks, parents)):
        above = words.get(parent) if drop else words.get(parent, root)
        successors = [] if above is None else table.get(above, [])
        if rank < len(successors):
            words[node] = successors[rank]
    return [word for node, word in words.items() if node >= 0]


check_tree = Check(
    "fn(table, root, ranks, parents) → the drafted tokens. Node i is the successor of rank"
    " ranks[i] of its parent. It is left out if there is no such successor or if its parent was"
    " left out.",
    _tree,
    [
        ({5: [1, 2], 1: [7, 8], 2: [9]}, 5, [0, 1, 0, 1], [-1, -1, 0, 0]),
        ({5: [1, 2], 1: [7], 2: [9]}, 5, [0, 1, 1, 0, 0], [-1, -1, 0, 1, 2]),
        ({3: [3, 4]}, 3, [0, 0, 1], [-1, 0, 1]),
        ({}, 3, [0, 0], [-1, 0]),
    ],
    {
        "every node got a successor of the root. A node takes a successor of its own"
        " parent.": lambda table, root, ranks, parents: [
            table[root][rank] for rank in ranks if rank < len(table.get(root, []))
        ],
        "a node whose parent was left out must be left out too.": {"drop": False},
    },
)


def _hits(table: Table, text: Sequence[int], ranks: int) -> list[int]:
    pairs = list(zip(text, text[1:]))
    return [
        sum(table.get(a, [])[rank : rank + 1] == [b] for a, b in pairs) for rank in range(ranks)
    ]


_known = lambda table, text: max(1, sum(token in table for token in text[:-1]))
check_rates = Check(
    "fn(table, text, ranks) → for each rank, how often the next token has this rank. The rate is"
    " relative to all tokens of the text that have a next token.",
    lambda table, text, ranks: [hit / (len(text) - 1) for hit in _hits(table, text, ranks)],
    [
        ({1: [2, 3], 2: [1]}, [1, 2, 1, 3, 4, 1, 2], 2),
        ({7: [7, 8]}, [7, 7, 8, 7, 8, 9], 2),
        ({}, [1, 2, 3], 1),
    ],
    {
        "tokens without an entry in the table count too:"
        " nothing can be drafted after them.": lambda table, text, ranks: [
            hit / _known(table, text) for hit in _hits(table, text, ranks)
        ],
        "the last token has no next token,"
        " so divide by one less than the text's length.": lambda table, text, ranks: [
            hit / len(text) for hit in _hits(table, text, ranks)
        ],
        "these are counts. Divide them by the number of tokens with a next token.": _hits,
    },
)
