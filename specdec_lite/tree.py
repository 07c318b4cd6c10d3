"""Token trees: what a drafter proposes. A chain is a tree in which every node has one child.

A tree stores tokens and parents, nothing else; depth, mask, children and paths are functions of the parents.
Nodes are numbered so that a parent comes before its children; -1 is the root, the last committed token, which is
not a node of the tree.
"""
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor


@lru_cache(maxsize=1024)
def _depth(parents: tuple[int, ...]) -> Tensor:
    depth: list[int] = []
    for parent in parents:
        depth.append(0 if parent < 0 else depth[parent] + 1)
    return torch.tensor(depth, dtype=torch.long)


@lru_cache(maxsize=1024)
def _mask(parents: tuple[int, ...]) -> Tensor:
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


@lru_cache(maxsize=1024)
def _children(parents: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    children: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for node, parent in enumerate(parents):
        children[parent + 1].append(node)
    return tuple(map(tuple, children))


class TokenTree:
    """Drafted tokens and, for each, its parent (-1: child of the last committed token).

    tokens: n ids, a list or a LongTensor [n]; parents: n ints with parents[i] < i. Raises ValueError when the parents
    are not a tree in that order, TypeError when tokens are not whole numbers. The number of nodes is `len(tree)`; an empty tree is legal.
    """
    __slots__ = ("tokens", "parents")

    def __init__(self, tokens: Sequence[int] | Tensor, parents: Sequence[int]):
        self.tokens = torch.as_tensor(tokens)
        if len(self.tokens) and (self.tokens.is_floating_point() or self.tokens.dtype == torch.bool):
            raise TypeError(f"tokens={tokens!r}: must be whole numbers")
        self.tokens = self.tokens.long()
        self.parents = tuple(int(parent) for parent in parents)
        if self.tokens.dim() != 1 or len(self.tokens) != len(self.parents):
            raise ValueError(f"tokens and parents must be two rows of one length; got {tuple(self.tokens.shape)} and {len(self.parents)}")
        for node, parent in enumerate(self.parents):
            if not -1 <= parent < node:
                raise ValueError(f"parents[{node}]={parent}: must be -1 (child of the root) or an earlier node, so at most {node - 1}")

    def __len__(self) -> int:
        return len(self.parents)

    def __eq__(self, other) -> bool:
        return isinstance(other, TokenTree) and self.parents == other.parents and self.tokens.tolist() == other.tokens.tolist()

    def __repr__(self) -> str:
        return f"TokenTree(tokens={self.tokens.tolist()}, parents={list(self.parents)})"

    @property
    def depth(self) -> Tensor:
        """[n] long: 0 for children of the root. A node's position id is the root's plus depth plus one."""
        return _depth(self.parents).clone()

    @property
    def mask(self) -> Tensor:
        """[n, n] bool: mask[i, j] is True iff j is i or an ancestor of i."""
        return _mask(self.parents).clone()

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    def children(self, node: int) -> tuple[int, ...]:
        """The children of a node in sibling order; node -1 is the root."""
        return _children(self.parents)[node + 1]

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
        """All combinations of one token a level: [[a, b], [c, d, e]] has 2 + 6 nodes. Source: Cai et al. 2024, section 2.1.2."""
        tokens, parents, above = [], [], [-1]
        for level in levels:
            start = len(tokens)
            for parent, token in product(above, level):
                tokens.append(token)
                parents.append(parent)
            above = range(start, len(tokens))
        return cls(tokens, parents)

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]]) -> "TokenTree":
        """The smallest tree that spells every given path of tokens: equal prefixes share their nodes."""
        return cls.merge([cls.chain(list(path)) for path in paths])[0]

    @staticmethod
    def merge(trees: Sequence["TokenTree"]) -> tuple["TokenTree", list[tuple[int, ...]]]:
        """One tree in which nodes with equal text are one node, and a map old node → new node for each input tree.

        Nodes are merged, draws never: keep one row of `Proposal.probs` per draw and let `Proposal.nodes` say where it
        landed. Siblings keep the order in which they first appear.
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
