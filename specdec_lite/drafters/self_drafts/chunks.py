"""Select the chunks of a cache that the last query attends to most.

Source: Sun et al. 2024 (TriForce); here the selection is made once per round, for all layers.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Block, Transformer, rotate
from specdec_lite.speculation import Context


class Chunks:
    """Select the chunks of the text whose mean key fits the last known query best.

    Args:
        layers: blocks (from 0) whose queries and keys are used.
        budget: cache entries to select, ≥ `size`, in whole chunks.
        size: entries per chunk, ≥ 1 (8 in the paper).
    """

    def __init__(self, layers: Sequence[int], budget: int = 64, size: int = 8):
        self.layers = tuple(layers)
        self.size = checks.whole("size", size, 1)
        self.budget = checks.whole("budget", budget, size)

    def scores(self, target: CausalLM, cache: Cache, states: dict) -> Tensor:
        """Return the attention [chunks] each chunk gets, averaged over heads and layers."""
        model, count = cast(Transformer, target.model), cache.length // self.size
        position = cache.length - 1
        cos, sin = (table[position] for table in model.rotary(target.device, target.dtype))
        total = torch.zeros(count, dtype=torch.float64, device=target.device)
        for layer in self.layers:
            block = cast(Block, model.blocks[layer])
            query = rotate(block.queries(states[layer][0, -1]), cos, sin)
            keys = cache.keys(layer)[0, :, : count * self.size]
            means = keys.unflatten(1, (count, self.size)).mean(2)
            fit = torch.einsum("gqh,gch->gqc", query.view(len(means), -1, query.shape[-1]), means)
            total += (fit * query.shape[-1] ** -0.5).softmax(-1).mean((0, 1)) / len(self.layers)
        return total

    def __call__(self, target: CausalLM, context: Context, end: int) -> set[int]:
        """Return the entries to select, in whole chunks."""
        if context.scores is None or end < self.size:
            return set()
        scores = self.scores(target, context.cache, context.scores.hidden)[: end // self.size]  # pyright: ignore[reportArgumentType]
        best = scores.topk(min(self.budget // self.size, len(scores))).indices.tolist()
        return {chunk * self.size + offset for chunk in best for offset in range(self.size)}
