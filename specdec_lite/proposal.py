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

    Args:
        tree: the drafted tokens.
        probs: [d, V], one row per draw, in sibling order, after temperature, top-k, top-p and any
            exclusion. None: every token was *chosen*, not drawn, which is the same as a draw from
            a one-hot row.
        nodes: [d], the node on which each draw landed (two draws may land on one node); None: draw
            i made node i.
        candidates: the nodes that may be accepted, None for all; what it leaves out must have been
            chosen, since a drawn token may not be discarded after a look at it.
        states: (b, rows [1, n+1, d]) of the root and every node, computed in a view of the
            target's cache: the target's pass begins behind block b with them.

    draws: for every node that has acceptable children, these in sibling order, each with its row of
    probs (None: chosen). Raises ValueError where the arguments do not fit together.
    """

    tree: TokenTree
    probs: Tensor | None = None
    nodes: Sequence[int] | None = None
    candidates: frozenset[int] | None = None
    states: tuple[int, Tensor] | None = None
    draws: dict[int, tuple[tuple[int, int | None], ...]] = field(init=False, repr=False)

    def __post_init__(self):
        if not isinstance(self.tree, TokenTree):
            raise TypeError(f"tree is a {type(self.tree).__name__}: must be a TokenTree")
        if self.probs is not None and not isinstance(self.probs, Tensor):
            raise TypeError(
                f"probs is a {type(self.probs).__name__}: must be a tensor [d, V], or None"
            )
        landed = self._landed()
        rows = [None] * len(landed) if self.probs is None else range(len(landed))
        if self.candidates is not None:
            self._check_candidates(zip(landed, rows))
        siblings: dict[int, list] = {}
        for node, row in zip(landed, rows):
            if self.candidates is None or node in self.candidates:
                siblings.setdefault(self.tree.parents[node], []).append((node, row))
        draws = {parent: tuple(children) for parent, children in siblings.items()}
        object.__setattr__(self, "draws", draws)

    def _landed(self) -> Sequence[int]:
        """The node of every draw."""
        count = len(self.tree)
        if self.probs is None:
            if self.nodes is not None:
                raise ValueError("nodes without probs: give one row of probs per draw, or neither")
            return range(count)
        landed = range(count) if self.nodes is None else [index(node) for node in self.nodes]
        if len(landed) != len(self.probs):
            raise ValueError(
                f"probs has {len(self.probs)} rows for {len(landed)} draws: give the row of every"
                " draw, and only those"
            )
        if self.nodes is not None and set(landed) != set(range(count)):
            raise ValueError(
                f"nodes={list(landed)}: every one of the {count} nodes must come from a draw, and"
                " every draw must land on a node"
            )
        return landed

    def trimmed(self, levels: int) -> "Proposal":
        """The first `levels` levels. Legal whatever was drafted, since it looks at no token.

        Nodes keep their order; where they are numbered level by level they keep their numbers.
        """
        if self.tree.levels <= levels:
            return self
        tree, kept = self.tree.prune(self.tree.above(levels))
        new = {old: place for place, old in enumerate(kept)}
        landed = self._landed()
        rows = [row for row, node in enumerate(landed) if node in new]
        candidates = self.candidates
        states = self.states
        if states is not None:
            block, hidden = states
            states = block, hidden[:, [0, *(node + 1 for node in kept)]]
        return Proposal(
            tree,
            None if self.probs is None else self.probs[rows],
            None if self.nodes is None else [new[landed[row]] for row in rows],
            None
            if candidates is None
            else frozenset(new[node] for node in candidates if node in new),
            states,
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
    """What became of a proposal.

    path: the accepted nodes from the root down. token: the token that follows them. kind:
    "recovered", "bonus", or "sampled" (nothing was tested). tests: how many draws were tested at
    each level; `tested` is their sum. The round adds, for every node, its token and that token's
    probability p under the target and q under the row its first draw came from (1 if chosen), and
    the uniforms of the coins that fell.
    """

    path: tuple[int, ...]
    token: int
    kind: str
    tests: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    p: tuple[float, ...] = ()
    q: tuple[float, ...] = ()
    coins: tuple[float, ...] = ()

    @property
    def tested(self) -> int:
        return sum(self.tests)


def one_hot(token: int, like: Tensor) -> Tensor:
    """The distribution of a chosen token: all mass on it. Shape and dtype of `like` [V]."""
    row = torch.zeros_like(like)
    row[token] = 1
    return row
