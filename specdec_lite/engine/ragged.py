"""One pass over sequences of different lengths, each with its own cache.

`batch` runs the rounds of such a batch. The caches of a native model share one storage; those of a
Hugging Face model are separate, and its back end pads them for a pass.
"""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from specdec_lite.engine.cache import Cache, Layer, Pass, Scores, additive, visible
from specdec_lite.engine.models import CausalLM, steady_attention
from specdec_lite.engine.native import NativeStorage
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree


class BatchStorage(NativeStorage):
    """Keys and values of B sequences.

    Attributes:
        rows: a storage for each sequence, which shares this one's memory.
    """

    def __init__(self, target: CausalLM, batch: int, capacity: int):
        super().__init__(target.model, batch, capacity)
        self.rows = [RowStorage(self) for _ in range(batch)]
        self.share()

    def share(self) -> None:
        """Give every sequence its part of the tensors."""
        for index, row in enumerate(self.rows):
            row.tensors = self.tensors.part(rows=slice(index, index + 1))

    def reserve(self, capacity: int) -> None:
        if capacity > self.tensors.capacity:
            super().reserve(capacity)
            self.share()

    def keep_rows(self, indices: Collection[int]) -> None:
        """Remove all other sequences, so that the next passes are narrower."""
        indices = sorted(indices)
        rows = upload(indices, self.tensors.keys.device)
        self.rows = [self.rows[index] for index in indices]
        self.batch = len(self.rows)
        old = self.tensors
        self.tensors = self.make(old.capacity)
        self.tensors.keys.copy_(old.keys[:, rows])
        self.tensors.values.copy_(old.values[:, rows])
        self.share()


class RowStorage(NativeStorage):
    """One sequence's part of a batch's storage; it grows with the whole."""

    def __init__(self, whole: BatchStorage):
        self.model = whole.model
        self.batch = 1
        self.whole = whole

    def reserve(self, capacity: int) -> None:
        self.whole.reserve(capacity)


def row_caches(
    target: CausalLM, batch: int, capacity: int
) -> tuple[BatchStorage | None, list[Cache]]:
    """Return a batch's storage, which only native models share, and one cache per sequence."""
    if not target.native:
        return None, [target.new_cache(capacity=capacity) for _ in range(batch)]
    storage = BatchStorage(target, batch, capacity)
    return storage, [Cache(row) for row in storage.rows]


@torch.inference_mode()
def score_rows(
    target: CausalLM,
    storage: BatchStorage | None,
    rows: Sequence[Tensor],
    caches: Sequence[Cache],
    trees: Sequence[TokenTree],
    hidden_layers: Sequence[Layer] = (),
) -> list[Scores]:
    """Return what `target.score(rows[b], caches[b], trees[b], …)` gives for each row, by one pass.

    Shapes: rows [n_b].
    """
    roots = [
        target.root_slot(len(row), cache, tree)
        for row, cache, tree in zip(rows, caches, trees, strict=True)
    ]
    passes = [
        Pass(row[None], cache, None if tree.is_chain else tree, hidden_layers)
        for row, cache, tree in zip(rows, caches, trees)
    ]
    with steady_attention(target.device):
        if storage is None:
            backend: Any = target.backend
            all_scores = backend.score_rows(passes)
        else:
            all_scores = _native_pass(target, storage, passes)
    for cache, row, root in zip(caches, rows, roots):
        cache.root = root
        cache.length += len(row)
    return all_scores


def _native_pass(target: CausalLM, storage: BatchStorage, rows: Sequence[Pass]) -> list[Scores]:
    """Run a pass of a native model over padded rows, and return each row's scores.

    The padding's keys are written beyond the row's length, where no token attends to them and the
    next pass overwrites them.
    """
    lengths, window = [row.cache.length for row in rows], target.model.config.window
    tokens, positions = Pass.padded(rows, target.device)
    batch, widest = tokens.shape
    end = max(lengths) + widest
    storage.reserve(end)
    slots = upload(lengths, target.device)[:, None] + torch.arange(widest, device=target.device)
    mask = torch.zeros(batch, 1, widest, end, dtype=torch.bool, device=target.device)
    mask[..., 0] = True  # padding attends to something: else its attention would be NaN
    for index, (row, length) in enumerate(zip(rows, lengths)):
        count, ids = row.count, positions[index, : row.count]
        mask[index, 0, :count, : length + count] = visible(length, count, row.tree, window, ids)
    hidden: dict = dict.fromkeys(rows[0].hidden_layers)
    part, bias = storage.tensors.part(slots=slice(0, end)), additive(mask, target.dtype)
    scores = Scores(target.model(tokens, part, slots, positions, bias, None, hidden), hidden)
    return [scores.of_row(index, row.count) for index, row in enumerate(rows)]
