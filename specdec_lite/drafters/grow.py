"""Growing a tree level by level: what tree drafters share, as chain drafters share `draft_chain`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lite.checks import whole
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


Expand = Callable[[TokenTree, list[int]], Tensor]
"""expand(tree, nodes) → logits [len(nodes), V] after these nodes of the tree ([−1]: after the root),
whose parents were expanded before them.
"""


def ranked(context: Context, expand: Expand, shape: TokenTree) -> Proposal:
    """A tree of a shape that was chosen beforehand: when greedy a node of rank r is the r-th
    likeliest child of its parent; above, siblings are drawn without replacement.

    Args:
        context: of this round.
        expand: see `Expand`.
        shape: a tree of ranks.
    """
    place = [-1]  # in the shape, of the root and of every node

    def children(tree: TokenTree, level: list[int]) -> list[list[Child]]:
        families = {node: shape.children(place[node + 1]) for node in level}
        parents = [node for node in level if families[node]]
        if not parents:
            return []
        made: dict[int, list[Child]] = {}
        for node, logits in zip(parents, expand(tree, parents)):
            kin = families[node]
            if context.sampling.greedy:
                order = logits.topk(min(len(logits), max(shape.tokens[list(kin)].tolist()) + 1))
                tokens = order.indices[shape.tokens[list(kin)].to(logits.device)].tolist()
                made[node] = [(token, None) for token in tokens]
            else:
                made[node] = without_replacement(context.sampling(logits), len(kin), context.rng)
        for node in parents:
            place.extend(families[node][: len(made[node])])
        return [made.get(node, []) for node in level]

    return grow(context, children, shape.levels)


@dataclass(frozen=True, slots=True)
class Growth:
    """How a tree is grown by confidence.

    width: nodes of a level that are expanded, and children of each. levels: the most. nodes: how
    many are kept in the end, those of the largest product of q along their path. Source: Li et al.
    2024b (EAGLE-2), section 4: k, depth and m.
    """

    width: int = 4
    levels: int = 4
    nodes: int = 16

    def __post_init__(self):
        for name in ("width", "levels", "nodes"):
            whole(name, getattr(self, name), 1)


def confident(
    context: Context, expand: Expand, growth: Growth, worth: list[float] | None = None
) -> Proposal:
    """A tree grown where the draft is sure of itself, then cut to its best nodes.

    Every token is *chosen*, at any temperature: a drawn one could not be dropped after a look at its
    q. No node is worth more than its parent, and of equals the older one is kept, so what is kept
    is a tree.

    Args:
        context: of this round.
        expand: see `Expand`.
        growth: how wide, deep and large.
        worth: is filled with log q along the path of every node that is kept.
    """
    value = {-1: 0.0}
    best = lambda nodes, count: sorted(sorted(nodes, key=lambda n: (-value[n], n))[:count])

    def children(tree: TokenTree, level: list[int]) -> list[list[Child]]:
        frontier = best(level, growth.width)
        likely = expand(tree, frontier).log_softmax(-1)
        top = likely.topk(min(growth.width, likely.shape[-1]))
        families = dict(zip(frontier, zip(top.indices.tolist(), top.values.tolist())))
        number = len(tree)
        for node in frontier:
            for chance in families[node][1]:
                value[number] = value[node] + min(chance, 0.0)
                number += 1
        return [[(token, None) for token in families.get(node, ((), ()))[0]] for node in level]

    tree = grow(context, children, growth.levels).tree
    tree, nodes = tree.prune(best(range(len(tree)), growth.nodes))
    if worth is not None:
        worth[:] = [value[node] for node in nodes]
    return Proposal(tree)


def with_replacement(row: Tensor, count: int, rng: Rng) -> list[Child]:
    """`count` tokens drawn independently from row [V]: equal ones become one node, and both draws
    count."""
    return [(rng.draw(row), row) for _ in range(count)]


def drawn_then_chosen(row: Tensor, count: int, rng: Rng) -> list[Child]:
    """The `count` − 1 likeliest tokens of row [V], chosen, and before them one drawn from the row
    without them. No rule accepts one of these siblings more often than the walk does.

    Only tokens of positive probability are chosen; where nothing is left to draw from, nothing is
    drawn. Source: Hu et al. 2025; the order is ours.
    """
    chosen = [token for token in row.topk(min(count - 1, len(row))).indices.tolist() if row[token]]
    rest = row.clone()
    rest[chosen] = 0
    return [*without_replacement(rest, 1, rng), *((token, None) for token in chosen)]


def merge(drafts: Sequence[Proposal]) -> tuple[Proposal, list[tuple[int, ...]]]:
    """One proposal of several, and for each of them where its nodes stand in it.

    Equal beginnings become one node, and every draw keeps its row. Draws stand in the order of the
    drafts, those of chosen tokens after all others: tested first, they would cost the drawn ones
    acceptance. Source: Miao et al. 2024.
    """
    order = sorted(range(len(drafts)), key=lambda i: drafts[i].probs is None)
    tree, sorted_maps = TokenTree.merge([drafts[i].tree for i in order])
    maps = [new for _, new in sorted(zip(order, sorted_maps))]
    if not len(tree):
        return NOTHING, maps
    candidates = frozenset(
        maps[i][node]
        for i, draft in enumerate(drafts)
        for node in (range(len(maps[i])) if draft.candidates is None else draft.candidates)
    )
    limits = None if len(candidates) == len(tree) else candidates
    if all(draft.probs is None for draft in drafts):
        return Proposal(tree, candidates=limits), maps
    like = drafts[order[0]].probs[0]
    rows = []
    nodes = []
    for i in order:
        tokens = drafts[i].tree.tokens.tolist()
        probs = drafts[i].probs
        landed = range(len(tokens)) if drafts[i].nodes is None else drafts[i].nodes
        for draw, node in enumerate(landed):
            rows.append(one_hot(tokens[node], like) if probs is None else probs[draw].to(like))
            nodes.append(maps[i][node])
    return Proposal(tree, torch.stack(rows), nodes, limits), maps
