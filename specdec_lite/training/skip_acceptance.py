"""Acceptance rates of drafts that skip sublayers of the target, measured on stored texts.

A search for the best set of sublayers (`drafters.layer_skip`) asks for hundreds of these rates, so
they are computed without decoding.
"""

from collections.abc import Collection
from itertools import product
from typing import cast

import torch
from torch import Tensor

from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Block
from specdec_lite.training.losses import native_model


class SkipAcceptance:
    """The acceptance rate of the first drafted token at every position of some texts.

    The text before a first drafted token is committed, so its keys and values are those of the
    whole target, and only the last token goes through fewer sublayers. One pass computes all
    positions: every row attends to the text before it and to itself.

    Args:
        target: a native model without a window.
        texts: [B, n] ids.
        first: first position that is drafted from, ≥ 1; the last one is n − 1.
    """

    def __init__(self, target: CausalLM, texts: Tensor, first: int):
        self.model = native_model(target)
        self.length = texts.shape[1]
        self.positions = torch.arange(first, self.length)
        cache = target.new_cache(len(texts), capacity=2 * self.length)
        logits = target.score(texts, cache).logits
        self.target_probs = logits[:, first:].softmax(-1)
        self.tokens = texts[:, first:]
        self.storage = cache.storage.tensors
        itself = torch.eye(len(self.positions), dtype=torch.bool)
        before = torch.arange(self.length) < self.positions[:, None]
        self.mask = torch.cat((before, itself), dim=1)

    def rates(self, logits: Tensor) -> Tensor:
        """Return Σ min(p, q) at every position [B, positions]: acceptance at temperature 1.

        Shapes: logits [B, positions, V].
        """
        return torch.minimum(self.target_probs, logits.softmax(-1)).sum(-1).clamp(max=1)

    @torch.inference_mode()
    def by_position(self, skip: Collection[tuple[int, str]] = ()) -> Tensor:
        """Return the acceptance rates [B, positions] of a draft."""
        logits = self.model(
            self.tokens, self.storage, self.length, self.positions, self.mask, skip=frozenset(skip)
        )
        return self.rates(logits)

    def mean(self, skip: Collection[tuple[int, str]] = ()) -> float:
        """Return the acceptance rate of a draft, averaged over all positions."""
        return self.by_position(skip).mean().item()

    @torch.inference_mode()
    def all_sets(self, group: int = 1) -> list[float]:
        """Return the mean acceptance rate of every set of sublayers.

        All sets that agree on the first blocks share the computation of these blocks.
        """
        model = self.model
        probs = self.target_probs
        cos, sin = (table[self.positions] for table in model.rotary(probs.device, probs.dtype))
        mask = self.mask.repeat(model.config.num_heads // model.config.num_kv_heads, 1)
        rates: list[float] = []

        def visit(x: Tensor, first: int) -> None:
            if first == len(model.blocks):
                rates.append(self.rates(model.head(model.norm(x))).mean().item())
                return
            for has_attention, has_mlp in product((True, False), repeat=2):
                y = x
                for index in range(first, first + group):
                    block = cast(Block, model.blocks[index])
                    past = self.storage.layers[index]
                    if has_attention:
                        y = y + block.attention(y, cos, sin, mask, past, self.length)
                    if has_mlp:
                        y = y + block.mlp(y)
                visit(y, first + group)

        visit(model.embedding(self.tokens), 0)
        return rates
