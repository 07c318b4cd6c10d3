"""Draft with a model of another tokenizer: the draft's text is what the two models share.

Source: Timor et al. 2025, arXiv 2502.05202, algorithm 2 (string-level exact match); transformers
calls it universal assisted decoding.
"""

from typing import Any

import torch

from specdec_lite import checks
from specdec_lite.contract import Context, Limits
from specdec_lite.drafters.chain import ChainDrafter, ChainSession, Followed
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.texts.streaming import INCOMPLETE
from specdec_lite.tree import TokenTree

OVERLAP = 8
"""Committed tokens that are encoded again with the draft's text, so that the seam is a usual one."""


class TextMatchDrafter(ChainDrafter):
    """Draft γ tokens with a model of another tokenizer, and propose the text in the target's tokens.

    The draft reads the text so far in its own tokens and chooses γ tokens by argmax. Their text is
    encoded with the target's tokenizer. The proposed tokens are chosen, not drawn, so any lossless
    rule keeps the target's distribution: at temperature 0 a token is kept if it is the target's
    argmax, above 0 with the target's own probability of it.

    Args:
        model: the draft, a `CausalLM`.
        draft_tokenizer: its tokenizer.
        tokenizer: the target's tokenizer.
        gamma: number of drafted tokens, counted in the draft's vocabulary, ≥ 1, or a policy of
            `drafters.lengths` that looks at no probabilities. At most 2 γ tokens are proposed.
    """

    makes_passes = True

    def __init__(
        self, model: CausalLM, draft_tokenizer: Any, tokenizer: Any, gamma: int | Length = 4
    ):
        super().__init__(gamma)
        self.model = checks.model("model", model)
        if self.length.looks:
            raise ValueError(f"gamma={gamma!r}: must be a length that looks at no probabilities")
        for name, value in (("draft_tokenizer", draft_tokenizer), ("tokenizer", tokenizer)):
            if not (hasattr(value, "encode") and hasattr(value, "decode")):
                raise TypeError(f"{name} is a {type(value).__name__}: must be a tokenizer")
        self.draft_tokenizer, self.tokenizer = draft_tokenizer, tokenizer
        self.most = 2 * self.length.gamma

    def start(self, context: Context) -> "TextMatchSession":
        return TextMatchSession(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.same_device("drafter", self.model, target)

    def limits(self) -> Limits:
        return Limits.chain(self.most)


class TextMatchSession(ChainSession):
    """The drafting of one generation; the cache holds the text in the draft's own tokens."""

    def __init__(self, drafter: TextMatchDrafter, context: Context):
        super().__init__(drafter.length)
        self.drafter = drafter
        self.cache = drafter.model.new_cache(capacity=2 * (len(context.tokens) + context.wanted))
        self.followed = Followed(self.cache)

    def propose(self, context: Context) -> Proposal:
        drafter, committed = self.drafter, context.tokens.tolist()
        text = drafter.tokenizer.decode(committed, skip_special_tokens=True)
        ids = encode(drafter.draft_tokenizer, text.rstrip(INCOMPLETE))
        most = min(self.length.most(context), drafter.model.max_positions - len(ids))
        if not ids or most < 1 or context.wanted < 2:
            return NOTHING
        drafted = self._draft(ids, most)
        new = drafter.draft_tokenizer.decode(ids + drafted, skip_special_tokens=True)
        new = new[len(drafter.draft_tokenizer.decode(ids, skip_special_tokens=True)) :]
        tokens = continuation(drafter.tokenizer, committed, new.rstrip(INCOMPLETE))
        tokens = [token for token in tokens if token < context.vocab_size]
        return Proposal(TokenTree.chain(tokens[: drafter.most])) if tokens else NOTHING

    def _draft(self, ids: list[int], count: int) -> list[int]:
        """Return tokens chosen one after another; the cache keeps what is still the text's."""
        # The draft's own tokens of a longer text may differ from those of its beginning.
        new = self.followed.behind(torch.tensor(ids))
        drafted: list[int] = []
        while len(drafted) < count:
            self.passes += 1
            logits = self.drafter.model.score(new, self.cache, last=True).logits
            new = logits[0, -1].argmax(-1, keepdim=True)
            drafted.append(int(new))
        self.followed.text = torch.tensor(ids + drafted)
        return drafted


def encode(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text that continues another one."""
    return list(tokenizer.encode(text, add_special_tokens=False))


def continuation(tokenizer: Any, committed: list[int], new: str) -> list[int]:
    """Return the target's tokens of a text that follows committed ones."""
    if not new:
        return []
    end = committed[-OVERLAP:]
    whole = encode(tokenizer, tokenizer.decode(end, skip_special_tokens=True) + new)
    # The committed tokens cannot be changed. Where they would be split in another way together
    # with the new text, the new text is encoded by itself.
    return whole[len(end) :] if whole[: len(end)] == end else encode(tokenizer, new)
