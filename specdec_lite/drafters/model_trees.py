"""Token trees drafted by a model: of a fixed shape, of Sequoia's, or of the likeliest tokens."""

import math
from collections.abc import Sequence
from heapq import nsmallest

import numpy as np
import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.checks import instance
from specdec_lite.contract import Context, Limits
from specdec_lite.drafters.chain import fit
from specdec_lite.drafters.models import DraftsWithModel, FollowingSession
from specdec_lite.drafters.trees import (
    Child,
    Siblings,
    best_shape,
    expand_tree,
    read_children,
    with_replacement,
    without_replacement,
)
from specdec_lite.engine.models import CausalLM
from specdec_lite.measure.timing import Costs
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import fed_tokens
from specdec_lite.transfer import download
from specdec_lite.tree import TokenTree

# A model that scores a tree level by level ------------------------------------------------------


class ModelTreeDrafter(DraftsWithModel):
    """Draft trees with a model of the target's vocabulary."""

    def __init__(self, draft: CausalLM):
        self.model = checks.model("draft", draft)


class ModelTreeSession(FollowingSession):
    """The drafting of one generation: subclass it and define `propose`."""

    def begin(self, context: Context) -> Tensor:
        """Feed the tokens committed since the last round and return the logits [V] after them."""
        logits = self._score(self.followed.behind(context.tokens)).logits
        return fit(logits[0, -1], context.vocab_size)

    def rows(self, context: Context, tree: TokenTree, nodes: Sequence[int]) -> list[Tensor]:
        """Feed nodes of a tree and return the logits [V] after each.

        A model that scores a tree path by path cannot continue one: it is fed the whole tree.
        """
        stored = len(tree) - len(nodes)  # the other nodes are in the cache since earlier levels
        if stored and getattr(self.model.backend, "by_path", False):
            self.cache.crop(len(context.tokens) - 1)
            fed = fed_tokens(self.model, context, Proposal(tree))
            logits = self._score(fed, tree, last=False).logits[0, 1 + stored :]
        else:
            logits = self._score(tree.tokens[stored:], tree, last=False, cached=stored).logits[0]
        self.followed.tree = tree
        return [fit(row, context.vocab_size) for row in logits]


# The same shape in every round ------------------------------------------------------------------


class FixedTreeDrafter(ModelTreeDrafter):
    """Draft a tree of a given shape with a model of the same vocabulary.

    At temperature 0 siblings are the draft's likeliest tokens, chosen, because a one-hot row has
    only one token to draw. If a row (top-k, top-p) runs out of tokens, a node has fewer children,
    and the subtrees of the missing ones are not drafted. If two draws give the same token, their
    node has the children of both.

    Args:
        draft: a `CausalLM`.
        tree: the shape; only its parents are used (`drafters.trees` builds some).
        siblings: how the children of a node are drawn: `without_replacement`, `with_replacement`
            or `drawn_then_chosen` of `drafters.trees`.
    """

    def __init__(self, draft: CausalLM, tree: TokenTree, siblings: Siblings = without_replacement):
        super().__init__(draft)
        self.tree = instance("tree", tree, TokenTree, "a TokenTree, the shape")
        self.siblings = siblings
        if not callable(siblings):
            raise TypeError(f"siblings={siblings!r}: must be a function of drafters.trees")

    def start(self, context: Context) -> "FixedTreeSession":
        return FixedTreeSession(self, context)

    def check_rule(self, rule: object) -> None:
        most = max((len(self.tree.children(node)) for node in range(-1, len(self.tree))), default=0)
        k = getattr(rule, "independent_draws", None)
        if k is None or most < 2:
            return
        name = getattr(rule, "name", rule)
        if self.siblings is not with_replacement:
            raise ValueError(
                f"rule={name} takes independent draws from one row, and this drafter's siblings"
                " differ: use siblings=with_replacement, or speculative_sampling"
            )
        if most > k:
            raise ValueError(
                f"rule={name} takes at most {k} draws at a node, and the tree has {most}: use"
                f" k_seq({most})"
            )

    def limits(self) -> Limits:
        return Limits(self.tree.levels, len(self.tree))


class FixedTreeSession(ModelTreeSession):
    def __init__(self, drafter: FixedTreeDrafter, context: Context):
        super().__init__(drafter.model, 1, len(drafter.tree) + 1, context)
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        shape = self.drafter.tree
        below: dict[tuple[int, int], tuple[int, ...]] = {}  # (parent, token) → nodes of the shape

        def children(tree: TokenTree, nodes: list[int]) -> list[list[Child]]:
            tokens, parents = tree.tokens.tolist(), tree.parents
            twins = [below[parents[n], tokens[n]] if n >= 0 else shape.children(n) for n in nodes]
            if not any(twins):
                return [[] for _ in nodes]
            # The whole level in one pass: nodes of earlier levels are in the cache.
            rows = self.rows(context, tree, nodes) if len(tree) else [self.begin(context)]
            families = self._families(context, rows, [len(each) for each in twins])
            for node, entries, family in zip(nodes, twins, families):
                for entry, (token, _) in zip(entries, family):
                    # Two draws of one token meet in one node, which then has the children of both.
                    below[node, token] = below.get((node, token), ()) + shape.children(entry)
            return families

        return expand_tree(context, children, shape.levels)

    def _families(
        self, context: Context, rows: list[Tensor], counts: list[int]
    ) -> list[list[Child]]:
        """Return `counts` children after each node, from its logits [V]."""
        if context.sampling.greedy:
            most = min(max(counts), len(rows[0]))
            best = torch.stack(rows).topk(most).indices.tolist()
            return [[(token, None) for token in row[:n]] for row, n in zip(best, counts)]
        draw = self.drafter.siblings
        pairs = [(context.sampling(row), n) for row, n in zip(rows, counts) if n]
        drawn = iter(read_children([draw(row, n, context.rng) for row, n in pairs]))
        return [next(drawn) if n else [] for n in counts]


# Sequoia: the best shape by sibling acceptance rates and measured times -------------------------
# Source: Chen et al. 2024.

RATES = (0.792, 0.076, 0.036, 0.025)
"""Rates of the shipped pair at temperature 1 on held-out prompts (the recording `token-trees`)."""


class SequoiaDrafter(FixedTreeDrafter):
    """Draft the tree with the most expected tokens, with siblings drawn without replacement.

    Args:
        draft: a `CausalLM` with the target's vocabulary.
        nodes: largest number of nodes, ≥ 1.
        depth: largest number of levels, ≥ 1; None: 16.
        rates: how often the first, second, … sibling is accepted, measured with
            `trees.sibling_rates`; the default is that of the shipped pair.
        costs: costs from `timing.measure_costs`. If given, the tree has the most expected tokens
            per *second*, and may be empty.
    """

    def __init__(
        self,
        draft: CausalLM,
        nodes: int = 16,
        depth: int | None = None,
        rates: Sequence[float] = RATES,
        costs: Costs | None = None,
    ):
        nodes, seconds = checks.whole("nodes", nodes, 1), None
        if costs is not None:
            ks = sorted(costs.target)
            times = [costs.target[k] for k in ks]
            nodes = min(nodes, ks[-1] - 1)
            # Timed during decoding, with the choice of the token: closer to what a round pays.
            drafting, rest = costs.draft_in_loop or costs.draft or 0.0, costs.overhead or 0.0
            seconds = lambda n, d: np.interp(1 + n, ks, times).item() + d * drafting + rest
        super().__init__(draft, best_shape(rates, nodes, depth, seconds))


# SpecExec: the most probable tree of a draft model ----------------------------------------------
# Source: Svirschevski et al. 2024.

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
    def __init__(self, drafter: SpecExecDrafter, context: Context):
        super().__init__(drafter.model, 1, drafter.depth * drafter.nodes + 1, context)
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
            fed = TokenTree(tokens, parents).prune(order)[0]
            rows = self.rows(context, fed, range(len(fed) - len(frontier), len(fed)))
        return Proposal(TokenTree(tokens, parents).prune(best_nodes)[0])
