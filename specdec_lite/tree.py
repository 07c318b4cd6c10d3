"""Token trees: what a drafter proposes. A chain is a tree in which every node has at most one
child.

A tree stores tokens and parents, nothing else; depth, mask, children and paths are functions of the
parents. Nodes are numbered so that a parent comes before its children; -1 is the root, the last
committed token, which is not a node of the tree.

Where every level has a ranked list of guesses, the *shape* of a tree can be chosen once and used in
every round. A shape is a tree too: its tokens are ranks (0 is the likeliest guess of its level),
and `fill` puts the guessed tokens in their place.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import product
from numbers import Integral
from operator import index

import numpy as np
import torch
from torch import Tensor


def is_whole_dtype(dtype: torch.dtype) -> bool:
    """Whether tensors of this dtype may hold token ids."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _accuracy_table(accuracies: Sequence[Sequence[float]] | Tensor) -> list[list[float]]:
    table = [
        [float(value) for value in row]
        for row in (accuracies.tolist() if isinstance(accuracies, Tensor) else accuracies)
    ]
    for level, row in enumerate(table):
        for rank, value in enumerate(row):
            if not 0 <= value <= 1:
                raise ValueError(f"accuracies[{level}][{rank}]={value}: must be in [0, 1]")
    return table


class TokenTree:
    """Drafted tokens and, for each, its parent (-1: child of the last committed token).

    tokens: n ids, a list or a LongTensor [n]; parents: n ints with parents[i] < i. Raises
    ValueError when the parents are not a tree in that order, TypeError when either are not whole
    numbers. The number of nodes is `len(tree)`; an empty tree is legal.
    """

    def __init__(self, tokens: Sequence[int] | Tensor, parents: Sequence[int]):
        try:
            # A copy: a drafter may write its next draft where this one stands.
            self.tokens = torch.as_tensor(tokens).clone()
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"tokens={tokens!r}: must be whole numbers") from None
        if self.tokens.numel() and not is_whole_dtype(self.tokens.dtype):
            raise TypeError(f"tokens={tokens!r}: must be whole numbers")
        self.tokens = self.tokens.long()
        try:
            self.parents = tuple(map(index, parents))
        except TypeError:
            raise TypeError(f"parents={parents!r}: must be whole numbers") from None
        if self.tokens.dim() != 1 or len(self.tokens) != len(self.parents):
            raise ValueError(
                f"tokens and parents must be two rows of one length; got {tuple(self.tokens.shape)}"
                f" and {len(self.parents)}"
            )
        for node, parent in enumerate(self.parents):
            if not -1 <= parent < node:
                raise ValueError(
                    f"parents[{node}]={parent}: must be -1 (child of the root) or an earlier node,"
                    f" so at most {node - 1}"
                )

    def __len__(self) -> int:
        return len(self.parents)

    def __eq__(self, other) -> bool:
        return (
            isinstance(other, TokenTree)
            and self.parents == other.parents
            and self.tokens.tolist() == other.tokens.tolist()
        )

    def __repr__(self) -> str:
        return f"TokenTree(tokens={self.tokens.tolist()}, parents={list(self.parents)})"

    @cached_property
    def _depths(self) -> list[int]:
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return depths

    @property
    def depth(self) -> Tensor:
        """[n] long: 0 for children of the root. A node's position id is the root's plus depth plus
        one.
        """
        return torch.tensor(self._depths, dtype=torch.long)

    @property
    def levels(self) -> int:
        """How many levels of nodes there are; 0 for an empty tree."""
        return max(self._depths, default=-1) + 1

    def above(self, level: int) -> list[int]:
        """The nodes of the first `level` levels."""
        return [node for node, depth in enumerate(self._depths) if depth < level]

    @property
    def mask(self) -> Tensor:
        """[n, n] bool: mask[i, j] is True iff j is i or an ancestor of i."""
        mask = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                mask[node] |= mask[parent]
        return torch.from_numpy(mask)

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    @cached_property
    def _children(self) -> list[tuple[int, ...]]:
        children: list[list[int]] = [[] for _ in range(len(self) + 1)]
        for node, parent in enumerate(self.parents):
            children[parent + 1].append(node)
        return [tuple(nodes) for nodes in children]

    def children(self, node: int) -> tuple[int, ...]:
        """The children of a node in sibling order; node -1 is the root."""
        return self._children[node + 1]

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from below the root down to `node`, inclusive."""
        nodes: list[int] = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def paths(self) -> list[tuple[int, ...]]:
        """One tuple of nodes for every leaf, from below the root to the leaf."""
        return [self.path(node) for node in range(len(self)) if not self.children(node)]

    @classmethod
    def chain(cls, tokens: Sequence[int] | Tensor) -> "TokenTree":
        """Every token the child of the one before it."""
        return cls(tokens, range(-1, len(tokens) - 1))

    @classmethod
    def cartesian(cls, levels: Sequence[Sequence[int]]) -> "TokenTree":
        """All combinations of one token a level: [[a, b], [c, d, e]] has 2 + 6 nodes. Source: Cai
        et al. 2024, section 2.1.2.
        """
        tokens = []
        parents = []
        above = [-1]
        for level in levels:
            start = len(tokens)
            for parent, token in product(above, level):
                tokens.append(token)
                parents.append(parent)
            above = range(start, len(tokens))
        return cls(tokens, parents)

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]]) -> "TokenTree":
        """The smallest tree that spells every given path of tokens: equal prefixes share their
        nodes.
        """
        return cls.merge([cls.chain(list(path)) for path in paths])[0]

    @classmethod
    def best(cls, accuracies: Sequence[Sequence[float]] | Tensor, budget: int) -> "TokenTree":
        """The shape of at most `budget` nodes with the most expected tokens, its nodes in the order
        of their worth.

        accuracies: [levels, ranks], in [0, 1]: how often guess `rank` of a level is right, given
        that its parent is. A node is worth the product along its path, so no node is worth more
        than its parent, and adding the best node that hangs from the tree is optimal, not only
        greedy. The first m nodes are the best shape of m nodes; those worth 0 are left out.
        ValueError for anything else. Source: Cai et al. 2024, section 2.3.3.
        """
        table = _accuracy_table(accuracies)
        if not isinstance(budget, Integral) or isinstance(budget, bool) or budget < 0:
            raise ValueError(f"budget={budget!r}: must be a whole number ≥ 0")
        order = [sorted(range(len(row)), key=lambda rank: -row[rank]) for row in table]
        ranks: list[int] = []
        parents: list[int] = []
        waiting: list[tuple] = []

        def offer(worth: float, parent: int, level: int, place: int) -> None:
            if level < len(table) and place < len(table[level]):
                value = worth * table[level][order[level][place]]
                heappush(waiting, (-value, len(waiting) + len(ranks), worth, parent, level, place))

        offer(1.0, -1, 0, 0)
        while waiting and len(ranks) < budget and waiting[0][0] < 0:
            value, _, above, parent, level, place = heappop(waiting)
            ranks.append(order[level][place])
            parents.append(parent)
            offer(above, parent, level, place + 1)
            offer(-value, len(ranks) - 1, level + 1, 0)
        return cls(ranks, parents)

    def fill(self, guesses: Tensor) -> "TokenTree":
        """The tree of tokens that this shape makes of guesses [levels, ranks]: node by node the
        guess of its level and rank.

        ValueError where the shape asks for a level or a rank that there is not.
        """
        depth = self.depth
        if len(self) and (
            guesses.dim() != 2
            or int(depth.max()) >= guesses.shape[0]
            or not 0 <= int(self.tokens.min()) <= int(self.tokens.max()) < guesses.shape[1]
        ):
            raise ValueError(
                f"guesses has shape {tuple(guesses.shape)}: the shape needs {int(depth.max()) + 1}"
                f" levels and ranks 0 … {int(self.tokens.max())}"
            )
        return TokenTree(
            guesses[depth.to(guesses.device), self.tokens.to(guesses.device)], self.parents
        )

    def worth(self, accuracies: Sequence[Sequence[float]] | Tensor) -> Tensor:
        """[n] float64: of a shape's nodes, the chance that the target's text goes through them,
        levels taken as independent.

        accuracies: [levels, ranks], as for `best`. 1 + worth.sum() is the expected number of tokens
        a round. ValueError where the shape asks for a level or a rank that there is not.
        """
        table = _accuracy_table(accuracies)
        depth = self._depths
        worth = []
        for level, rank, parent in zip(depth, self.tokens.tolist(), self.parents):
            if not (level < len(table) and 0 <= rank < len(table[level])):
                raise ValueError(
                    f"accuracies has no rank {rank} on level {level}, which the shape needs"
                )
            worth.append(table[level][rank] * (worth[parent] if parent >= 0 else 1.0))
        return torch.tensor(worth, dtype=torch.float64)

    def prune(self, keep: Collection[int]) -> tuple["TokenTree", tuple[int, ...]]:
        """The tree of the nodes in `keep`, in their order, and for each of them its old number.

        For *chosen* tokens only: a drawn token may not be dropped after a look at it. ValueError
        for a node that is not there, and for one whose parent is not kept.
        """
        kept = tuple(sorted(set(keep)))
        new = {-1: -1} | {old: place for place, old in enumerate(kept)}
        for node in kept:
            if not 0 <= node < len(self):
                raise ValueError(f"keep holds {node}: the tree has nodes 0 … {len(self) - 1}")
            if self.parents[node] not in new:
                raise ValueError(f"keep holds node {node} without its parent {self.parents[node]}")
        return TokenTree(self.tokens[list(kept)], [new[self.parents[node]] for node in kept]), kept

    @staticmethod
    def merge(trees: Sequence["TokenTree"]) -> tuple["TokenTree", list[tuple[int, ...]]]:
        """One tree in which nodes with equal text are one node, and a map old node → new node for
        each input tree.

        Nodes are merged, draws never: keep one row of `Proposal.probs` per draw and let
        `Proposal.nodes` say where it landed. Siblings keep the order in which they first appear.
        """
        tokens: list[int] = []
        parents: list[int] = []
        seen: dict[tuple[int, int], int] = {}
        maps = []
        for tree in trees:
            new: list[int] = []
            for token, parent in zip(tree.tokens.tolist(), tree.parents):
                key = (new[parent] if parent >= 0 else -1, token)
                if key not in seen:
                    seen[key] = len(tokens)
                    tokens.append(token)
                    parents.append(key[0])
                new.append(seen[key])
            maps.append(tuple(new))
        return TokenTree(tokens, parents), maps
