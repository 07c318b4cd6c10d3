"""Where the end of a text stood before, and what followed there: what drafters without a model
share.

What lives here: `Places`, the index of a text that grows, and `heaviest`, the tree of what followed
most often. What does not: any drafter.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

import numpy as np
import torch

from specdec_lite.speculation import Context
from specdec_lite.tree import TokenTree

END = -1
"""Stands between two texts of a memory; no token is like it, so nothing is copied across."""


def token_ids(name: str, ids, vocab_size: int | None = None) -> np.ndarray:
    """One row of ids [n], int64. TypeError for what is no row of whole numbers, ValueError for ids
    below 0 or outside the vocabulary.
    """
    row = torch.as_tensor(ids).cpu().numpy()
    if row.ndim != 1 or row.size and row.dtype.kind not in "iu":
        raise TypeError(f"{name}: must be one row of token ids, whole numbers")
    most = np.iinfo(np.int32).max if vocab_size is None else vocab_size - 1
    if row.size and not 0 <= row.min() <= row.max() <= most:
        outside = row.min() if row.min() < 0 else row.max()
        raise ValueError(f"{name} holds {outside}: token ids must be in 0 … {most}")
    return row.astype(np.int64)


class Places:
    """A text that grows, and for every run of tokens in it the places behind that run.

    Args:
        orders: the lengths of the runs that are entered.

    A run is entered when its next token arrives: the end of the text, behind which nothing stands
    yet, never finds itself.
    """

    def __init__(self, orders: Iterable[int]):
        self.orders = sorted(orders, reverse=True)
        self.text: list[int] = []
        self.places: dict[tuple[int, ...], list[int]] = {}

    def extend(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            for run in self._runs():
                self.places.setdefault(run, []).append(len(self.text))
            self.text.append(token)

    def catch_up(self, context: Context) -> None:
        """Take in what has been committed since the last call."""
        self.extend(context.tokens[len(self.text) :].tolist())

    def cut(self, length: int) -> None:
        """Forget what stands behind the first `length` tokens."""
        while len(self.text) > length:
            self.text.pop()
            for run in self._runs():
                self.places[run].pop()

    def _runs(self) -> list[tuple[int, ...]]:
        """The runs that end where the text ends."""
        return [tuple(self.text[-n:]) for n in self.orders if n <= len(self.text)]

    def after(self, text: Sequence[int], least: int = 0) -> tuple[int, list[int]]:
        """(n, places ≥ `least` behind the last n tokens of `text`, ascending), n the largest order
        that has such places; (0, []) where none has.
        """
        for n in self.orders:
            if n <= len(text) and (found := self.places.get(tuple(text[-n:]))):
                first = bisect_left(found, least)
                if first < len(found):
                    return n, found[first:] if first else found
        return 0, []

    def before(self, place: int, text: Sequence[int], most: int) -> int:
        """How many tokens before a place are the last ones of `text`, `most` at most."""
        most = min(most, place, len(text))
        for back in range(most):
            if self.text[place - 1 - back] != text[-1 - back]:
                return back
        return most

    def behind(self, place: int, most: int) -> list[int]:
        """The tokens from a place on, `most` at most, up to the end of their text."""
        tokens = self.text[place : place + most]
        return tokens[: tokens.index(END)] if END in tokens else tokens


def heaviest(
    continuations: Sequence[Sequence[int]],
    budget: int,
    width: int | None = None,
    least: float = 0.0,
) -> tuple[TokenTree, float]:
    """The tree of what most continuations begin with, best first, and how many tokens it promises.

    Args:
        continuations: rows of token ids, of any lengths.
        budget: the most nodes.
        width: the most children of a node; 1 makes a chain.
        least: the smallest share of all continuations that must run through a node.

    A node's share is an estimate of the chance that the text goes through it; the tokens promised
    are the sum of the shares. No beginning is rarer than what extends it, so the commonest ones are
    a tree. Among equals what came later in `continuations` goes first.
    """
    tokens: list[int] = []
    parents: list[int] = []
    waiting: list[tuple] = []
    weight = 0

    def offer(parent: int, depth: int, rows: Sequence[Sequence[int]]) -> None:
        families: dict[int, list] = {}
        for row in reversed(rows):
            if depth < len(row):
                families.setdefault(row[depth], []).append(row)
        ranked = sorted(families.items(), key=lambda family: -len(family[1]))
        for rank, (token, family) in enumerate(ranked[:width]):
            heappush(waiting, (-len(family), parent, rank, token, depth, family[::-1]))

    offer(-1, 0, continuations)
    while waiting and len(tokens) < budget and -waiting[0][0] >= least * len(continuations):
        count, parent, _, token, depth, family = heappop(waiting)
        weight -= count
        tokens.append(token)
        parents.append(parent)
        offer(len(tokens) - 1, depth + 1, family)
    return TokenTree(tokens, parents), weight / max(1, len(continuations))
