"""The window of Lookahead decoding as a token tree."""

from specdec_lite.tree import TokenTree


def window_tree(rows: list[list[int]]) -> tuple[TokenTree, list[int]]:
    """Return the window as a tree, and the last node of every column (−1: the root).

    The first row is a chain below the root, whose column is 0. The parent of every other entry is
    the entry above it.
    """
    tokens = list(rows[0])
    parents = list(range(-1, len(tokens) - 1))
    ends = list(range(-1, len(tokens)))
    for row in rows[1:]:
        parents += ends
        ends = list(range(len(tokens), len(tokens) + len(row)))
        tokens += row
    return TokenTree(tokens, parents), ends
