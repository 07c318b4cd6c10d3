"""A part of the target's vocabulary, for a draft that says nothing else: its projection costs less.

Shapes: v words, V tokens of the target, d hidden size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.engine.models import CausalLM


class Words(nn.Module):
    """The tokens `ids` [v] that a draft says, in rising order."""

    def __init__(self, count: int):
        super().__init__()
        self.register_buffer("ids", torch.arange(count))

    def spread(self, logits: Tensor, vocab_size: int) -> Tensor:
        """logits [..., v] over the target's V tokens, −∞ where the draft has none: before any
        temperature.
        """
        if logits.shape[-1] == vocab_size:
            return logits
        wide = logits.new_full((*logits.shape[:-1], vocab_size), float("-inf"))
        return wide.index_copy_(-1, self.ids, logits)

    def number(self, tokens: Tensor) -> Tensor:
        """Which of the words each token [...] is; v for all others."""
        last = len(self.ids) - 1
        place = torch.searchsorted(self.ids, tokens).clamp(max=last)
        return place.masked_fill(self.ids[place] != tokens, last + 1)


class Speaker:
    """A target's embeddings, and of its vocabulary projection the rows of these words alone."""

    def __init__(self, target: CausalLM, words: Words):
        self.embed = target.embed
        self.rows = target.backend.head.weight.detach()[words.ids.to(target.device)]
        self.vocab_size = len(words.ids)

    def head(self, hidden: Tensor) -> Tensor:
        """States [..., d] → logits [..., v]."""
        return F.linear(hidden, self.rows)


def speaker(target: CausalLM, words: Words | None) -> CausalLM | Speaker:
    """What turns a draft's states into logits: the target itself where it says all tokens."""
    return target if words is None else Speaker(target, words)
