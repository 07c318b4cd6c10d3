"""Draft token trees: expand a tree level by level, choose or draw siblings, and merge proposals.

At the end are shapes for drawn trees. `model_trees` has the drafters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specdec_lite.checks import instance, number, whole
from specdec_lite.contract import Context
from specdec_lite.proposal import NOTHING, Proposal, Step, one_hot
from specdec_lite.sampling import Rng, draw_unread
from specdec_lite.transfer import download, upload
from specdec_lite.tree import TokenTree

Child = tuple[int, Tensor | None]
"""A token and the distribution [V] that it was drawn from; None: the token was chosen."""

ScoreLevel = Callable[[Tensor, Tensor], Tensor]
"""score(tokens [n], above [n]) → logits [n, V] after new nodes. The parent of node i is number
above[i] of the nodes of the call before; before the first call there is only the root, number 0."""


def stack_rows(tokens: Sequence[int], rows: Sequence[Tensor | None]) -> Tensor | None:
    """Return the rows as one tensor [d, V], one-hot for chosen tokens; None if all were chosen.

    Shapes: rows [V].
    """
    drawn = [row for row in rows if row is not None]
    if not drawn:
        return None
    like = drawn[0]
    pairs = zip(tokens, rows)
    return torch.stack(
        [
            one_hot(t, like) if row is None else upload(row, like.device, like.dtype)
            for t, row in pairs
        ]
    )


def expand_tree(
    context: Context, children: Callable[[TokenTree, list[int]], list[list[Child]]], levels: int
) -> Proposal:
    """Draft a tree level by level. Nodes are numbered in this order.

    Args:
        context: context of this round.
        children: children(tree, nodes) returns, for each node of the newest level (at first the
            root, −1), its children in sibling order. Drawn children come before chosen ones.
            Equal tokens become one node, and every draw keeps its row.
        levels: largest number of levels.
    """
    tokens: list[int] = []
    parents: list[int] = []
    nodes: list[int] = []  # of the draws
    rows: list[Tensor | None] = []
    numbers: dict[tuple[int, int], int] = {}
    level = [-1]
    for _ in range(min(levels, context.wanted - 1)):
        known = len(tokens)
        families = zip(level, children(TokenTree(tokens, parents), level))
        for parent, token, row in ((parent, *child) for parent, each in families for child in each):
            # Two draws of one token are one node, but stay two draws, each with its own row.
            node = numbers.setdefault((parent, token), len(tokens))
            if node == len(tokens):
                tokens.append(token)
                parents.append(parent)
            nodes.append(node)
            rows.append(row)
        level = list(range(known, len(tokens)))
        if not level:
            break
    if not tokens:
        return NOTHING
    probs = stack_rows([tokens[node] for node in nodes], rows)
    return Proposal(TokenTree(tokens, parents), probs, None if probs is None else nodes)


def expand_ranked_tree(
    context: Context, first: Tensor, score: ScoreLevel, ranks: TokenTree, ids: Tensor | None = None
) -> Proposal:
    """Draft a tree whose shape was chosen in advance.

    At temperature 0, a node of rank r is the r-th likeliest child of its parent. Above 0, siblings
    are drawn without replacement. The device is read at most once, after all levels.

    Shapes: first [1, V].
    """
    order: list[int] = []  # the nodes of `ranks`, level by level
    tokens: list[Tensor] = []
    families: list[Family] = []
    level, fed, logits = [-1], [-1], first
    for depth in range(min(ranks.levels, context.wanted - 1)):
        if depth:
            # Only inner nodes are fed: no child is drawn from a leaf's logits.
            inner = [entry for entry, node in enumerate(level) if ranks.children(node)]
            above = [fed.index(ranks.parents[level[entry]]) for entry in inner]
            fed = [level[entry] for entry in inner]
            logits = score(
                tokens[-1][upload(inner, first.device)], upload(above, first.device, torch.long)
            )
        level = [child for node in fed for child in ranks.children(node)]
        order += level
        if context.sampling.greedy:
            # One topk serves all nodes of the level; each then takes the entry of its rank.
            parents = [entry for entry, node in enumerate(fed) for _ in ranks.children(node)]
            wanted = ranks.tokens[level]
            best = logits.topk(min(logits.shape[-1], int(wanted.max()) + 1)).indices
            best = best if ids is None else ids[best]
            tokens.append(best[upload(parents, best.device), upload(wanted, best.device)])
        else:
            drawn = [
                without_replacement(row, len(ranks.children(node)), context.rng)
                for row, node in zip(context.sampling(logits), fed)
            ]
            tokens.append(torch.cat([family.tokens for family in drawn]))
            families += drawn
    if not order:
        return NOTHING
    numbers = {-1: -1} | {node: number for number, node in enumerate(order)}
    tree = TokenTree.trusted(
        torch.cat(tokens), tuple(numbers[ranks.parents[node]] for node in order)
    )
    if context.sampling.greedy:
        return Proposal(tree)
    # A row that ran out of tokens has fewer children; nodes below the missing ones are dropped.
    masses = torch.cat([family.masses for family in families]).tolist()
    kept: set[int] = set()
    for node, (mass, parent) in enumerate(zip(masses, tree.parents)):
        if mass > 0 and (parent < 0 or parent in kept):
            kept.add(node)
    tree, nodes = tree.prune(kept)
    rows = [row for family in families for row in family.rows]
    return Proposal(tree, stack_rows([0] * len(nodes), [rows[node] for node in nodes]))


@dataclass(frozen=True, slots=True)
class ConfidenceTree:
    """Sizes of a tree that follows the draft's confidence.

    Source: Li et al. 2024b (EAGLE-2), section 4, where they are called k, depth and m.

    Attributes:
        width: nodes expanded per level, and children per expanded node.
        levels: largest number of levels.
        nodes: nodes kept in the end, those with the largest product of q along their path.
    """

    width: int = 4
    levels: int = 4
    nodes: int = 16

    def __post_init__(self):
        for name in ("width", "levels", "nodes"):
            whole(name, getattr(self, name), 1)


def expand_confidence_tree(
    context: Context,
    first: Tensor,
    score: ScoreLevel,
    sizes: ConfidenceTree,
    ids: Tensor | None = None,
) -> Proposal:
    """Expand the nodes of which the draft is most confident, then keep the best of all nodes.

    Every token is chosen, at any temperature: a drawn token could not be dropped after its q was
    read. No node has a larger value than its parent, and among equal values the older node is
    kept, so the nodes kept form a tree. The device is read once, after all levels.

    Shapes: first [1, V].
    """
    width = min(sizes.width, first.shape[-1])
    logits = first
    fed = torch.full((1,), -1, device=first.device)  # the nodes fed last, at first the root
    value = torch.zeros(1, dtype=torch.float64, device=first.device)
    tokens: list[Tensor] = []
    parents: list[Tensor] = []
    values: list[Tensor] = []
    count = 0
    for level in range(min(sizes.levels, context.wanted - 1)):
        if level:
            # Which nodes to expand is decided on the device: a read per level would wait for it.
            best = values[-1].sort(descending=True, stable=True).indices[: sizes.width]
            best = best.sort().values
            logits = score(tokens[-1][best], best // width)
            fed, value = count - len(tokens[-1]) + best, values[-1][best]
        top = logits.log_softmax(-1).topk(width)
        tokens.append((top.indices if ids is None else ids[top.indices]).flatten())
        parents.append(fed[:, None].expand(-1, width).flatten())
        # log q may round to just above 0. A child that outranks its parent would not form a tree.
        values.append((value[:, None] + top.values.double().clamp(max=0)).flatten())
        count += len(tokens[-1])
    if not count:
        return NOTHING
    host = download(tokens=torch.cat(tokens), parents=torch.cat(parents), values=torch.cat(values))
    grown = TokenTree(list(map(int, host["tokens"])), list(map(int, host["parents"])))
    ranked = sorted(range(count), key=lambda node: -host["values"][node])
    return Proposal(grown.prune(ranked[: sizes.nodes])[0])


@dataclass(frozen=True, slots=True)
class Family:
    """The children of one node, before the host has read them.

    Attributes:
        tokens: [n] ids.
        masses: [n]; 0 for a child that does not exist, because the row had run out of tokens.
        rows: for each child the distribution [V] that it was drawn from; None if it was chosen.
    """

    tokens: Tensor
    masses: Tensor
    rows: Sequence[Tensor | None]


Siblings = Callable[[Tensor, int, Rng], Family]
"""siblings(row [V], count ≥ 1, rng) draws the children of a node."""


def read_children(families: Sequence[Family]) -> list[list[Child]]:
    """Return the children of some nodes, at least one, which are read together."""
    host = download(
        tokens=torch.cat([family.tokens for family in families]),
        masses=torch.cat([family.masses for family in families]),
    )
    numbers = zip(host["tokens"], host["masses"])
    return [
        [(int(token), row) for row, (token, mass) in zip(family.rows, numbers) if mass > 0]
        for family in families
    ]


def without_replacement(row: Tensor, count: int, rng: Rng) -> Family:
    """Draw different tokens one after another, each with the renormalised row it was drawn from.

    Shapes: row [V].
    """
    tokens, masses, rows = [], [], []
    rest = row
    for _ in range(count):
        # Each sibling's row is the one it was drawn from: without its elder siblings, renormalized.
        masses.append(rest.sum(-1, keepdim=True))
        rows.append(rest / masses[-1])
        tokens.append(draw_unread(rng, rows[-1]))
        rest = rows[-1].index_fill(-1, tokens[-1], 0)
    return Family(torch.cat(tokens), torch.cat(masses), rows)


def with_replacement(row: Tensor, count: int, rng: Rng) -> Family:
    """Draw tokens independently. Equal tokens become one node with two draws.

    Shapes: row [V].
    """
    tokens = torch.cat([draw_unread(rng, row) for _ in range(count)])
    return Family(tokens, torch.ones_like(tokens), [row] * count)


def drawn_then_chosen(row: Tensor, count: int, rng: Rng) -> Family:
    """Choose the `count` − 1 likeliest tokens, and before them draw one from the rest of the row.

    No lossless rule accepts one of these siblings more often than the walk does. Only tokens of
    positive probability are chosen. If no mass remains, no token is drawn. Source: Hu et al. 2025;
    the order is ours.

    Shapes: row [V].
    """
    best = row.topk(min(count - 1, len(row)))
    # The drawn sibling comes first in order, but from what the chosen ones leave.
    drawn = without_replacement(row.index_fill(-1, best.indices, 0), 1, rng)
    return Family(
        torch.cat((drawn.tokens, best.indices)),
        torch.cat((drawn.masses, best.values)),
        [*drawn.rows, *[None] * len(best.indices)],
    )


def merge(drafts: Sequence[Proposal]) -> tuple[Proposal, list[tuple[int, ...]]]:
    """Merge several proposals into one tree.

    Equal prefixes share their nodes, and every draw keeps its row. Draws are in the order of the
    drafts, except that chosen tokens come last: tested first, they would lower the acceptance of
    drawn tokens. Source: Miao et al. 2024.
    """
    # The sort is stable, and no drawn sibling moves past another: their order is part of the
    # distribution.
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
    nodes: list[int] = []
    rows: list[Tensor | None] = []
    for i in order:
        landed, probs = drafts[i].nodes, drafts[i].probs
        nodes += maps[i] if landed is None else [maps[i][node] for node in landed]
        rows += [None] * (len(nodes) - len(rows)) if probs is None else list(probs)
    probs = stack_rows(tree.tokens[nodes].tolist(), rows)
    acceptable = None if len(candidates) == len(tree) else candidates
    return Proposal(tree, probs, None if probs is None else nodes, acceptable), maps


# Shapes for drawn trees, as trees of ranks ------------------------------------------------------
# Rank 0 is the sibling that is tested first. Source: Chen et al. 2024 (Sequoia).

DEPTH = 16


def balanced(widths: Sequence[int]) -> TokenTree:
    """Return the tree in which every node of level i has widths[i] children."""
    return TokenTree.cartesian([range(whole("widths", width, 1)) for width in widths])


def sibling_rates(steps: Sequence[Step], count: int) -> list[float]:
    """Return how often the first, second, … of `count` siblings was accepted.

    The rates are relative to all nodes on accepted paths where siblings were tested: Sequoia's
    acceptance vector.
    """
    whole("count", count, 1)
    visits = 0
    accepted = [0] * count
    for step in steps:
        for level, tests in enumerate(step.tests):
            visits += 1
            # The last test of a level succeeded exactly if the path goes through this level.
            if level < len(step.path) and tests <= count:
                accepted[tests - 1] += 1
    if not visits:
        raise ValueError("steps contain no test of a drafted token: there is nothing to measure")
    return [times / visits for times in accepted]


def check_ranks(tree: TokenTree, levels: int, vocab_size: int) -> TokenTree:
    """Return a tree of ranks after checking that heads can fill it."""
    instance("tree", tree, TokenTree, "a TokenTree of ranks, such as TokenTree.chain([0, 0, 0])")
    if tree.levels > levels:
        raise ValueError(f"tree has {tree.levels} levels: must have at most {levels}, one per head")
    ranks = tree.tokens.tolist()
    if ranks and not 0 <= min(ranks) <= max(ranks) < vocab_size:
        raise ValueError(
            f"tree holds ranks {min(ranks)} … {max(ranks)}: must be in 0 … {vocab_size - 1}"
        )
    return tree


def best_shape(
    rates: Sequence[float],
    nodes: int,
    depth: int | None = None,
    seconds: Callable[[int, int], float] | None = None,
) -> TokenTree:
    """Return the tree with the largest expected number of accepted tokens.

    With seconds(n, d) of a round of n nodes in d levels: the tree with the most expected tokens per
    second, which is the empty one if drafting does not pay.

    A dynamic program over (nodes, levels, siblings): a sibling exists only if all earlier ones do,
    since draws are tested in order. If rates fall with the rank, the result is that of
    `TokenTree.best`, which is greedy. Source: Chen et al. 2024 (Sequoia).
    """
    rates = [number(f"rates[{rank}]", rate) for rank, rate in enumerate(rates)]
    if not rates or sum(rates) > 1 + 1e-9:
        raise ValueError(f"rates={rates}: must be one share for each sibling, at most 1 in all")
    nodes = whole("nodes", nodes)
    depth = min(nodes, DEPTH if depth is None else whole("depth", depth, 1))
    # value[d, b, n]: the largest expected number of accepted tokens from n nodes below an accepted
    # node, in d levels, if siblings 0 … b − 1 exist already. first[d, b, n]: how many of the n
    # nodes go to sibling b and its subtree; 0: no sibling is added.
    value = np.zeros((depth + 1, len(rates) + 1, nodes + 1))
    first = np.zeros(value.shape, dtype=int)
    for d in range(1, depth + 1):
        for b in reversed(range(len(rates))):
            for n in range(1, nodes + 1):
                below = rates[b] * (1 + value[d - 1, 0, :n])  # of 1 … n nodes for sibling b
                total = below + value[d, b + 1, n - 1 :: -1]
                if total.max() > 0:
                    first[d, b, n] = 1 + int(total.argmax())
                    value[d, b, n] = total.max()
    if seconds is not None:
        sizes = [(0, 0), *((n, d) for d in range(1, depth + 1) for n in range(1, nodes + 1))]
        nodes, depth = max(
            sizes, key=lambda size: (1 + value[size[1], 0, size[0]]) / seconds(*size)
        )
    ranks: list[int] = []
    parents: list[int] = []
    queue = [(-1, nodes, depth)]
    for parent, n, d in queue:  # entries are appended during the loop
        rank = 0
        while n > 0 and d > 0 and rank < len(rates) and first[d, rank, n]:
            taken = int(first[d, rank, n])
            queue.append((len(ranks), taken - 1, d - 1))
            ranks.append(rank)
            parents.append(parent)
            n -= taken
            rank += 1
    return TokenTree(ranks, parents)


def expected_tokens(shape: TokenTree, rates: Sequence[float]) -> float:
    """Return the expected tokens per round, including the target's own."""
    return 1.0 + shape.worth([list(rates)] * shape.levels).sum().item()
