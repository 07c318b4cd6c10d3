"""Draft token trees: expand a tree level by level, choose or draw siblings, and merge proposals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lite.checks import whole
from specdec_lite.proposal import NOTHING, Proposal, one_hot, read
from specdec_lite.sampling import Rng, draw_unread, upload
from specdec_lite.speculation import Context
from specdec_lite.tree import TokenTree

Child = tuple[int, Tensor | None]
"""A token and the distribution [V] that it was drawn from; None: the token was chosen."""

ScoreNodes = Callable[[TokenTree, list[int]], Tensor]
"""score(tree, nodes) → logits [len(nodes), V] after these nodes of the tree; −1 is the root. The
parents of the nodes were scored by an earlier call."""


class TreeBuilder:
    """A proposal under construction.

    Attributes:
        tokens: token of every node.
        parents: parent of every node; −1 for a child of the root.
        nodes: node of every draw.
        rows: distribution [V] of every draw; None if the token was chosen.
    """

    def __init__(self):
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.nodes: list[int] = []
        self.rows: list[Tensor | None] = []
        self._numbers: dict[tuple[int, int], int] = {}

    @property
    def tree(self) -> TokenTree:
        """The tree of all nodes so far."""
        return TokenTree(self.tokens, self.parents)

    def add(self, parent: int, token: int, row: Tensor | None = None) -> int:
        """Add one draw and return its node. Equal siblings share a node.

        Args:
            parent: node that the token follows; −1 for the root.
            token: token id.
            row: distribution [V] that the token was drawn from; None if it was chosen.
        """
        node = self._numbers.setdefault((parent, token), len(self.tokens))
        if node == len(self.tokens):
            self.tokens.append(token)
            self.parents.append(parent)
        self.nodes.append(node)
        self.rows.append(row)
        return node

    def proposal(self) -> Proposal:
        """Return the tree with the row of every draw."""
        if not self.tokens:
            return NOTHING
        probs = stack_rows([self.tokens[node] for node in self.nodes], self.rows)
        return Proposal(self.tree, probs, None if probs is None else self.nodes)


def stack_rows(tokens: Sequence[int], rows: Sequence[Tensor | None]) -> Tensor | None:
    """Return the rows as one tensor [d, V], one-hot for chosen tokens; None if all were chosen.

    Args:
        tokens: token of every draw.
        rows: distribution [V] of every draw; None if the token was chosen.
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
    context: Context,
    children: Callable[[TokenTree, list[int]], list[list[Child]]],
    levels: int,
    budget: int | None = None,
) -> Proposal:
    """Draft a tree level by level. Nodes are numbered in this order.

    Args:
        context: context of this round.
        children: children(tree, nodes) returns, for each node of the newest level (at first the
            root, −1), its children in sibling order. Drawn children come before chosen ones.
            Equal tokens become one node, and every draw keeps its row.
        levels: largest number of levels.
        budget: largest number of draws; None for no limit. Draws beyond it are cut in drafting
            order, which does not depend on the tokens.
    """
    builder = TreeBuilder()
    level = [-1]
    for _ in range(min(levels, context.wanted - 1)):
        families = zip(level, children(builder.tree, level))
        draws = [(parent, *child) for parent, family in families for child in family]
        room = len(draws) if budget is None else budget - len(builder.nodes)
        level = list(dict.fromkeys(builder.add(*draw) for draw in draws[:room]))
        if not level:
            break
    return builder.proposal()


def expand_ranked_tree(context: Context, score: ScoreNodes, ranks: TokenTree) -> Proposal:
    """Draft a tree whose shape was chosen in advance.

    At temperature 0, a node of rank r is the r-th likeliest child of its parent. Above 0, siblings
    are drawn without replacement.

    Args:
        context: context of this round.
        score: returns the logits after given nodes.
        ranks: the shape, a tree of ranks.
    """
    builder = TreeBuilder()
    queue = [(-1, -1)]  # (node, its node in `ranks`)
    for _ in range(min(ranks.levels, context.wanted - 1)):
        families = [(node, kin) for node, rank in queue if (kin := ranks.children(rank))]
        if not families:
            break
        queue = []
        logits = score(builder.tree, [node for node, _ in families])
        if context.sampling.greedy:
            children = ranked_children(logits, [ranks.tokens[list(kin)] for _, kin in families])
        else:
            rows = context.sampling(logits)
            children = [
                without_replacement(row, len(kin), context.rng)
                for row, (_, kin) in zip(rows, families)
            ]
        for (parent, kin), family in zip(families, children):
            queue += [(builder.add(parent, *child), rank) for rank, child in zip(kin, family)]
    return builder.proposal()


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
    context: Context, score: ScoreNodes, sizes: ConfidenceTree
) -> tuple[Proposal, list[float]]:
    """Expand the nodes of which the draft is most confident, then keep the best of all nodes.

    Every token is chosen, at any temperature: a drawn token could not be dropped after its q was
    read. No node has a larger value than its parent, and among equal values the older node is
    kept, so the nodes kept form a tree.

    Args:
        context: context of this round.
        score: returns the logits after given nodes.
        sizes: width, levels and number of nodes.

    Returns:
        The proposal, and for each of its nodes the value: log q summed along its path.
    """
    builder = TreeBuilder()
    values: list[float] = []
    value_of = lambda node: values[node] if node >= 0 else 0.0

    def best(nodes: Sequence[int], count: int) -> list[int]:
        return sorted(sorted(nodes, key=lambda node: (-value_of(node), node))[:count])

    level = [-1]
    for _ in range(min(sizes.levels, context.wanted - 1)):
        frontier = best(level, sizes.width)
        log_q = score(builder.tree, frontier).log_softmax(-1)
        top = log_q.topk(min(sizes.width, log_q.shape[-1]))
        host = read(tokens=top.indices.flatten(), logs=top.values.flatten())
        parents = [parent for parent in frontier for _ in range(top.values.shape[-1])]
        level = [builder.add(parent, int(x)) for parent, x in zip(parents, host["tokens"])]
        values += [value_of(parent) + min(log, 0.0) for parent, log in zip(parents, host["logs"])]
    tree, nodes = builder.tree.prune(best(range(len(values)), sizes.nodes))
    return Proposal(tree), [values[node] for node in nodes]


def likeliest(logits: Tensor, count: int) -> list[Child]:
    """Choose the likeliest tokens.

    Args:
        logits: logits [V].
        count: number of tokens, ≤ V.
    """
    return [(token, None) for token in logits.topk(count).indices.tolist()]


def ranked_children(logits: Tensor, ranks: Sequence[Tensor]) -> list[list[Child]]:
    """Choose the tokens of given ranks after several nodes.

    Args:
        logits: logits [nodes, V].
        ranks: for each node, the ranks [n] of its children; 0 is the likeliest token.
    """
    most = max(int(row.max()) for row in ranks) + 1
    orders = logits.topk(min(logits.shape[-1], most)).indices.tolist()
    return [[(order[rank], None) for rank in row.tolist()] for order, row in zip(orders, ranks)]


def without_replacement(row: Tensor, count: int, rng: Rng) -> list[Child]:
    """Draw different tokens one after another, each with the renormalised row it was drawn from.

    Args:
        row: distribution [V].
        count: number of tokens; fewer are drawn if the row runs out of tokens.
        rng: source of randomness.
    """
    if count < 1:
        return []
    tokens, masses, rows = [], [], []
    rest = row
    for _ in range(count):
        masses.append(rest.sum(-1, keepdim=True))
        rows.append(rest / masses[-1])
        tokens.append(draw_unread(rng, rows[-1]))
        rest = rows[-1].index_fill(-1, tokens[-1], 0)
    host = read(tokens=torch.cat(tokens), masses=torch.cat(masses))
    drawn = zip(host["tokens"], host["masses"], rows)
    return [(int(token), row) for token, mass, row in drawn if mass > 0]


def with_replacement(row: Tensor, count: int, rng: Rng) -> list[Child]:
    """Draw tokens independently. Equal tokens become one node with two draws.

    Args:
        row: distribution [V].
        count: number of draws.
        rng: source of randomness.
    """
    tokens = torch.cat([draw_unread(rng, row) for _ in range(count)]).tolist() if count else []
    return [(token, row) for token in tokens]


def drawn_then_chosen(row: Tensor, count: int, rng: Rng) -> list[Child]:
    """Choose the `count` − 1 likeliest tokens, and before them draw one from the rest of the row.

    No lossless rule accepts one of these siblings more often than the walk does. Only tokens of
    positive probability are chosen. If no mass remains, no token is drawn. Source: Hu et al. 2025;
    the order is ours.

    Args:
        row: distribution [V].
        count: number of siblings.
        rng: source of randomness.
    """
    best = row.topk(min(count - 1, len(row)))
    drawn = without_replacement(row.index_fill(-1, best.indices, 0), 1, rng)
    host = read(tokens=best.indices, probs=best.values)
    chosen = [int(token) for token, prob in zip(host["tokens"], host["probs"]) if prob > 0]
    return [*drawn, *((token, None) for token in chosen)]


def merge(drafts: Sequence[Proposal]) -> tuple[Proposal, list[tuple[int, ...]]]:
    """Merge several proposals into one tree.

    Equal prefixes share their nodes, and every draw keeps its row. Draws are in the order of the
    drafts, except that chosen tokens come last: tested first, they would lower the acceptance of
    drawn tokens. Source: Miao et al. 2024.

    Args:
        drafts: the proposals.

    Returns:
        The merged proposal, and for each draft the merged node of each of its nodes.
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
    nodes: list[int] = []
    rows: list[Tensor | None] = []
    for i in order:
        landed, probs = drafts[i].nodes, drafts[i].probs
        nodes += maps[i] if landed is None else [maps[i][node] for node in landed]
        rows += [None] * (len(nodes) - len(rows)) if probs is None else list(probs)
    probs = stack_rows(tree.tokens[nodes].tolist(), rows)
    acceptable = None if len(candidates) == len(tree) else candidates
    return Proposal(tree, probs, None if probs is None else nodes, acceptable), maps
