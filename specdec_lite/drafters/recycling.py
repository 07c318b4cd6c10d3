"""Token recycling: what the target last put behind a token, behind that token again.

Source: Luo et al. 2024, arXiv 2408.08696.
"""

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.matches import token_ids
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Session, Shape
from specdec_lite.tree import TokenTree

SUCCESSORS = 8
ACCURACIES = (0.4, 0.12, 0.06, 0.04, 0.03, 0.02, 0.015, 0.01)
"""How often the successor of each rank is the next token, for the default shape."""
LEVELS = 6
ROWS = 64
"""Rows of logits that are made at once of a prompt's states."""

Table = dict[int, list[int]]


class TokenRecyclingDrafter(Drafter):
    """Draft a tree of successors: of every token that the target was fed, the likeliest tokens of
    its newest row, those of rejected tokens included.

    Args:
        target: the model that decodes; nothing else is trained or stored.
        nodes: of the tree, ≥ 1.
        shape: a tree of ranks, 0 … 7, in place of the default one of `nodes` nodes: the node of
            rank r below a token takes its r-th successor.

    The table of a generation is forgotten with it; `learn` puts a text into all that follow.
    """

    hidden_layers = ("final",)

    def __init__(self, target: CausalLM, nodes: int = 16, shape: TokenTree | None = None):
        self.target = checks.model("target", target)
        checks.whole("nodes", nodes, 1)
        self.tree = TokenTree.best([ACCURACIES] * LEVELS, nodes) if shape is None else shape
        checks.whole("shape's ranks", max(self.tree.tokens.tolist()), 0, SUCCESSORS - 1)
        self.table: Table = {}

    def start(self, context: Context) -> "TokenRecyclingSession":
        return TokenRecyclingSession(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def learn(self, tokens) -> None:
        """Remember the target's successors in a text, at the price of one pass over it."""
        ids = token_ids("tokens", tokens, self.target.vocab_size)
        scores = self.target.score(ids, self.target.new_cache())
        update(self.table, ids.tolist(), scores.logits[0])

    def shape(self) -> Shape:
        return Shape(self.tree.levels, len(self.tree))


class TokenRecyclingSession(Session):
    """table: token → its successors, likeliest first."""

    def __init__(self, drafter: TokenRecyclingDrafter, context: Context):
        self.drafter = drafter
        self.table = dict(drafter.table)
        self.root = 0
        if context.scores is not None:
            states = context.scores.hidden["final"][0]
            for tokens, rows in zip(context.tokens[:-1].split(ROWS), states.split(ROWS)):
                update(self.table, tokens.tolist(), drafter.target.head(rows))

    def propose(self, context: Context) -> Proposal:
        self.root = int(context.tokens[-1])
        if context.wanted < 2:
            return NOTHING
        shape = self.drafter.tree
        tokens = {-1: self.root}
        for node, (rank, parent) in enumerate(zip(shape.tokens.tolist(), shape.parents)):
            successors = self.table.get(tokens.get(parent), ())
            if rank < len(successors):
                tokens[node] = successors[rank]
        del tokens[-1]
        pruned, nodes = shape.prune(tokens)
        return Proposal(TokenTree([tokens[node] for node in nodes], pruned.parents))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        update(self.table, [self.root, *verdict.tokens], scores.logits[0])


@torch.inference_mode()
def update(table: Table, tokens: list[int], logits: Tensor) -> None:
    """Enter the likeliest successors of tokens [n] by their rows [n, V]; a later row counts."""
    best = logits.topk(min(SUCCESSORS, logits.shape[-1])).indices.tolist()
    table.update(zip(tokens, best))
