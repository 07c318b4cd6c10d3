"""Long texts and many texts: memory is the cache's and nothing else's, and nothing is left behind."""

import gc

import psutil
import pytest
import torch
from chosen import draw, one_of
from drafted_rows import changed
from models_zoo import PROMPT, hugging_face, native, perturbed
from registry import DRAFTERS
from torch._subclasses.fake_tensor import FakeTensor

from specdec_lite import generate, stream
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.native import TRIANGLE

MEGABYTE = 1 << 20


def tensor_bytes() -> int:
    """Return the bytes of all tensor storages that Python can reach, each counted once."""
    gc.collect()
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in gc.get_objects()
        if issubclass(type(t), torch.Tensor) and not issubclass(type(t), FakeTensor)
        if not t.is_mkldnn
    }  # which the compiler traces with, and which hold nothing; packed weights tell no size
    return sum(storages.values())


def resident() -> int:
    return psutil.Process().memory_info().rss


def cache_bytes(model, length: int) -> int:
    """Return the bytes of keys and values of `length` tokens."""
    config = model.model.config
    width = config.num_layers * config.num_kv_heads * config.head_size
    return 2 * width * length * model.dtype.itemsize


def warmed(tokens, **shape):
    """Return a model whose tables (causal mask, rotary angles) already have their final size."""
    model = native(dtype=torch.float32, max_positions=8192, **shape)
    cache = model.new_cache()
    # The second pass follows stored tokens, so it needs the mask.
    for count in (1, min(tokens + 64, TRIANGLE) - 1):
        model.score([1] * count, cache, last=True)
    return model


def grown(tokens, drafter_of, **options):
    """Return reachable and resident bytes after a quarter and at the end of one long generation."""
    target = warmed(tokens)
    running = stream(target, PROMPT, drafter_of(warmed(tokens, seed=1)), tokens, **options)
    count = 0
    marks = []
    for step in running:
        count += len(step.tokens)
        if count >= tokens * (len(marks) + 1) / 4:
            marks.append((tensor_bytes(), resident()))
    assert count == tokens
    return marks[0], marks[-1], target


LENGTHS = [
    256,
    pytest.param(512, marks=pytest.mark.slow),
    pytest.param(4096, marks=pytest.mark.weekly),
]


@pytest.mark.parametrize("tokens", LENGTHS)
@pytest.mark.parametrize("temperature", one_of(__name__, [0.0, 1.0]))
def test_a_long_text_needs_its_cache_and_no_more(tokens, temperature):
    """Both caches are reserved at the start, so memory grows with the committed text only."""
    drafter_of = lambda draft: ModelDrafter(draft, 4)
    (early, resident_early), (late, resident_late), target = grown(
        tokens, drafter_of, temperature=temperature, seed=0
    )
    assert late - early <= 4 * 8 * tokens  # the row of ids, with a copy or two of it under way
    assert resident_late - resident_early < 24 * MEGABYTE
    assert cache_bytes(target, tokens) > 8 * 8 * tokens  # a second copy of the cache would be seen


def test_keeping_every_pass_would_be_seen():
    """A decoder that keeps the scores of every round must fail the same measure."""
    held = []

    def keeps(session):
        observe = session.observe
        session.observe = lambda verdict, scores: held.append(scores) or observe(verdict, scores)

    (early, _), (late, _), _ = grown(256, lambda draft: changed(ModelDrafter(draft, 4), keeps))
    assert late - early > 4 * 8 * 256


def left_behind(model, drafter, count):
    """Return the growth of tensor bytes, objects and resident memory over short generations."""
    marks = []
    for number in (24, count):
        for seed in range(number):
            generate(model, PROMPT[seed % 8 :], drafter, 6, temperature=float(seed % 2), seed=seed)
        marks.append((tensor_bytes(), len(gc.get_objects()), resident()))
    return [after - before for before, after in zip(*marks)]


LEAKS = [
    pytest.param(name, marks=pytest.mark.weekly if draw(name, 8) else pytest.mark.slow)
    for name in DRAFTERS
    if name != "draft model"
]  # a second each, and there are many


@pytest.mark.parametrize("name", ["draft model", *LEAKS])
@pytest.mark.parametrize("count", [24, pytest.param(1000, marks=pytest.mark.weekly)])
def test_many_short_texts_leak_no_memory(name, count):
    """Trees of new shapes stay in a bounded cache, with a few objects each."""
    model = native(dtype=torch.float32)
    tensors, objects, memory = left_behind(model, DRAFTERS[name](model), count)
    assert tensors < 64 * 1024 and objects < 3000 and memory < 24 * MEGABYTE


def test_many_short_texts_of_a_hugging_face_model_leak_no_memory():
    model = hugging_face("Llama")
    tensors, objects, memory = left_behind(model, ModelDrafter(perturbed(model), 3), 16)
    assert tensors == 0 and objects < 200 and memory < 24 * MEGABYTE


def test_an_abandoned_stream_frees_its_caches():
    model = warmed(2000)
    before = tensor_bytes()
    running = stream(model, PROMPT, ModelDrafter(model, 4), 2000)
    next(running)
    assert tensor_bytes() - before > 2 * cache_bytes(model, 2000)
    running.close()
    del running
    assert tensor_bytes() - before < cache_bytes(model, 100)
