"""Passes of our own transformer.

What lives here: preallocated keys and values, and causal masks made once. What does not: the layers
(`transformer`), and passes of fixed shape (`graphs`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lite.engine.cache import Cache, Layer, Scores, additive, tree_positions, visible
from specdec_lite.engine.linear import pack
from specdec_lite.engine.transformer import Storage, Transformer
from specdec_lite.tree import TokenTree


class NativeStorage:
    """Preallocated storage of a native model; it grows by doubling, never by a token."""

    by_layer = True  # its first layers can be read and written alone

    def __init__(self, model: Transformer, batch: int, capacity: int):
        self.model = model
        self.batch = batch
        self.tensors = self.make(capacity)

    def make(self, capacity: int) -> Storage:
        weight = self.model.embedding.weight
        return Storage(self.model.config, self.batch, capacity, weight.device, weight.dtype)

    def reserve(self, capacity: int) -> None:
        if capacity > self.tensors.capacity:
            old = self.tensors
            self.tensors = self.make(max(capacity, 2 * self.tensors.capacity))
            self.tensors.keys[..., : old.capacity, :] = old.keys
            self.tensors.values[..., : old.capacity, :] = old.values

    def move(self, start: int, rows: Tensor) -> None:
        """Bring the entries at start + rows to start, start + 1, …"""
        for tensor in (self.tensors.keys, self.tensors.values):
            tensor[..., start : start + len(rows), :] = tensor[
                ..., start + rows.to(tensor.device), :
            ]

    def copy(self, slots: Sequence[int], room: int) -> "NativeStorage":
        """These entries alone, with room for more behind them."""
        other = NativeStorage(self.model, self.batch, max(1, len(slots) + room))
        rows = torch.tensor(slots, dtype=torch.long, device=self.tensors.keys.device)
        other.tensors.keys[..., : len(slots), :] = self.tensors.keys[..., rows, :]
        other.tensors.values[..., : len(slots), :] = self.tensors.values[..., rows, :]
        return other

    def cut(self, length: int) -> None:
        """Nothing to do: what lies beyond the length is overwritten."""


TRIANGLE = 4096  # side of the largest stored triangle: 64 MiB in float32


class NativeBackend:
    """Our own transformer. Causal masks are slices of one stored triangle, since at batch 1
    building one costs a layer.
    """

    def __init__(self, model: Transformer):
        self.model, config = model, model.config
        self.vocab_size = config.vocab_size
        self.num_layers = config.num_layers
        self.max_positions = config.max_positions
        self.hidden_size = config.hidden_size
        self.embedding, self.head = model.embedding, model.head
        self.triangle = torch.zeros(0, 0)
        pack(model)

    def storage(self, batch: int, capacity: int) -> NativeStorage:
        return NativeStorage(self.model, batch, capacity)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head(hidden)

    def _causal(self, length: int, count: int, weight: Tensor) -> Tensor:
        total = length + count
        if total > TRIANGLE:
            positions = torch.arange(length, total, device=weight.device)
            return additive(visible(length, count, None, None, positions), weight.dtype)
        if (
            len(self.triangle) < total
            or self.triangle.device != weight.device
            or self.triangle.dtype != weight.dtype
        ):
            size = min(TRIANGLE, max(total, 2 * len(self.triangle), 512))
            self.triangle = additive(
                torch.ones(size, size, dtype=torch.bool, device=weight.device).tril(), weight.dtype
            )
        return self.triangle[length:total, :total]

    def score(
        self,
        tokens: Tensor,
        cache: Cache,
        tree: TokenTree | None,
        hidden_layers: Sequence[Layer],
        last: bool,
        cached: int = 0,
        states: tuple[int, Tensor] | None = None,
        logits: bool = True,
    ) -> Scores:
        count = tokens.shape[1]
        length = cache.length
        shift = cache.shift
        weight = self.embedding.weight
        window = self.model.config.window
        cache.storage.reserve(length + count)
        positions = bias = None
        masked = window is not None and length + shift + count > window
        if tree is not None or masked or shift:
            positions = tree_positions(length, count, tree, weight.device, cached, shift)
        if tree is not None or masked:
            stored = cache.positions() if masked else None
            mask = visible(length, count, tree, window, positions, cached, stored)
            bias = additive(mask, weight.dtype)
        elif count > 1 and length:
            bias = self._causal(length, count, weight)
        hidden = dict.fromkeys(hidden_layers)
        made = self.model(
            tokens,
            cache.storage.tensors,
            length,
            positions,
            bias,
            cache.layers,
            hidden,
            last,
            states=states,
            skip=cache.skip,
            head=logits,
        )
        return Scores(made, hidden)
