"""Token recycling: after a token, propose the target's likeliest tokens from the last time.

Source: Luo et al. 2024, arXiv 2408.08696.
"""

from specdec_lite import checks
from specdec_lite.drafters.copying.matches import token_ids
from specdec_lite.drafters.copying.successors import SUCCESSORS, update
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Limits, Session
from specdec_lite.tree import TokenTree

ACCURACIES = (0.4, 0.12, 0.06, 0.04, 0.03, 0.02, 0.015, 0.01)
"""How often the successor of each rank is the next token, for the default tree of 6 levels."""
BATCH = 64  # rows of logits that are computed together from a prompt's states


class TokenRecyclingDrafter(Drafter):
    """Draft a tree of successors: for every token fed, the likeliest tokens of its newest row.

    Rows of rejected tokens count too. `learn` adds a text's successors for later generations.

    Args:
        target: the model that decodes; nothing else is trained or stored.
        nodes: number of nodes, ≥ 1.
        shape: tree of ranks 0 … 7 in place of the default one; a node of rank r takes the r-th
            successor of its parent.
    """

    hidden_layers = ("final",)

    def __init__(self, target: CausalLM, nodes: int = 16, shape: TokenTree | None = None):
        self.target = checks.model("target", target)
        checks.whole("nodes", nodes, 1)
        self.tree = TokenTree.best([ACCURACIES] * 6, nodes) if shape is None else shape
        checks.whole("shape's ranks", max(self.tree.tokens.tolist()), 0, SUCCESSORS - 1)
        self.table: dict[int, list[int]] = {}

    def start(self, context: Context) -> "TokenRecyclingSession":
        return TokenRecyclingSession(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def learn(self, tokens) -> None:
        ids = token_ids("tokens", tokens, self.target.vocab_size)
        scores = self.target.score(ids.tolist(), self.target.new_cache())
        update(self.table, ids.tolist(), scores.logits[0])

    def limits(self) -> Limits:
        return Limits(self.tree.levels, len(self.tree))


class TokenRecyclingSession(Session):
    """The drafting of one generation. `table` maps a token to its successors, likeliest first."""

    def __init__(self, drafter: TokenRecyclingDrafter, context: Context):
        self.drafter = drafter
        self.table = dict(drafter.table)
        self.root = 0
        if context.scores is not None:
            states = context.scores.hidden["final"][0]
            for tokens, rows in zip(context.tokens[:-1].split(BATCH), states.split(BATCH)):
                update(self.table, tokens.tolist(), drafter.target.head(rows))

    def propose(self, context: Context) -> Proposal:
        self.root = int(context.tokens[-1])
        shape = self.drafter.tree
        tokens: dict[int, int] = {-1: self.root}
        for node, (rank, parent) in enumerate(zip(shape.tokens.tolist(), shape.parents)):
            successors = self.table.get(tokens.get(parent, -1), [])
            if rank < len(successors):
                tokens[node] = successors[rank]
        del tokens[-1]
        pruned, nodes = shape.prune(tokens)
        return Proposal(TokenTree([tokens[node] for node in nodes], pruned.parents))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        update(self.table, [self.root, *verdict.tokens], scores.logits[0])
