"""The most probable tree of a draft model, best first.

Source: Svirschevski et al. 2024 (SpecExec).
"""

import math
from heapq import nsmallest

from specdec_lite import checks
from specdec_lite.drafters.growing import GrowingDrafter, GrowingSession
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Shape
from specdec_lite.tree import TokenTree

DECAY = math.log(0.95)


class SpecExecDrafter(GrowingDrafter):
    """Choose the `nodes` continuations that the draft holds likeliest, and verify them in one pass.

    Args:
        draft: a `CausalLM` with the target's vocabulary.
        nodes: the most drafted nodes, ≥ 1.
        width: the most children of a node, ≥ 1.
        depth: the most levels, ≥ 1.

    A node's score is its parent's plus log q, less a little for every level (0.95). The tree grows
    level by level while a new node is among the best. Tokens are chosen, not drawn, so it may be
    pruned at will, and the rule that the paper uses, `sample_and_match`, keeps as many of them as
    the walk does.
    """

    def __init__(self, draft: CausalLM, nodes: int = 32, width: int = 16, depth: int = 8):
        super().__init__(draft)
        self.nodes = checks.whole("nodes", nodes, 1)
        self.width = checks.whole("width", width, 1)
        self.depth = checks.whole("depth", depth, 1)

    def start(self, context: Context) -> "SpecExecSession":
        return SpecExecSession(self, context)

    def shape(self) -> Shape:
        return Shape(min(self.depth, self.nodes), self.nodes)


class SpecExecSession(GrowingSession):
    def __init__(self, drafter: SpecExecDrafter, context: Context):
        super().__init__(drafter.model, drafter.depth * drafter.nodes + 1, context)
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        drafter = self.drafter
        self.root = len(context.tokens)
        self.fed = {}
        levels = min(drafter.depth, context.wanted - 1)
        if levels < 1:
            return NOTHING
        temperature = context.sampling.temperature or 1.0
        tokens: list[int] = []  # of all candidates, in the order of their making
        parents: list[int] = []
        scores: list[float] = []
        kept: set[int] = set()
        order: list[int] = []  # the candidates that were fed
        frontier = [-1]
        rows = [self.begin(context)]
        for level in range(levels):
            for parent, row in zip(frontier, rows):
                above = scores[parent] if parent >= 0 else 0.0
                best = (row / temperature).log_softmax(-1).topk(min(drafter.width, len(row)))
                for value, token in zip(best.values.tolist(), best.indices.tolist()):
                    tokens.append(token)
                    parents.append(parent)
                    scores.append(above + value + DECAY)
            fresh = range(len(tokens) - len(rows) * len(best.indices), len(tokens))
            # Of equal scores the older one: a child is never kept without its parent.
            kept = set(nsmallest(drafter.nodes, range(len(tokens)), lambda node: -scores[node]))
            frontier = [node for node in fresh if node in kept]
            if not frontier or level == levels - 1:
                break
            order += frontier
            place = {-1: -1} | {node: i for i, node in enumerate(order)}
            fed = TokenTree([tokens[n] for n in order], [place[parents[n]] for n in order])
            rows = self.rows(context, fed, range(len(fed) - len(frontier), len(fed)))
        tree, old = TokenTree(tokens, parents).prune(kept)
        fed_at = {node: i for i, node in enumerate(order)}
        self.fed = {new: fed_at[node] for new, node in enumerate(old) if node in fed_at}
        return Proposal(tree)
