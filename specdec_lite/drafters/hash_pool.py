"""A pool of n-grams by their hash: memory that never grows, whatever it has read.

Source: llama.cpp's `ngram-mod` (common/ngram-mod.cpp).
"""

import numpy as np

from specdec_lite import checks
from specdec_lite.drafters.matches import token_ids
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Session, Shape
from specdec_lite.tree import TokenTree

FACTOR = 6364136223846793005
"""Of the hash: that of a known linear congruential generator."""
EMPTY = -1


class HashPoolDrafter(Drafter):
    """Propose, token by token, what last followed the n tokens before.

    Args:
        gamma: the most tokens of a draft, ≥ 1; it ends earlier where a slot is empty.
        n: tokens that are hashed, ≥ 1 (llama.cpp's `--spec-ngram-mod-n-match`, 24 there).
        slots: of the pool, ≥ 1, 4 bytes each.

    A slot holds one token id and not the n-gram that it belongs to: two n-grams of one slot cost a
    wasted draft, never a wrong text. The pool of a generation is a copy of the drafter's, which
    only `learn` writes to; llama.cpp's is shared by all requests.
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
        """Read a text, such as an answer, for the generations that follow."""
        self.read(self.pool, token_ids("tokens", tokens).tolist())

    def shape(self) -> Shape:
        return Shape.chain(self.gamma)

    def slot(self, run: list[int]) -> int:
        code = 0
        for token in run:
            code = (code * FACTOR + token) % (1 << 64)
        return code % len(self.pool)

    def read(self, pool: np.ndarray, text: list[int]) -> None:
        """Enter every token of a text behind the n before it; the newest of a slot stays."""
        for end in range(self.n, len(text)):
            pool[self.slot(text[end - self.n : end])] = text[end]


class HashPoolSession(Session):
    """length: how much of the text has been read."""

    def __init__(self, drafter: HashPoolDrafter):
        self.drafter = drafter
        self.pool = drafter.pool.copy()
        self.length = 0

    def propose(self, context: Context) -> Proposal:
        n = self.drafter.n
        text = context.tokens[max(0, self.length - n) :].tolist()
        self.drafter.read(self.pool, text)
        self.length = len(context.tokens)
        most = min(self.drafter.gamma, context.wanted - 1) if len(text) >= n else 0
        run = text[-n:]
        drafted: list[int] = []
        while len(drafted) < most:
            token = int(self.pool[self.drafter.slot(run)])
            if token == EMPTY:
                break
            drafted.append(token)
            run = [*run[1:], token]
        return Proposal(TokenTree.chain(drafted))

    def cut(self, length: int) -> None:
        self.length = min(self.length, length)
