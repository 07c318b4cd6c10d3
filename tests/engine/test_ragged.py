"""The pass of a batch, which never makes the host wait; `virtual_card` counts every copy's waits."""

import torch
from models_zoo import PROMPT, native

from specdec_lite.engine import transformer
from specdec_lite.engine.ragged import row_caches, score_rows
from specdec_lite.tree import TokenTree

ROWS = [torch.tensor(PROMPT), torch.tensor(PROMPT[:3]), torch.tensor([7])]
CHAINS = [TokenTree([], [])] * len(ROWS)


def reads_of(model, monkeypatch):
    """Return how often the host reads a value from a tensor in one batched pass."""
    storage, caches = row_caches(model, len(ROWS), 16)
    reads = []
    with monkeypatch.context() as patch:
        for name in ("item", "tolist", "__int__", "__bool__", "__index__", "__float__"):
            read = getattr(torch.Tensor, name)
            patch.setattr(
                torch.Tensor, name, lambda x, read=read: reads.append(x.device) or read(x)
            )
        score_rows(model, storage, ROWS, caches, CHAINS)
    return len(reads)


def test_a_batched_pass_reads_no_value_back(monkeypatch):
    """A broken variant, which reads the last slot in every layer, is found."""
    assert reads_of(native(), monkeypatch) == 0
    store = transformer.store

    def read_last_slot(past, k, v, start):
        int(start.max())
        return store(past, k, v, start)

    monkeypatch.setattr(transformer, "store", read_last_slot)
    assert reads_of(native(num_layers=3), monkeypatch) == 3


def test_a_batched_pass_attends_to_no_more_slots_than_it_needs():
    """The storage is longer than the rows; the rows equal their single passes."""
    model = native()
    storage, caches = row_caches(model, len(ROWS), 64)
    for each, row in zip(score_rows(model, storage, ROWS, caches, CHAINS), ROWS):
        single = model.score(row, model.new_cache()).logits
        assert (each.logits - single).abs().max() < 1e-12
    assert storage.tensors.capacity == 64 and [cache.length for cache in caches] == [10, 3, 1]
