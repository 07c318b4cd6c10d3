"""A tree of one shape in every round, drafted by a model level by level.

What lives here: the drafter of any shape. What does not: which shape (`shapes`), how siblings are
made (`grow`).
"""

from collections.abc import Callable

from torch import Tensor

from specdec_lite.checks import instance
from specdec_lite.drafters.grow import Child, grow, likeliest, without_replacement
from specdec_lite.drafters.growing import GrowingDrafter, GrowingSession
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Rng
from specdec_lite.speculation import Context, Shape
from specdec_lite.tree import TokenTree

Siblings = Callable[[Tensor, int, Rng], list[Child]]


class ShapedDrafter(GrowingDrafter):
    """Draft a tree of a given shape with a model of the same vocabulary.

    Args:
        draft: a `CausalLM`.
        tree: a shape, of which only the parents matter (`drafters.shapes` makes them).
        siblings: siblings(row [V], count, rng) makes the children of a node: `without_replacement`,
            `with_replacement` or `drawn_then_chosen` of `drafters.grow`.

    At temperature 0 siblings are the draft's likeliest tokens, chosen: a one-hot row has but one
    token to draw. Where a row (top-k, top-p) runs out of tokens a node has fewer children, and what
    would hang from the missing ones is not drafted; where two draws fall on one token their node
    has the children of both.
    """

    def __init__(self, draft: CausalLM, tree: TokenTree, siblings: Siblings = without_replacement):
        super().__init__(draft)
        self.tree = instance("tree", tree, TokenTree, "a TokenTree, the shape")
        self.siblings = siblings

    def start(self, context: Context) -> "ShapedSession":
        return ShapedSession(self, context)

    def shape(self) -> Shape:
        return Shape(self.tree.levels, len(self.tree))


class ShapedSession(GrowingSession):
    def __init__(self, drafter: ShapedDrafter, context: Context):
        super().__init__(drafter.model, len(drafter.tree) + 1, context)
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        shape = self.drafter.tree
        self.root = len(context.tokens)
        self.fed = {}
        places: dict[int, list[int]] = {-1: [-1]}  # node → the shape's children that grow below it
        below = lambda node: [child for place in places[node] for child in shape.children(place)]

        def children(tree: TokenTree, nodes: list[int]) -> list[list[Child]]:
            if not any(map(below, nodes)):
                return []
            at_root = nodes == [-1]
            rows = [self.begin(context)] if at_root else self.rows(context, tree, nodes)
            self.fed |= {} if at_root else {node: node for node in nodes}
            families = []
            made = len(tree)
            for node, row in zip(nodes, rows):
                family = self._siblings(context, row, len(below(node)))
                landed: dict[int, int] = {}
                for place, (token, _) in zip(below(node), family):
                    made += token not in landed
                    places.setdefault(landed.setdefault(token, made - 1), []).append(place)
                families.append(family)
            return families

        return grow(context, children, shape.levels)

    def _siblings(self, context: Context, row: Tensor, count: int) -> list[Child]:
        if not count:
            return []
        if context.sampling.greedy:
            return likeliest(row, min(count, len(row)))
        return self.drafter.siblings(context.sampling(row), count, context.rng)
