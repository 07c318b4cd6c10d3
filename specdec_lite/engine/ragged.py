"""One pass over rows of different lengths: each row has a cache of its own, all of them one storage.

What lives here: a batch's storage, a row's part of it, and the pass that they share. What does not:
the loop over rounds (`serving.batch`). Native models only.
"""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from specdec_lite.engine.cache import Cache, Layer, Scores, additive, tree_positions, visible
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.native import NativeStorage
from specdec_lite.tree import TokenTree


class BatchStorage(NativeStorage):
    """Keys and values of B sequences; `rows` are the parts, each a storage of its own."""

    def __init__(self, target: CausalLM, batch: int, capacity: int):
        super().__init__(target.model, batch, capacity)
        self.rows = [RowStorage(self, index) for index in range(batch)]
        self.share()

    def share(self) -> None:
        for index, row in enumerate(self.rows):
            row.tensors = self.tensors.row(index)

    def reserve(self, capacity: int) -> None:
        if capacity > self.tensors.capacity:
            super().reserve(capacity)
            self.share()

    def keep_rows(self, places: Collection[int]) -> None:
        """Forget all sequences but those at `places`: the next passes are narrower."""
        rows = torch.tensor(sorted(places), device=self.tensors.keys.device)
        self.rows = [self.rows[place] for place in sorted(places)]
        self.batch = len(self.rows)
        old = self.tensors
        self.tensors = self.make(old.capacity)
        self.tensors.keys.copy_(old.keys[:, rows])
        self.tensors.values.copy_(old.values[:, rows])
        self.share()


class RowStorage(NativeStorage):
    """One sequence's part of a batch's storage; it grows with the whole."""

    def __init__(self, whole: BatchStorage, index: int):
        self.model = whole.model
        self.batch = 1
        self.whole = whole

    def reserve(self, capacity: int) -> None:
        self.whole.reserve(capacity)


def row_caches(target: CausalLM, batch: int, capacity: int) -> tuple[BatchStorage, list[Cache]]:
    """A batch's storage and a cache for each row."""
    storage = BatchStorage(target, batch, capacity)
    return storage, [Cache(row) for row in storage.rows]


@torch.inference_mode()
def score_rows(
    target: CausalLM,
    storage: BatchStorage,
    rows: Sequence[Tensor],
    caches: Sequence[Cache],
    trees: Sequence[TokenTree],
    hidden_layers: Sequence[Layer] = (),
) -> list[Scores]:
    """What `target.score(rows[b], caches[b], trees[b], …)` gives for every row, in one pass.

    Args:
        target: a native model.
        storage: of the caches, in their order.
        rows: ids [n_b] to feed; the shorter ones are padded behind their end. Padding is written
            beyond a row's length, where the next pass overwrites it, and no token sees it.
        caches: each cut back and kept alone.
        trees: of each row; an empty one where a row feeds its root alone.
        hidden_layers: as in `CausalLM.score`.
    """
    widest = max(map(len, rows))
    lengths = [cache.length for cache in caches]
    roots = [
        target._place(len(row), cache, tree, 0)
        for row, cache, tree in zip(rows, caches, trees, strict=True)
    ]
    end = max(lengths) + widest
    storage.reserve(end)
    device = target.device
    tokens = torch.zeros(len(rows), widest, dtype=torch.long, device=device)
    positions = torch.zeros_like(tokens)
    slots = torch.tensor(lengths, device=device)[:, None] + torch.arange(widest, device=device)
    mask = torch.zeros(len(rows), 1, widest, end, dtype=torch.bool, device=device)
    mask[..., 0] = True  # what pads a row sees something, or its attention would be NaN
    for place, (row, length, tree) in enumerate(zip(rows, lengths, trees)):
        count = len(row)
        at = tree_positions(length, count, tree, device)
        tokens[place, :count] = row
        positions[place, :count] = at
        mask[place, 0, :count, : length + count] = visible(
            length, count, tree, target.model.config.window, at
        )
    hidden = dict.fromkeys(hidden_layers)
    bias = additive(mask, target.dtype)
    logits = target.model(tokens, storage.tensors, slots, positions, bias, None, hidden)
    for cache, row, root in zip(caches, rows, roots):
        cache.root = root
        cache.length += len(row)
    return [
        Scores(
            logits[place : place + 1, : len(row)],
            {layer: states[place : place + 1, : len(row)] for layer, states in hidden.items()},
        )
        for place, row in enumerate(rows)
    ]
