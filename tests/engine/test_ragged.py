"""The pass of a batch, and the uploads of every pass: none of them makes the host wait."""

import pytest
import torch
from models_zoo import PROMPT, native

from specdec_lite.engine import transformer
from specdec_lite.engine.ragged import row_caches, score_rows
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree

GPU = torch.device("cuda")
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


@pytest.fixture
def copies(monkeypatch):
    """Return the copies to a GPU, as (number of elements, pinned, without a wait)."""
    log, pinned = [], []

    def pin_memory(tensor):
        pinned.append(tensor)
        return tensor

    def to(tensor, device, non_blocking=False):
        assert device == GPU
        is_pinned = any(tensor is other for other in pinned)
        log.append((tensor.numel(), is_pinned, non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(torch.Tensor, "to", to)
    return log


def test_numbers_are_copied_to_a_gpu_from_pinned_memory(copies):
    """An empty list needs no pinned memory, since nothing is copied."""
    numbers = upload([0.25, 0.5], GPU, torch.float64)
    assert numbers.tolist() == [0.25, 0.5] and numbers.dtype == torch.float64
    assert upload([[3, 4, 5]], GPU).shape == (1, 3)
    assert upload([], GPU, torch.float64).shape == (0,)
    assert copies == [(2, True, True), (3, True, True), (0, False, False)]


def test_tensors_and_lists_are_taken_as_they_are_on_a_cpu():
    ids = torch.tensor([1, 2])
    assert upload(ids, torch.device("cpu")) is ids
    assert upload([1, 2], torch.device("cpu")).equal(ids)
