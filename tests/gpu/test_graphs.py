"""Passes of fixed shape give the logits of growing ones; one class needs a GPU."""

import inspect
from unittest import mock

import pytest
import torch
from captures import replayed
from models_zoo import PROMPT, native, perturbed

from specdec_lite import CausalLM, TokenTree, generate, generate_batch
from specdec_lite.drafters import ModelDrafter, SparseCacheDrafter
from specdec_lite.gpu import graphs, programs, whole_draft
from specdec_lite.gpu.graphs import StaticLM

SHAPES = [{}, {"window": 6}, {"qk_norm": True, "num_kv_heads": 4}, {"qkv_bias": True, "tied": True}]
TREE = TokenTree([4, 5, 6, 7, 8], [-1, -1, 0, 1, 1])
FEW = [(PROMPT, None, None), ([3], None, None), ([1, *TREE.tokens], TREE, [0, 2])]


def both(capacity=96, sizes=(1, 2, 5, 9), **shape):
    model = native(dtype=torch.float32, scale=0.25, **shape)
    return model, StaticLM(model, capacity, sizes)


def steps(models, passes, **options):
    """Return the largest difference of the logits over passes, with one cache per model.

    A pass is (tokens, tree, what to keep of it, or None for everything).
    """
    caches, worst = [model.new_cache() for model in models], 0.0
    for tokens, tree, keep in passes:
        growing, static = (
            model.score(tokens, cache, tree, **options) for model, cache in zip(models, caches)
        )
        assert growing.logits.shape == static.logits.shape
        assert growing.hidden.keys() == static.hidden.keys()
        pairs = [(growing.hidden[x], static.hidden[x]) for x in growing.hidden]
        for a, b in [(growing.logits, static.logits), *pairs]:
            worst = max(worst, (a - b).abs().max().item())
        for cache in caches:
            cache.keep(range(len(tokens)) if keep is None else keep)
    assert caches[0].length == caches[1].length
    return worst


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "options", [dict(), dict(last=True), dict(hidden_layers=(0, 1, "final"))], ids=str
)
def test_static_passes_equal_growing_ones(shape, options):
    """Every length, padding, trees with a gap in the kept path, and a prompt beyond all programs."""
    passes = [
        (PROMPT, None, None),
        ([3], None, None),
        ([4, 5], None, None),
        ([9, 8, 7], None, [0, 1]),
        ([1, *TREE.tokens], TREE, [0, 2, 4]),
        ([2, 1, *TREE.tokens], TREE, [0, 1, 3]),
        ([11], None, None),
        ([*range(9)], None, [0]),
    ]
    assert steps(both(**shape), passes, **options) < 1e-5


def test_static_batches_in_float64_equal_growing_ones():
    model = native()
    static = StaticLM(model, 64, (1, 5))
    rows = torch.tensor([PROMPT, PROMPT[::-1]])
    caches = [m.new_cache(2) for m in (model, static)]
    for tokens in (rows, rows[:, :3], rows[:, :1]):
        both = zip((model, static), caches)
        growing, fixed = (each.score(tokens, cache).logits for each, cache in both)
        assert (growing - fixed).abs().max() < 1e-12


def test_the_masks_equal_the_growing_ones():
    """The device's masks equal `visible` for chains, padded trees and windows."""
    from specdec_lite.engine.cache import tree_positions, visible

    for window in (None, 4):
        static = StaticLM(native(window=window), 32, (7,))
        slot = static.new_cache().storage.slot
        for length in range(0, 24, 3):
            for count, tree in ((7, None), (3, None), (6, TREE), (7, TREE)):
                program = slot.program(7, (), tree is not None)
                program(torch.zeros(1, count, dtype=torch.long), length, tree)
                positions = tree_positions(length, count, tree, "cpu")
                expected = visible(length, count, tree, window, positions)
                mask = program.bias(length + torch.arange(7)) == 0
                assert torch.equal(mask[:count, : length + count], expected)
                assert not mask[:count, length + count :].any()
        chain = slot.program(7, (), False)
        chain.table = torch.zeros_like(chain.table)
        assert not chain.bias(torch.arange(7)).any(), "one look-up; a tree's takes ten operations"


def test_each_length_has_one_program_and_generations_share_a_slot():
    model, static = both()
    draft = StaticLM(perturbed(model), 128)
    first = generate(static, PROMPT, ModelDrafter(draft, 4), 30).tokens
    ((slot,),) = static.backend.free.values()
    assert set(slot.programs) <= {(size, (), False) for size in (1, 2, 5, 9)}
    assert torch.equal(generate(static, PROMPT, ModelDrafter(draft, 4), 30).tokens, first)
    assert list(static.backend.free.values()) == [[slot]]
    one, two = static.new_cache(), static.new_cache()
    assert one.storage.slot is not two.storage.slot and one.view(1).storage is one.storage


def test_nan_in_one_text_does_not_spoil_the_next():
    model, static = both()
    cache = static.new_cache()
    static.score(PROMPT, cache)
    cache.storage.tensors.values.fill_(float("nan"))
    cache.storage.tensors.keys.fill_(float("nan"))
    del cache
    assert steps((model, static), [(PROMPT[:3], None, None), ([3], None, None)]) < 1e-5


def test_a_slot_made_in_inference_mode_is_reused_outside_it():
    _, static = both()
    with torch.inference_mode():
        cache = static.new_cache()
        static.score([1, 2], cache)
        del cache
    cache = static.new_cache()
    assert static.score([1, 2], cache).logits.isfinite().all()


@pytest.fixture
def captured(monkeypatch):
    """Return a static model whose passes are replayed."""
    monkeypatch.setattr(graphs, "Capture", lambda device: replayed)
    static = both()[1]
    static.backend.captures = True
    return static


def test_what_a_pass_returned_does_not_change_when_its_buffers_are_reused(captured):
    cache = captured.new_cache()
    first = captured.score([3], cache, hidden_layers=(1,))
    copies = first.logits.clone(), first.hidden[1].clone()
    captured.score([4], cache, hidden_layers=(1,))
    assert torch.equal(first.logits, copies[0]) and torch.equal(first.hidden[1], copies[1])


def test_an_early_exit_runs_only_the_first_layers():
    logits = []
    for model in both():
        cache = model.new_cache()
        model.score(PROMPT, cache)
        logits.append(model.score([7], cache.view(layers=1)).logits)
        whole = model.score([7], cache).logits
    assert (logits[0] - logits[1]).abs().max() < 1e-5 < (logits[1] - whole).abs().max()


def addresses(model):
    return [weight.data_ptr() for weight in model.parameters()]


def capture_addresses(run):
    """Capture as a graph does: a replay reads the weights at the addresses of the capture."""
    model = run.__self__.slot.model
    original = addresses(model)

    def replay():
        assert original == addresses(model), "a replay would read weights that are gone"
        out[0].copy_(run()[0])

    out = run()
    return replay, out


@pytest.mark.parametrize("change", ["assign", "dtype and back"])
def test_no_graph_outlives_the_weights_it_reads(monkeypatch, change):
    monkeypatch.setattr(graphs, "Capture", lambda device: capture_addresses)
    model, static = both()
    static.backend.captures = True
    before = generate(static, PROMPT, max_new_tokens=8).tokens
    old = [weight.detach() for weight in model.model.parameters()]  # keeps their memory in use
    if change == "assign":
        state = {name: weight.clone() for name, weight in model.model.state_dict().items()}
        model.model.load_state_dict(state, assign=True)
    else:
        model.model.double()
        model.model.float()
    assert [weight.data_ptr() for weight in old] != addresses(model.model)
    assert torch.equal(generate(static, PROMPT, max_new_tokens=8).tokens, before)
    assert sum(map(len, static.backend.free.values())) == 1, "old slots are released"


def test_only_the_capture_class_needs_a_gpu(monkeypatch):
    """Everything else runs here, with a stand-in that serves all caches until the weights change."""
    for module in (graphs, programs, whole_draft):
        outside = inspect.getsource(module).replace(inspect.getsource(graphs.Capture), "")
        assert "torch.cuda" not in outside
    capture = mock.Mock(return_value=mock.Mock(wraps=replayed))
    monkeypatch.setattr(graphs, "Capture", capture)
    model, static = both()
    static.backend.captures = True
    assert steps((model, static), [*FEW, ([4], None, None), ([4, 5, 6], None, None)]) < 1e-5
    runs = capture.return_value.call_count
    assert runs == 3  # lengths 9 (a padded tree of 5), 1, and 5 (a padded block of 3)
    caches = static.new_cache(), static.new_cache(2)
    assert capture.call_count == 1 and all(cache.storage.slot.capture for cache in caches)
    model.model.double()
    static.new_cache()
    assert capture.call_count == 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_batches_and_sparse_caches_use_growing_passes(temperature):
    """Their storage has no slot; texts equal those of the plain model."""
    model, static = both()
    prompts = [PROMPT, PROMPT[:3], [7]]
    texts = []
    for target in (model, static):
        options = dict(max_new_tokens=12, temperature=temperature)
        batch = generate_batch(target, prompts, ModelDrafter(target, 3), seeds=range(3), **options)
        sparse = SparseCacheDrafter(target, sinks=1, window=4, gamma=3)
        alone = generate(target, PROMPT, sparse, seed=3, **options)
        texts.append([out.tokens.tolist() for out in (*batch, alone)])
    assert texts[0] == texts[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_graphs_on_a_gpu():
    model = CausalLM(native(dtype=torch.float32).model.cuda())
    static = StaticLM(model, 96, (1, 2, 5, 9))
    assert static.backend.captures
    assert steps((model, static), [*FEW, ([4, 5], None, None)]) < 1e-4
