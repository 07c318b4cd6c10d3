"""Growing a tree level by level: what tree drafters share, as chain drafters share `draft_chain`."""

from collections.abc import Callable

import torch
from torch import Tensor

from specdec_lite.proposal import NOTHING, Proposal, one_hot
from specdec_lite.sampling import Rng
from specdec_lite.speculation import Context
from specdec_lite.tree import TokenTree

Child = tuple[int, Tensor | None]


def grow(
    context: Context,
    children: Callable[[TokenTree, list[int]], list[list[Child]]],
    levels: int,
    budget: int | None = None,
) -> Proposal:
    """Draft a tree level by level.

    Args:
        context: of this round.
        children: children(tree, nodes) → for each of `nodes` (those of the newest level; at first
            [−1], the root) its children as (token, row), in sibling order. row: the distribution
            [V] that a drawn child came from; None: it was chosen. At one node drawn children stand
            before chosen ones. Equal tokens become one node, and every draw keeps its row.
        levels: the most levels.
        budget: the most draws in all; what lies beyond is cut in the order of drafting, which
            looks at no token.

    Nodes are numbered level by level.
    """
    tokens: list[int] = []
    parents: list[int] = []
    nodes: list[int] = []
    rows: list[Tensor | None] = []
    level = [-1]
    for _ in range(min(levels, context.wanted - 1)):
        above = level
        level = []
        for parent, family in zip(above, children(TokenTree(tokens, parents), above)):
            seen: dict[int, int] = {}
            for token, row in family:
                if budget is not None and len(nodes) == budget:
                    break
                if token not in seen:
                    seen[token] = len(tokens)
                    level.append(len(tokens))
                    tokens.append(token)
                    parents.append(parent)
                nodes.append(seen[token])
                rows.append(row)
        if not level:
            break
    if not tokens:
        return NOTHING
    drawn = [row for row in rows if row is not None]
    if not drawn:
        return Proposal(TokenTree(tokens, parents))
    made = [
        one_hot(tokens[node], drawn[0]) if row is None else row for node, row in zip(nodes, rows)
    ]
    return Proposal(TokenTree(tokens, parents), torch.stack(made), nodes)


def likeliest(logits: Tensor, count: int) -> list[Child]:
    """The `count` likeliest tokens of logits [V], as chosen children."""
    return [(token, None) for token in logits.topk(count).indices.tolist()]


def without_replacement(row: Tensor, count: int, rng: Rng) -> list[Child]:
    """Up to `count` different tokens drawn one after another from row [V], each with the
    renormalised row that it was really drawn from; fewer where the row runs out of tokens.
    """
    children: list[Child] = []
    left = row
    while len(children) < count and bool((mass := left.sum()) > 0):
        left = left / mass
        token = rng.draw(left)
        children.append((token, left))
        left = left.clone()
        left[token] = 0
    return children
