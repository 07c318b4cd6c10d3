"""Find where the end of a text occurred earlier, and what followed it there."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

import numpy as np
import torch

from specdec_lite.checks import whole
from specdec_lite.drafters.followed import common_prefix
from specdec_lite.speculation import Context
from specdec_lite.tree import TokenTree

END = -1
"""Separates two texts in a memory. No token has this id, so nothing is copied across it."""


def token_ids(name: str, ids, vocab_size: int | None = None) -> np.ndarray:
    """Return one row of token ids [n] as int64."""
    row = torch.as_tensor(ids).cpu().numpy()
    if row.ndim != 1 or row.size and row.dtype.kind not in "iu":
        raise TypeError(f"{name}: must be one row of token ids, whole numbers")
    most = np.iinfo(np.int32).max if vocab_size is None else vocab_size - 1
    if row.size and not 0 <= row.min() <= row.max() <= most:
        outside = row.min() if row.min() < 0 else row.max()
        raise ValueError(f"{name} holds {outside}: token ids must be in 0 … {most}")
    return row.astype(np.int64)


def match_lengths(max_ngram: int, min_ngram: int) -> range:
    """Return the n-gram lengths `min_ngram` … `max_ngram` after checking them."""
    whole("min_ngram", min_ngram, 1, whole("max_ngram", max_ngram, 1))
    return range(min_ngram, max_ngram + 1)


class NgramIndex:
    """A growing text with, for every n-gram in it, the positions that follow its occurrences.

    An n-gram is entered when the next token arrives, so the end of the text never finds itself.

    Args:
        orders: the lengths n of the n-grams that are entered.
    """

    def __init__(self, orders: Iterable[int]):
        self.orders = sorted(orders, reverse=True)
        self.text: list[int] = []
        self.read = torch.empty(0, dtype=torch.long)
        self.positions: dict[tuple[int, ...], list[int]] = {}

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens to the text."""
        for token in tokens:
            for ngram in self._last_ngrams():
                self.positions.setdefault(ngram, []).append(len(self.text))
            self.text.append(token)

    def catch_up(self, context: Context) -> None:
        """Make the committed text the indexed one, from the first token that differs on."""
        self.cut(common_prefix(self.read, context.tokens))
        self.read = context.tokens
        self.extend(context.tokens[len(self.text) :].tolist())

    def cut(self, length: int) -> None:
        """Remove everything after the first `length` tokens."""
        while len(self.text) > length:
            self.text.pop()
            for ngram in self._last_ngrams():
                self.positions[ngram].pop()

    def _last_ngrams(self) -> list[tuple[int, ...]]:
        """Return the n-grams that end where the text ends."""
        return [tuple(self.text[-n:]) for n in self.orders if n <= len(self.text)]

    def find(self, text: Sequence[int], start: int = 0) -> tuple[int, list[int]]:
        """Find the longest n-gram at the end of a text."""
        for n in self.orders:
            if n <= len(text) and (positions := self.positions.get(tuple(text[-n:]))):
                first = bisect_left(positions, start)
                if first < len(positions):
                    return n, positions[first:] if first else positions
        return 0, []

    def match_length(self, position: int, text: Sequence[int], most: int) -> int:
        """Return how many tokens before a position equal the last tokens of another text."""
        most = min(most, position, len(text))
        for back in range(most):
            if self.text[position - 1 - back] != text[-1 - back]:
                return back
        return most

    def continuation(self, position: int, most: int) -> list[int]:
        """Return the tokens from a position on, up to the end of their text."""
        tokens = self.text[position : position + most]
        return tokens[: tokens.index(END)] if END in tokens else tokens


def frequency_tree(
    continuations: Sequence[Sequence[int]],
    budget: int,
    width: int | None = None,
    least: float = 0.0,
) -> tuple[TokenTree, float]:
    """Build the tree of the most frequent prefixes of some continuations, the best first.

    A node's share is the fraction of continuations that run through it: an estimate of the
    probability that the text does. No prefix is rarer than its extensions, so the most frequent
    prefixes form a tree. Among equals, the later continuation comes first.
    """
    tokens: list[int] = []
    parents: list[int] = []
    queue: list[tuple] = []
    total = 0

    def push_children(parent: int, depth: int, rows: Sequence[Sequence[int]]) -> None:
        families: dict[int, list] = {}
        for row in reversed(rows):
            if depth < len(row):
                families.setdefault(row[depth], []).append(row)
        ranked = sorted(families.items(), key=lambda family: -len(family[1]))
        for rank, (token, family) in enumerate(ranked[:width]):
            heappush(queue, (-len(family), parent, rank, token, depth, family[::-1]))

    push_children(-1, 0, continuations)
    while queue and len(tokens) < budget and -queue[0][0] >= least * len(continuations):
        count, parent, _, token, depth, family = heappop(queue)
        total -= count
        tokens.append(token)
        parents.append(parent)
        push_children(len(tokens) - 1, depth + 1, family)
    return TokenTree(tokens, parents), total / max(1, len(continuations))
