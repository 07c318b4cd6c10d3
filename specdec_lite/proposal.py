"""What travels between a drafter and an acceptance rule: the proposal, and the verdict on it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index

import torch
from torch import Tensor

from specdec_lite.tree import TokenTree


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A drafted tree and the distributions its draws were really made from.

    probs [d, V]: one row per draw, in sibling order, after temperature, top-k, top-p and any
    exclusion. None: every token was *chosen*, not drawn, which is the same as a draw from a one-hot
    row. nodes [d]: the node on which each draw landed (two draws may land on one node); None: draw
    i made node i. candidates: the nodes that may be accepted, None for all; what it leaves out must
    have been chosen, since a drawn token may not be discarded after a look at it. Raises ValueError
    where these do not fit together.
    """

    tree: TokenTree
    probs: Tensor | None = None
    nodes: Sequence[int] | None = None
    candidates: frozenset[int] | None = None
    draws: dict[int, tuple[tuple[int, int | None], ...]] = field(init=False, repr=False)

    def __post_init__(self):
        if not isinstance(self.tree, TokenTree):
            raise TypeError(f"tree is a {type(self.tree).__name__}: must be a TokenTree")
        if self.probs is not None and not isinstance(self.probs, Tensor):
            raise TypeError(
                f"probs is a {type(self.probs).__name__}: must be a tensor [d, V], or None"
            )
        count = len(self.tree)
        if self.probs is None:
            if self.nodes is not None:
                raise ValueError("nodes without probs: give one row of probs per draw, or neither")
            landed, rows = range(count), [None] * count
        else:
            landed = range(count) if self.nodes is None else [index(node) for node in self.nodes]
            rows = range(len(self.probs))
            if len(landed) != len(rows):
                raise ValueError(
                    f"probs has {len(rows)} rows for {len(landed)} draws: give the row of every"
                    " draw, and only those"
                )
            if set(landed) != set(range(count)):
                raise ValueError(
                    f"nodes={list(landed)}: every one of the {count} nodes must come from a draw,"
                    " and every draw must land on a node"
                )
        if self.candidates is not None:
            self._check_candidates(zip(landed, rows))
        siblings: dict[int, list] = {}
        for node, row in zip(landed, rows):
            if self.candidates is None or node in self.candidates:
                siblings.setdefault(self.tree.parents[node], []).append((node, row))
        object.__setattr__(
            self, "draws", {parent: tuple(made) for parent, made in siblings.items()}
        )

    @property
    def is_plain_chain(self) -> bool:
        """A chain of one draw a level, every node of which may be accepted."""
        return (
            self.tree.is_chain
            and self.candidates is None
            and all(len(draws) == 1 for draws in self.draws.values())
        )

    def _check_candidates(self, draws) -> None:
        strange = sorted(set(self.candidates) - set(range(len(self.tree))))
        if strange:
            raise ValueError(
                f"candidates holds {strange[0]}: the tree's nodes are 0 … {len(self.tree) - 1}"
            )
        tokens = self.tree.tokens.tolist()
        for node, row in draws:
            chosen = (
                row is None
                or 0 <= tokens[node] < self.probs.shape[-1]
                and self.probs[row, tokens[node]] == 1
            )
            if node not in self.candidates and not chosen:
                raise ValueError(
                    f"candidates leaves out node {node}, which was drawn: only chosen tokens"
                    " (one-hot rows) may be ruled out, since discarding a drawn one changes"
                    " the law"
                )


NOTHING = Proposal(TokenTree((), ()))


@dataclass(frozen=True, slots=True)
class Verdict:
    """path: the accepted nodes from the root down. token: the token that follows them. kind:
    "recovered", "bonus", or "sampled" (nothing was drafted). tests: how many draws were tested at
    each level; `tested` is their sum.
    """

    path: tuple[int, ...]
    token: int
    kind: str
    tests: tuple[int, ...]

    @property
    def tested(self) -> int:
        return sum(self.tests)


def one_hot(token: int, like: Tensor) -> Tensor:
    """The distribution of a chosen token: all mass on it. Shape and dtype of `like` [V]."""
    row = torch.zeros_like(like)
    row[token] = 1
    return row
