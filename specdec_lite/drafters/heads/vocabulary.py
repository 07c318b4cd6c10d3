"""A part of the target's vocabulary that a draft is limited to, so that its projection costs less.

Shapes: v tokens of the draft's vocabulary, V of the target's, d hidden size. In stored heads this
vocabulary is called `words`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.engine.models import CausalLM


class DraftVocabulary(nn.Module):
    """The tokens `ids` [v] that a draft may propose, in ascending order.

    Args:
        count: number of tokens v; the first v of the target until `ids` is loaded.
    """

    ids: Tensor

    def __init__(self, count: int):
        super().__init__()
        self.register_buffer("ids", torch.arange(count))

    def spread(self, logits: Tensor, vocab_size: int) -> Tensor:
        """Return logits over the target's vocabulary, −∞ for tokens that the draft lacks.

        This happens before any temperature.

        Shapes: logits [..., v].
        """
        if logits.shape[-1] == vocab_size:
            return logits
        wide = logits.new_full((*logits.shape[:-1], vocab_size), float("-inf"))
        return wide.index_copy_(-1, self.ids, logits)

    def number(self, tokens: Tensor) -> Tensor:
        """Return the draft-vocabulary index of each token; v if the token is absent."""
        last = len(self.ids) - 1
        index = torch.searchsorted(self.ids, tokens).clamp(max=last)
        return index.masked_fill(self.ids[index] != tokens, last + 1)


class OutputHead:
    """A target's embeddings, and the rows of its vocabulary projection of a draft vocabulary.

    Args:
        target: the model whose projection is used.
        vocabulary: the tokens whose rows are kept.
    """

    def __init__(self, target: CausalLM, vocabulary: DraftVocabulary):
        self.embed = target.embed
        ids = vocabulary.ids.to(target.device)
        self.rows = target.backend.head.weight.detach()[ids]
        self.vocab_size = len(ids)

    def head(self, hidden: Tensor) -> Tensor:
        """Return logits [..., v] of hidden states."""
        return F.linear(hidden, self.rows)


def output_head(target: CausalLM, vocabulary: DraftVocabulary | None) -> CausalLM | OutputHead:
    """Return what turns a draft's states into logits; the target itself for its full vocabulary."""
    return target if vocabulary is None else OutputHead(target, vocabulary)
