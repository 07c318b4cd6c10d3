"""A fixed-size pool of n-grams addressed by their hash: its memory never grows.

Source: llama.cpp's `ngram-mod` (common/ngram-mod.cpp).
"""

import numpy as np
import torch

from specdec_lite import checks
from specdec_lite.drafters.copying.matches import token_ids
from specdec_lite.drafters.followed import common_prefix
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Limits, Session
from specdec_lite.tree import TokenTree

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
