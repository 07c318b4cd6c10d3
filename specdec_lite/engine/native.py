"""Passes of our own transformer: preallocated keys and values, and causal masks made once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lite.engine.cache import Pass, Scores, additive, tree_positions, visible
from specdec_lite.engine.transformer import LANES, Transformer
from specdec_lite.transfer import upload

TRIANGLE = 4096
"""Side of the largest stored causal mask: 64 MiB in float32."""


class Storage:
    """Preallocated keys and values of every layer.

    Attributes:
        keys: [layers, B, G, capacity, h].
        values: of the same shape.
        layers: (keys, values) [B, G, capacity, h] of each layer.
    """

    def __init__(self, keys: Tensor, values: Tensor):
        self.keys, self.values = keys, values
        self.layers = list(zip(keys, values))

    @classmethod
    def zeros(cls, model: Transformer, batch: int, capacity: int) -> "Storage":
        """Return zeros for this many tokens of every sequence."""
        config, weight = model.config, model.embedding.weight
        shape = (config.num_layers, batch, config.num_kv_heads, capacity, config.head_size)
        return cls(weight.new_zeros(shape), weight.new_zeros(shape))

    @property
    def capacity(self) -> int:
        """Return the number of tokens per sequence."""
        return self.keys.shape[3]

    def part(self, rows: slice = slice(None), slots: slice = slice(None)) -> "Storage":
        """Return some sequences or slots of the same memory."""
        return Storage(self.keys[:, rows, :, slots], self.values[:, rows, :, slots])


class NativeStorage:
    """Preallocated keys and values of a native model; the capacity grows by doubling."""

    by_layer = True  # its first layers can be read and written without the others

    def __init__(self, model: Transformer, batch: int, capacity: int):
        self.model = model
        self.batch = batch
        self.tensors = self.make(capacity)

    def make(self, capacity: int) -> Storage:
        """Return zeros for this many tokens."""
        return Storage.zeros(self.model, self.batch, capacity)

    def reserve(self, capacity: int) -> None:
        """Make room for a number of tokens, keeping what is stored."""
        if capacity > self.tensors.capacity:
            # Doubling copies every entry a constant number of times, however long the text grows.
            old = self.tensors
            self.tensors = self.make(max(capacity, 2 * self.tensors.capacity))
            self.tensors.keys[..., : old.capacity, :] = old.keys
            self.tensors.values[..., : old.capacity, :] = old.values

    def move(self, start: int, rows: Tensor) -> None:
        """Copy the entries at start + rows to start, start + 1, …

        Shapes: rows [n].
        """
        # The right-hand side is gathered into a copy first, so overlapping rows do no harm.
        rows = upload(start + rows, self.tensors.keys.device)
        for tensor in (self.tensors.keys, self.tensors.values):
            tensor[..., start : start + len(rows), :] = tensor[..., rows, :]

    def copy(self, slots: Sequence[int], room: int) -> "NativeStorage":
        """Return a storage of some entries alone."""
        other = NativeStorage(self.model, self.batch, max(1, len(slots) + room))
        rows = upload(slots, self.tensors.keys.device, torch.long)
        other.tensors.keys[..., : len(slots), :] = self.tensors.keys[..., rows, :]
        other.tensors.values[..., : len(slots), :] = self.tensors.values[..., rows, :]
        return other

    def cut(self, length: int) -> None:
        """Do nothing: entries beyond the cache's length are never read, and later overwritten."""


class NativeBackend:
    """Runs the passes of our own transformer.

    At batch 1, building a causal mask costs as much as a layer. All are slices of one stored mask.
    """

    def __init__(self, model: Transformer):
        self.model, config = model, model.config
        self.vocab_size = config.vocab_size
        self.num_layers = config.num_layers
        self.max_positions = config.max_positions
        self.hidden_size = config.hidden_size
        self.embedding, self.head = model.embedding, model.head
        self.triangle = torch.zeros(0, 0)

    def storage(self, batch: int, capacity: int) -> NativeStorage:
        """Return an empty storage."""
        return NativeStorage(self.model, batch, capacity)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., V] of final hidden states.

        Shapes: hidden [..., d].
        """
        return self.head(hidden)

    def causal(self, length: int, count: int, weight: Tensor, width: int = 0) -> Tensor:
        """Return the additive causal mask [count, length + count]."""
        total = max(length + count, width)
        if total > TRIANGLE:
            # A long context gets a mask of its own: a stored triangle would take too much memory.
            positions = torch.arange(length, total, device=weight.device)
            return additive(visible(length, count, None, None, positions), weight.dtype)
        triangle = self.triangle  # read once: another thread may replace it
        if (
            len(triangle) < total
            or triangle.device != weight.device
            or triangle.dtype != weight.dtype
        ):
            size = min(TRIANGLE, max(total, 2 * len(triangle), 512))
            triangle = torch.ones(size, size, dtype=torch.bool, device=weight.device).tril()
            triangle = self.triangle = additive(triangle, weight.dtype)
        return triangle[length : length + count, :total]

    def leaves_rows_alone(self, inputs: Pass) -> bool:
        """Return whether no row of a pass depends on the number of rows."""
        length, count = inputs.cache.length, inputs.count
        return (
            0 < count <= self.model.rows_alone
            and inputs.cache.batch == 1
            and 0 < length <= TRIANGLE - LANES - count
        )

    def score(self, inputs: Pass) -> Scores:
        """Run a pass, and store the keys and values of its tokens."""
        cache, tree, count = inputs.cache, inputs.tree, inputs.count
        length, shift = cache.length, cache.shift
        weight = self.embedding.weight
        window = self.model.config.window
        positions = bias = width = None
        masked = window is not None and length + shift + count > window
        # The common pass needs none of this: positions follow the cache, and the mask is causal.
        if tree is not None or masked or shift:
            positions = tree_positions(length, count, tree, weight.device, inputs.cached, shift)
        if positions is not None and (tree is not None or masked):
            stored = cache.positions() if masked else None
            mask = visible(length, count, tree, window, positions, inputs.cached, stored)
            bias = additive(mask, weight.dtype)
        elif self.leaves_rows_alone(inputs):
            # Attend to whole vectors of keys; the mask hides those beyond the text.
            width = -(-(length + count) // LANES) * LANES
            bias = self.causal(length, count, weight, width)
        elif count > 1 and length:
            bias = self.causal(length, count, weight)
        # A single token sees everything, and a prefill is causal by itself: neither has a mask.
        cache.storage.reserve(width or length + count)
        hidden: dict = dict.fromkeys(inputs.hidden_layers)
        logits = self.model(
            inputs.tokens,
            cache.storage.tensors,
            length,
            positions,
            bias,
            cache.layers,
            hidden,
            inputs.last,
            states=inputs.states,
            skip=cache.skip,
            head=inputs.logits,
            width=width,
        )
        return Scores(logits, hidden)
