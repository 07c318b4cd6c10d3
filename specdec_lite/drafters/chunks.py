"""Which chunks of a text the last query asks for: a selection of a cache's entries.

Source: Sun et al. 2024 (TriForce); chosen here once a round and for all layers alike.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import rotate
from specdec_lite.speculation import Context


class Chunks:
    """The chunks of the text whose mean key suits the last known query best.

    Args:
        layers: blocks (from 0) whose queries and keys are asked.
        budget: entries to select, ≥ 1, in whole chunks.
        size: entries of a chunk, ≥ 1 (8 in the paper).
    """

    def __init__(self, layers: Sequence[int], budget: int = 64, size: int = 8):
        self.layers = tuple(layers)
        self.size = checks.whole("size", size, 1)
        self.budget = checks.whole("budget", budget, size)

    def scores(self, target: CausalLM, cache: Cache, states: dict) -> Tensor:
        """How much of its attention each chunk gets, the mean over heads and layers: [chunks].

        states: {b: rows [1, n, d] before block b}, the last row that of the cache's last entry.
        """
        model, count = target.model, cache.length // self.size
        place = cache.length - 1
        cos, sin = (table[place] for table in model.rotary(target.device, target.dtype))
        total = torch.zeros(count, dtype=torch.float64, device=target.device)
        for layer in self.layers:
            query = rotate(model.blocks[layer].queries(states[layer][0, -1]), cos, sin)
            keys = cache.keys(layer)[0, :, : count * self.size]
            means = keys.unflatten(1, (count, self.size)).mean(2)
            fit = torch.einsum("gqh,gch->gqc", query.view(len(means), -1, query.shape[-1]), means)
            total += (fit * query.shape[-1] ** -0.5).softmax(-1).mean((0, 1)) / len(self.layers)
        return total

    def __call__(self, target: CausalLM, context: Context, end: int) -> set[int]:
        """The entries to select of `context.cache`, among whole chunks of its first `end`."""
        if context.scores is None or end < self.size:
            return set()
        scores = self.scores(target, context.cache, context.scores.hidden)[: end // self.size]
        best = scores.topk(min(self.budget // self.size, len(scores))).indices.tolist()
        return {chunk * self.size + place for chunk in best for place in range(self.size)}
