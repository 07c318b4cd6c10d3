"""SpecExec: the most probable tree of a draft model. Source: Svirschevski et al. 2024."""

import math
from heapq import nsmallest

import torch

from specdec_lite import checks
from specdec_lite.drafters.trees.tree_session import ModelTreeDrafter, ModelTreeSession
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Limits
from specdec_lite.transfer import download
from specdec_lite.tree import TokenTree

DECAY = math.log(0.95)


class SpecExecDrafter(ModelTreeDrafter):
    """Choose the `nodes` continuations that are likeliest under the draft.

    A node's score is its parent's plus log q + log 0.95. Levels are added while a new node is
    among the best. Tokens are chosen, not drawn, so any may be pruned, and the paper's rule,
    `sample_and_match`, accepts as many of them as the default rule.

    Args:
        draft: a `CausalLM` with the target's vocabulary.
        nodes: largest number of nodes, ≥ 1.
        width: largest number of children per node, ≥ 1.
        depth: largest number of levels, ≥ 1.
    """

    def __init__(self, draft: CausalLM, nodes: int = 32, width: int = 16, depth: int = 8):
        super().__init__(draft)
        self.nodes = checks.whole("nodes", nodes, 1)
        self.width = checks.whole("width", width, 1)
        self.depth = checks.whole("depth", depth, 1)

    def start(self, context: Context) -> "SpecExecSession":
        return SpecExecSession(self, context)

    def limits(self) -> Limits:
        return Limits(min(self.depth, self.nodes), self.nodes, branches=self.width > 1)


class SpecExecSession(ModelTreeSession):
    """The drafting of one generation."""

    def __init__(self, drafter: SpecExecDrafter, context: Context):
        super().__init__(drafter.model, drafter.depth * drafter.nodes + 1, context)
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        drafter = self.drafter
        levels = min(drafter.depth, context.wanted - 1)
        if levels < 1:
            return NOTHING
        temperature = context.sampling.temperature or 1.0
        tokens: list[int] = []  # tokens of all candidates, in drafting order
        parents: list[int] = []
        scores: list[float] = []
        best_nodes: set[int] = set()
        order: list[int] = []  # candidates that were fed
        frontier = [-1]
        rows = [self.begin(context)]
        for level in range(levels):
            first = len(tokens)
            log_q = (torch.stack(rows) / temperature).log_softmax(-1)
            best = log_q.topk(min(drafter.width, log_q.shape[-1]))
            host = download(tokens=best.indices.flatten(), values=best.values.flatten())
            above = [parent for parent in frontier for _ in range(best.values.shape[-1])]
            for parent, token, value in zip(above, host["tokens"], host["values"]):
                tokens.append(int(token))
                parents.append(parent)
                scores.append((scores[parent] if parent >= 0 else 0.0) + value + DECAY)
            # Scores only fall along a path: once no new node is among the best, none will be.
            fresh = range(first, len(tokens))
            # Among equal scores the older node wins, so no child is kept without its parent.
            best_nodes = set(nsmallest(drafter.nodes, range(len(tokens)), lambda n: -scores[n]))
            frontier = [node for node in fresh if node in best_nodes]
            if not frontier or level == levels - 1:
                break
            order += frontier
            numbers = {-1: -1} | {node: i for i, node in enumerate(order)}
            fed = TokenTree([tokens[n] for n in order], [numbers[parents[n]] for n in order])
            rows = self.rows(context, fed, range(len(fed) - len(frontier), len(fed)))
        return Proposal(TokenTree(tokens, parents).prune(best_nodes)[0])
