"""Drafts from tables that the text fills: a pool of hashed n-grams, and token recycling."""

import numpy as np
import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.contract import Context, Drafter, Limits, Session
from specdec_lite.drafters.chain import common_prefix
from specdec_lite.drafters.copying import token_ids
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.tree import TokenTree

# A pool of hashed n-grams, whose memory never grows ---------------------------------------------
# Source: llama.cpp's `ngram-mod` (common/ngram-mod.cpp).

FACTOR = 6364136223846793005  # the multiplier of a known linear congruential generator
EMPTY = -1


class HashPoolDrafter(Drafter):
    """Propose, token by token, the token that last followed the n tokens before it.

    A slot stores only a token id: n-grams that share a slot cost a wasted draft, never a wrong
    text. A generation uses a copy of the drafter's pool; llama.cpp shares one pool among requests.

    Args:
        gamma: largest number of drafted tokens, ≥ 1; a draft ends earlier at an empty slot.
        n: number of hashed tokens, ≥ 1 (llama.cpp's `--spec-ngram-mod-n-match`, 24 there).
        slots: number of slots, ≥ 1, of 4 bytes each.
    """

    def __init__(self, gamma: int = 16, n: int = 4, slots: int = 1 << 16):
        self.gamma = checks.whole("gamma", gamma, 1)
        self.n = checks.whole("n", n, 1)
        self.pool = np.full(checks.whole("slots", slots, 1), EMPTY, dtype=np.int32)

    def start(self, context: Context) -> "HashPoolSession":
        return HashPoolSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.learnt(int(self.pool.max()), target)

    def learn(self, tokens) -> None:
        self.read(self.pool, token_ids("tokens", tokens).tolist())

    def limits(self) -> Limits:
        return Limits.chain(self.gamma)

    def slot(self, ngram: list[int]) -> int:
        """Return the slot of an n-gram of token ids [n]."""
        code = 0
        for token in ngram:
            code = (code * FACTOR + token) % (1 << 64)
        return code % len(self.pool)

    def read(self, pool: np.ndarray, text: list[int]) -> None:
        """Store every token of a text in the slot of the n tokens before it; later tokens win.

        Args:
            pool: token ids [slots], changed in place.
            text: token ids.
        """
        for end in range(self.n, len(text)):
            pool[self.slot(text[end - self.n : end])] = text[end]


class HashPoolSession(Session):
    """The drafting of one generation. `text` is what was read into the pool so far."""

    def __init__(self, drafter: HashPoolDrafter):
        self.drafter = drafter
        self.pool = drafter.pool.copy()
        self.text = torch.empty(0, dtype=torch.long)

    def propose(self, context: Context) -> Proposal:
        n = self.drafter.n
        known = common_prefix(self.text, context.tokens)
        text = context.tokens[max(0, known - n) :].tolist()
        self.drafter.read(self.pool, text)
        self.text = context.tokens
        most = min(self.drafter.gamma, context.wanted - 1) if len(text) >= n else 0
        ngram = text[-n:]
        tokens: list[int] = []
        while len(tokens) < most and (token := int(self.pool[self.drafter.slot(ngram)])) != EMPTY:
            tokens.append(token)
            ngram = [*ngram[1:], token]
        return Proposal(TokenTree.chain(tokens))


# Token recycling: the target's likeliest tokens after a token, from the last time ---------------
# Source: Luo et al. 2024, arXiv 2408.08696.

SUCCESSORS = 8
"""Successors stored per token."""


@torch.inference_mode()
def update(table: dict[int, list[int]], tokens: list[int], logits: Tensor) -> None:
    """Store the likeliest successors of some tokens. A later row replaces an earlier one.

    Shapes: logits [n, V].
    """
    best = logits.topk(min(SUCCESSORS, logits.shape[-1])).indices.tolist()
    table.update(zip(tokens, best))


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
