"""A tree of the same shape in every round, drafted by a model level by level."""

import torch
from torch import Tensor

from specdec_lite.checks import instance
from specdec_lite.drafters.trees.expansion import (
    Child,
    Siblings,
    TreeBuilder,
    with_replacement,
    without_replacement,
)
from specdec_lite.drafters.trees.tree_session import ModelTreeDrafter, ModelTreeSession
from specdec_lite.drafters.trees.tree_shapes import check_draws
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Limits
from specdec_lite.tree import TokenTree


class FixedTreeDrafter(ModelTreeDrafter):
    """Draft a tree of a given shape with a model of the same vocabulary.

    At temperature 0 siblings are the draft's likeliest tokens, chosen, because a one-hot row has
    only one token to draw. If a row (top-k, top-p) runs out of tokens, a node has fewer children,
    and the subtrees of the missing ones are not drafted. If two draws give the same token, their
    node has the children of both.

    Args:
        draft: a `CausalLM`.
        tree: the shape; only its parents are used (`drafters.trees.tree_shapes` builds some).
        siblings: how the children of a node are drawn: `without_replacement`, `with_replacement`
            or `drawn_then_chosen` of `drafters.trees.expansion`.
    """

    def __init__(self, draft: CausalLM, tree: TokenTree, siblings: Siblings = without_replacement):
        super().__init__(draft)
        self.tree = instance("tree", tree, TokenTree, "a TokenTree, the shape")
        self.siblings = instance("siblings", siblings, Siblings)

    def start(self, context: Context) -> "FixedTreeSession":
        return FixedTreeSession(self, context)

    def check_rule(self, rule: object) -> None:
        most = max((len(self.tree.children(node)) for node in range(-1, len(self.tree))), default=0)
        check_draws(rule, most, self.siblings is with_replacement)

    def limits(self) -> Limits:
        return Limits(self.tree.levels, len(self.tree))


class FixedTreeSession(ModelTreeSession):
    """The drafting of one generation."""

    def __init__(self, drafter: FixedTreeDrafter, context: Context):
        super().__init__(drafter.model, len(drafter.tree) + 1, context)
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        shape = self.drafter.tree
        builder = TreeBuilder()
        queue = [(-1, shape.children(-1))]  # (node, the nodes of the shape to draft below it)
        for level in range(min(shape.levels, context.wanted - 1)):
            if not any(below for _, below in queue):
                break
            # The whole level in one pass: nodes of earlier levels are in the cache.
            nodes = [node for node, _ in queue]
            rows = self.rows(context, builder.tree, nodes) if level else [self.begin(context)]
            children: dict[int, tuple[int, ...]] = {}
            families = self._families(context, rows, [len(below) for _, below in queue])
            for (node, below), family in zip(queue, families):
                for entry, child in zip(below, family):
                    # Two draws of one token meet in one node, which then has the children of both.
                    number = builder.add(node, *child)
                    children[number] = children.get(number, ()) + shape.children(entry)
            queue = list(children.items())
        return builder.proposal()

    def _families(
        self, context: Context, rows: list[Tensor], counts: list[int]
    ) -> list[list[Child]]:
        """Return `counts` children after each node, from its logits [V]."""
        if context.sampling.greedy:
            most = min(max(counts), len(rows[0]))
            best = torch.stack(rows).topk(most).indices.tolist()
            return [[(token, None) for token in row[:n]] for row, n in zip(best, counts)]
        rows = [context.sampling(row) for row in rows]
        return self.drafter.siblings.level(rows, counts, context.rng)
