"""Token trees: what a drafter proposes. A chain is a tree in which no node has two children.

Depth, mask, children and paths are functions of the parents. Nodes are numbered so that a parent
comes before its children. Number -1 is the root: the last committed token, which is not a node.

If every level has a ranked list of guesses, the same tree of *ranks* can be used in every round. Its
tokens are ranks (0 is the likeliest guess of its level); `fill` replaces them by guessed tokens.
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import product
from operator import index

import numpy as np
import torch
from torch import Tensor

from specdec_lite.checks import is_whole_dtype, whole
from specdec_lite.transfer import upload


def _accuracy_table(accuracies: Sequence[Sequence[float]] | Tensor) -> list[list[float]]:
    rows = accuracies.tolist() if isinstance(accuracies, Tensor) else accuracies
    table = [[float(value) for value in row] for row in rows]
    for level, row in enumerate(table):
        for rank, value in enumerate(row):
            if not 0 <= value <= 1:
                raise ValueError(f"accuracies[{level}][{rank}]={value}: must be in [0, 1]")
    return table


def _token_row(tokens: Sequence[int] | Tensor) -> Tensor:
    """Return a copy of tokens as a LongTensor; raise TypeError if they are not whole numbers."""
    try:
        # A copy, since a drafter may write its next draft into the same tensor.
        row = torch.as_tensor(tokens).clone()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"tokens={tokens!r}: must be whole numbers") from None
    if row.numel() and not is_whole_dtype(row.dtype):
        raise TypeError(f"tokens={tokens!r}: must be whole numbers")
    return row.long()


class TokenTree:
    """Drafted tokens, each with its parent. An empty tree is legal; `len(tree)` counts nodes.

    Args:
        tokens: n ids, a list or a LongTensor [n].
        parents: n node numbers with parents[i] < i; -1 for a child of the root.

    Raises:
        TypeError: tokens or parents are not whole numbers.
        ValueError: the parents are not a tree in this order.
    """

    def __init__(self, tokens: Sequence[int] | Tensor, parents: Sequence[int]):
        self.tokens = _token_row(tokens)
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

    @classmethod
    def trusted(cls, tokens: Tensor, parents: tuple[int, ...]) -> "TokenTree":
        """Return a tree without checking or copying: for code that derives it from another tree.

        Args:
            tokens: ids, LongTensor [n], that no other code writes to.
            parents: n node numbers with parents[i] < i.
        """
        tree = cls.__new__(cls)
        tree.tokens = tokens
        tree.parents = parents
        return tree

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
        # One pass is enough, since parents come before their children.
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return depths

    @property
    def depth(self) -> Tensor:
        """Return the depth of every node, long [n]: 0 for children of the root."""
        return torch.tensor(self._depths, dtype=torch.long)

    @property
    def levels(self) -> int:
        """Return the number of levels of nodes; 0 for an empty tree."""
        return max(self._depths, default=-1) + 1

    def above(self, level: int) -> list[int]:
        """Return the nodes of the first levels.

        Args:
            level: number of levels.
        """
        return [node for node, depth in enumerate(self._depths) if depth < level]

    @property
    def mask(self) -> Tensor:
        """Return the attention mask, bool [n, n]: mask[i, j] iff j is i or an ancestor of i."""
        mask = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:  # the parent's row is complete already
                mask[node] |= mask[parent]
        return torch.from_numpy(mask)

    @property
    def is_chain(self) -> bool:
        """Return whether every node is the child of the node before it."""
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    @cached_property
    def _children(self) -> list[tuple[int, ...]]:
        children: list[list[int]] = [[] for _ in range(len(self) + 1)]
        for node, parent in enumerate(self.parents):
            children[parent + 1].append(node)
        return [tuple(nodes) for nodes in children]

    def children(self, node: int) -> tuple[int, ...]:
        """Return the children of a node in sibling order.

        Args:
            node: a node's number; -1 for the root.
        """
        return self._children[node + 1]

    def path(self, node: int) -> tuple[int, ...]:
        """Return the nodes from the root's child down to a node, inclusive.

        Args:
            node: a node's number; -1 gives the empty path.
        """
        nodes: list[int] = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def along(self, text: Sequence[int]) -> tuple[int, ...]:
        """Return the longest path from the root whose tokens a text begins with.

        Args:
            text: token ids.
        """
        tokens = self.tokens.tolist()
        path: list[int] = []
        for token in text:
            below = self.children(path[-1] if path else -1)
            node = next((child for child in below if tokens[child] == token), None)
            if node is None:
                break
            path.append(node)
        return tuple(path)

    def paths(self) -> list[tuple[int, ...]]:
        """Return one tuple of nodes for every leaf, from the root's child to the leaf."""
        return [self.path(node) for node in range(len(self)) if not self.children(node)]

    @classmethod
    def chain(cls, tokens: Sequence[int] | Tensor) -> "TokenTree":
        """Return the tree in which every token is the child of the one before it.

        Args:
            tokens: n ids, a list or a LongTensor [n].

        Raises:
            TypeError: tokens are not whole numbers.
            ValueError: tokens are not one row.
        """
        row = _token_row(tokens)
        if row.dim() != 1:
            raise ValueError(f"tokens has shape {tuple(row.shape)}: must be one row of ids")
        return cls.trusted(row, tuple(range(-1, len(row) - 1)))

    @classmethod
    def cartesian(cls, levels: Sequence[Sequence[int]]) -> "TokenTree":
        """Return all combinations of one token per level (Cai et al. 2024, section 2.1.2).

        Args:
            levels: the tokens of each level; [[a, b], [c, d, e]] makes 2 + 6 nodes.
        """
        tokens: list[int] = []
        parents: list[int] = []
        above: Sequence[int] = [-1]
        for level in levels:
            start = len(tokens)
            for parent, token in product(above, level):
                tokens.append(token)
                parents.append(parent)
            above = range(start, len(tokens))
        return cls(tokens, parents)

    @classmethod
    def best(cls, accuracies: Sequence[Sequence[float]] | Tensor, budget: int) -> "TokenTree":
        """Return the tree of ranks that emits the most expected tokens.

        A node's value is the product of the accuracies along its path, at most its parent's value.
        Therefore it is optimal to add, repeatedly, the best node whose parent is in the tree. The
        first m nodes are the best tree of m nodes. Source: Cai et al. 2024, section 2.3.3.

        Args:
            accuracies: [levels, ranks], in [0, 1]: how often guess `rank` of a level is right,
                given that its parent is right.
            budget: the largest number of nodes, ≥ 0.

        Returns:
            At most `budget` nodes in falling order of value; nodes of value 0 are left out.

        Raises:
            ValueError: an argument is outside its range.
        """
        table = _accuracy_table(accuracies)
        whole("budget", budget)
        # The heap holds, per parent, only its best child not taken yet: taking it offers the next
        # sibling and the first child. A heap of all children would hold every rank of every node.
        order = [sorted(range(len(row)), key=lambda rank: -row[rank]) for row in table]
        ranks: list[int] = []
        parents: list[int] = []
        heap: list[tuple] = []

        def offer(parent_value: float, parent: int, level: int, entry: int) -> None:
            """Put the `entry`-th best rank of a level on the heap as a child of `parent`."""
            if level < len(table) and entry < len(table[level]):
                value = parent_value * table[level][order[level][entry]]
                age = len(heap) + len(ranks)  # among equal values, the older offer first
                heappush(heap, (-value, age, parent_value, parent, level, entry))

        offer(1.0, -1, 0, 0)
        while heap and len(ranks) < budget and heap[0][0] < 0:
            negative, _, parent_value, parent, level, entry = heappop(heap)
            ranks.append(order[level][entry])
            parents.append(parent)
            offer(parent_value, parent, level, entry + 1)
            offer(-negative, len(ranks) - 1, level + 1, 0)
        return cls(ranks, parents)

    def fill(self, guesses: Tensor) -> "TokenTree":
        """Return the tree of tokens that this tree of ranks selects from guesses.

        Args:
            guesses: ids [levels, ranks]; each node gets the guess of its level and rank.

        Raises:
            ValueError: a node's level or rank does not exist in guesses.
        """
        depth = self.depth
        if len(self) and (
            guesses.dim() != 2
            or int(depth.max()) >= guesses.shape[0]
            or not 0 <= int(self.tokens.min()) <= int(self.tokens.max()) < guesses.shape[1]
        ):
            raise ValueError(
                f"guesses has shape {tuple(guesses.shape)}: the tree needs {int(depth.max()) + 1}"
                f" levels and ranks 0 … {int(self.tokens.max())}"
            )
        entries = depth * guesses.shape[1] + self.tokens.cpu()
        tokens = guesses.flatten()[upload(entries, guesses.device)]
        return TokenTree(tokens, self.parents)

    def worth(self, accuracies: Sequence[Sequence[float]] | Tensor) -> Tensor:
        """Return, for every node of a tree of ranks, the probability that the text passes through it.

        Levels are taken as independent. 1 + worth.sum() is the expected number of tokens per round.

        Args:
            accuracies: [levels, ranks], as for `best`.

        Returns:
            Probabilities, float64 [n].

        Raises:
            ValueError: a node's level or rank does not exist in accuracies.
        """
        table = _accuracy_table(accuracies)
        worth: list[float] = []
        for level, rank, parent in zip(self._depths, self.tokens.tolist(), self.parents):
            if not (level < len(table) and 0 <= rank < len(table[level])):
                raise ValueError(
                    f"accuracies has no rank {rank} on level {level}, which the tree needs"
                )
            worth.append(table[level][rank] * (worth[parent] if parent >= 0 else 1.0))
        return torch.tensor(worth, dtype=torch.float64)

    def prune(self, keep: Collection[int]) -> tuple["TokenTree", tuple[int, ...]]:
        """Return the tree of some nodes, in their order, and the old number of each.

        For *chosen* tokens only: a drawn token may not be dropped after its value was looked at.

        Args:
            keep: nodes; the parent of each must be among them.

        Raises:
            ValueError: a node does not exist, or its parent is not in keep.
        """
        nodes = tuple(sorted(set(keep)))
        new = {-1: -1} | {node: number for number, node in enumerate(nodes)}
        for node in nodes:
            if not 0 <= node < len(self):
                raise ValueError(f"keep contains {node}: the tree has nodes 0 … {len(self) - 1}")
            if self.parents[node] not in new:
                raise ValueError(f"keep contains {node} without its parent {self.parents[node]}")
        # Sorted nodes keep parents before children, so the rest is a tree as it stands.
        parents = tuple(new[self.parents[node]] for node in nodes)
        tokens = self.tokens[upload(nodes, self.tokens.device, torch.long)]
        return TokenTree.trusted(tokens, parents), nodes

    @staticmethod
    def merge(trees: Sequence["TokenTree"]) -> tuple["TokenTree", list[tuple[int, ...]]]:
        """Return one tree in which nodes with equal paths are one node.

        Draws are not merged: keep one row of `Proposal.probs` per draw, and state in
        `Proposal.nodes` on which node it landed. Siblings keep the order of their first occurrence.

        Args:
            trees: the trees to merge.

        Returns:
            The merged tree, and for each input tree the new number of each of its nodes.
        """
        # A node is known by (its merged parent, its token): equal paths meet node by node.
        tokens: list[int] = []
        parents: list[int] = []
        numbers: dict[tuple[int, int], int] = {}
        maps = []
        rows = [tree.tokens for tree in trees]
        ids = iter(
            torch.cat([upload(row, rows[0].device) for row in rows]).tolist() if rows else ()
        )
        for tree in trees:
            new: list[int] = []
            for parent, token in zip(tree.parents, ids):
                key = (new[parent] if parent >= 0 else -1, token)
                if key not in numbers:
                    numbers[key] = len(tokens)
                    tokens.append(token)
                    parents.append(key[0])
                new.append(numbers[key])
            maps.append(tuple(new))
        return TokenTree(tokens, parents), maps
