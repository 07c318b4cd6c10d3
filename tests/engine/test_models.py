"""Every family of models: prefill, step, block and tree passes, and a cache cut back to any path."""

import models_zoo
import pytest
import torch
from architectures import largest_error, tiny
from models_zoo import FAMILIES, PROMPT, VOCABULARY, WINDOW, build, hugging_face, logits_of, native

from specdec_lite import CausalLM, generate
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.cache import additive, tree_positions, visible
from specdec_lite.engine.native import NativeBackend
from specdec_lite.tree import TokenTree

NATIVE = {
    "native": {},
    "native with a window": dict(window=WINDOW),
    "native, grouped otherwise": dict(num_kv_heads=1, qkv_bias=True, qk_norm=True),
}
EVERY = [*NATIVE, *FAMILIES]
# All models are in float64. Families that compute rotary angles, ALiBi slopes or soft caps in float32
# differ by its rounding.
CLOSE = 1e-5
# Two first nodes, three leaves, unequal depths.
TREE = TokenTree([20, 21, 22, 23, 24, 25, 26], [-1, -1, 0, 0, 1, 2, 4])


def model_named(name):
    return native(**NATIVE[name]) if name in NATIVE else hugging_face(name)


@pytest.fixture(params=EVERY)
def model(request):
    return model_named(request.param)


def apart(ours, theirs):
    return (ours - theirs).abs().max().item()


def reference(model, tokens, last):
    """Return the last rows of one pass over the whole text by the bare module.

    A native model with a window is fed token by token instead.
    """
    if isinstance(model.backend, type(native().backend)) and model.model.config.window:
        cache = model.new_cache()
        return torch.cat([model.score([token], cache).logits[0] for token in tokens])[-last:]
    return logits_of(model, tokens)[-last:]


def test_every_kind_of_pass_gives_the_logits_of_one_pass(model):
    """A prompt, single tokens, a block, a tree, kept paths, and what follows a cut."""
    cache, rest, nodes = model.new_cache(capacity=4), [20, 30, 40, 1, 2, 3], TREE.tokens.tolist()
    expected = reference(model, PROMPT + rest, 7)
    prefill = model.score(PROMPT, cache, last=True).logits
    assert prefill.shape == (1, 1, VOCABULARY) and cache.length == len(PROMPT)
    steps = [model.score([token], cache).logits[0] for token in rest[:2]]
    rows = torch.cat([prefill[0], *steps, model.score(rest[2:], cache).logits[0]])
    assert apart(rows, expected) < CLOSE and cache.length == len(PROMPT) + 6
    assert expected.argmax(-1).unique().numel() > 1
    for path in ((), (1,), (1, 4, 6), (0, 3), (0, 2, 5)):
        cache.crop(len(PROMPT))
        logits = model.score([19, *nodes], cache, TREE).logits[0]
        assert logits.shape == (8, VOCABULARY) and cache.length == len(PROMPT) + 8
        text = [*PROMPT, 19, *(nodes[node] for node in path)]
        kept = (0, *(node + 1 for node in path))
        cache.keep(kept)
        after = model.score([5, 6], cache).logits[0]
        expected = reference(model, [*text, 5, 6], len(path) + 3)
        assert apart(torch.cat((logits[[*kept]], after)), expected) < CLOSE
        assert cache.length == len(text) + 2
    for length in (4, 0):
        cache.crop(length)
        expected = reference(model, [*PROMPT[:length], 7, 8], 2)
        assert apart(model.score([7, 8], cache).logits[0], expected) < CLOSE


def test_a_pass_can_return_the_last_row_alone():
    """Whisper's decoder, for example, ignores `logits_to_keep`."""
    model = CausalLM(tiny("whisper"))
    assert model.score(PROMPT, model.new_cache(), last=True).logits.shape == (1, 1, VOCABULARY)


@pytest.mark.parametrize("name", ["native", "Llama"])
def test_a_prefill_computes_the_logits_of_its_last_row_alone(name):
    """All logits of a long prompt would need more memory than its keys and values."""
    model, rows = model_named(name), []
    watching = model.backend.head.register_forward_pre_hook(
        lambda head, given: rows.append(given[0].shape[-2])
    )
    model.score(PROMPT, model.new_cache(), last=True)
    model.score(PROMPT, model.new_cache())
    watching.remove()
    assert rows == [1, len(PROMPT)]


@pytest.mark.parametrize(
    "family, config, window",
    [
        ("Llama", dict(sliding_window=WINDOW), None),
        ("Granite", dict(sliding_window=WINDOW), None),
        ("Mistral", dict(sliding_window=WINDOW, use_sliding_window=False), WINDOW),
        ("Starcoder2", dict(sliding_window=WINDOW, use_sliding_window=False), WINDOW),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_window_is_what_the_code_reads_not_the_config(family, config, window):
    """A setting that the model's code does not read has no effect."""
    model = CausalLM(build(family, FAMILIES[family] | config).double())
    whole = model.model(torch.tensor([PROMPT]), use_cache=False).logits
    assert model.backend.windowed == window and len(PROMPT) > WINDOW
    assert (model.score(PROMPT, model.new_cache()).logits - whole).abs().max() < CLOSE
    assert largest_error(model) < CLOSE


# Cache --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["native", "Llama"])
def test_a_cache_may_keep_nothing_and_then_nothing_again(name):
    model = model_named(name)
    cache = model.new_cache()
    cache.keep([])
    assert cache.length == 0 == cache.root
    model.score([1, 2, 3], cache)
    model.score([4, 5], cache)
    cache.keep([])
    assert cache.length == 3 == cache.root
    with pytest.raises(ValueError, match="0 tokens"):
        cache.keep([0])


def test_a_model_may_change_its_dtype_between_two_texts():
    model, pieces = native(), []
    for dtype in (torch.float64, torch.float32):  # the second piece of a text needs a mask
        model.model.to(dtype)
        cache = model.new_cache()
        pieces.append([model.score(part, cache).logits for part in (PROMPT[:4], PROMPT[4:])])
    first, second = (torch.cat(each, 1) for each in pieces)
    assert second.dtype == torch.float32 and apart(first, second) < 1e-3
    assert model.backend.triangle.dtype == torch.float32


@pytest.mark.parametrize("name", ["native", "Llama"])
def test_the_levels_of_a_tree_count_and_not_its_nodes_at_the_end_of_the_context(name):
    model = model_named(name)
    cache = model.new_cache()
    model.score([1] * 509, cache)
    tree = TREE.prune(range(4))[0]
    model.score([1, *tree.tokens], cache, tree)  # five tokens, but only two levels
    assert cache.length == 514


def test_native_storage_doubles_and_keeps_its_entries():
    model, cache = native(), native().new_cache(capacity=3)
    expected = logits_of(model, PROMPT)
    rows, sizes = [], set()
    for token in PROMPT:
        rows.append(model.score([token], cache).logits[0])
        sizes.add(cache.storage.tensors.capacity)
    assert apart(torch.cat(rows), expected) < 1e-10 and sizes == {3, 6, 12}


@pytest.mark.parametrize(
    "model",
    [native, lambda: hugging_face("Llama"), lambda: hugging_face("Bloom")],
    ids=["native", "one pass", "path by path"],
)
def test_the_last_row_of_a_tree_can_be_returned_alone(model):
    model, tree = model(), TokenTree([5, 6, 7], [-1, -1, 0])
    last, whole = (
        model.score([3, *tree.tokens.tolist()], model.new_cache(), tree, last=last).logits
        for last in (True, False)
    )
    assert last.shape[1] == 1 and apart(last[0], whole[0, -1:]) < 1e-10


# Hidden states ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["native", "Llama", "GPT2", "Gemma2", "Qwen3", "Bloom"])
def test_hidden_states_are_returned_by_name(name):
    model = model_named(name)
    cache, layers = model.new_cache(), (0, 1, "final")
    scores = model.score(PROMPT, cache, hidden_layers=layers)
    assert set(scores.hidden) == set(layers)
    assert all(h.shape == (1, len(PROMPT), model.hidden_size) for h in scores.hidden.values())
    if name not in ("Gemma2", "GPT2", "Bloom"):  # these scale it, add positions, or normalize it
        assert apart(scores.hidden[0], model.embed(torch.tensor([PROMPT]))) < 1e-10
    assert apart(model.head(scores.hidden["final"]), scores.logits) < (
        1e-10 if name != "Gemma2" else CLOSE
    )
    cache = model.new_cache()
    tree = model.score([1, *TREE.tokens.tolist()], cache, TREE, layers)
    assert apart(model.head(tree.hidden["final"]), tree.logits) < CLOSE
    for path in ((), (0,), (1, 4)):
        along, rows = tree.along(path), [0, *(node + 1 for node in path)]
        assert torch.equal(along.logits, tree.logits[:, rows])
        assert torch.equal(along.hidden[1], tree.hidden[1][:, rows])


@pytest.mark.parametrize(
    "family, change",
    [
        ("Cohere", dict(logit_scale=0.06)),
        ("Granite", dict(logits_scaling=8.0)),
        ("Gemma2", dict(final_logit_softcapping=0.5)),
        ("HyperCLOVAX", dict(logits_scaling=0.25)),
        ("Mpt", dict(logit_scale=8.0)),  # transformers ignores it
    ],
)
def test_the_head_scales_and_caps_logits_as_the_type_does(family, change):
    model = CausalLM(build(family, FAMILIES.get(family, {}) | change).double())
    scores = model.score(PROMPT, model.new_cache(), hidden_layers=("final",))
    assert apart(model.head(scores.hidden["final"]), scores.logits) < CLOSE
    with torch.inference_mode():
        bare = apart(model.backend.head(scores.hidden["final"]), scores.logits)
    assert (bare > 0.1) == (family != "Mpt")


def test_a_head_of_another_width_raises_an_error():
    model = CausalLM(tiny("rembert"))  # a layer before its head makes the states narrower
    with pytest.raises(ValueError, match="RemBertForCausalLM"):
        model.head(torch.randn(1, model.hidden_size, dtype=model.dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_head_that_gives_other_logits_than_a_pass_raises(dtype):
    usual, scaled = (CausalLM(build("Llama", FAMILIES["Llama"]).to(dtype)) for _ in range(2))
    hidden = torch.randn(3, usual.hidden_size, dtype=dtype)
    assert usual.head(hidden).shape == (3, usual.vocab_size)

    def halve(module, inputs, out):
        out.logits = out.logits / 2
        return out

    scaled.model.register_forward_hook(halve)
    with pytest.raises(ValueError, match="LlamaForCausalLM"):
        scaled.head(hidden)


def test_models_whose_kernels_take_no_mask_go_path_by_path():
    plain, other = (build("Mistral", FAMILIES["Mistral"]) for _ in range(2))
    other.config._attn_implementation = "flash_attention_2"
    assert CausalLM(other).backend.by_path and not CausalLM(plain).backend.by_path


def test_a_tree_takes_one_pass_if_the_family_allows_it():
    by_path = {
        "Bloom": True,
        "Mpt": True,
        "GPTNeo": True,
        "FalconAlibi": True,
        "Llama4": True,
    } | dict.fromkeys(("Falcon", "Llama", "Mistral", "Qwen2", "Gemma2"), False)
    assert {name: hugging_face(name).backend.by_path for name in by_path} == by_path


def test_masks_and_positions_are_made_on_the_given_device():
    """The meta device is the stand-in for a GPU."""
    for tree in (None, TREE):
        positions = tree_positions(2, 8, tree, torch.device("meta"))
        mask = visible(2, 8, tree, WINDOW, positions)
        assert {
            positions.device.type,
            mask.device.type,
            additive(mask, torch.float16).device.type,
        } == {"meta"}


def test_a_prompt_is_read_without_a_mask(monkeypatch):
    """A mask of n × n numbers for every query head of a group would be larger than the model."""
    model = native(num_kv_heads=1)
    monkeypatch.setattr(
        type(model.backend), "causal", lambda *args: pytest.fail("a mask was built")
    )
    logits = model.score(PROMPT, model.new_cache()).logits[0]
    assert apart(logits, logits_of(model, PROMPT)) < CLOSE


def test_a_mask_does_not_depend_on_what_another_thread_stores():
    """Every read of the stored mask after the first finds the one of another thread."""

    class Racing(NativeBackend):
        reads = 0

        @property
        def triangle(self):
            self.reads += 1
            return self.stored if self.reads == 1 else torch.zeros(0, 0)

        @triangle.setter
        def triangle(self, mask):
            self.stored = mask

    weight = torch.zeros(1)
    backend = Racing(native().model)
    for count in (4, 700):  # the stored mask is too small, then large enough
        expected = additive(torch.ones(count, 2 + count, dtype=torch.bool).tril(2), weight.dtype)
        backend.reads = 0
        assert torch.equal(backend.causal(2, count, weight), expected)
        backend.reads = 0
        assert torch.equal(backend.causal(2, count, weight), expected)


def test_a_text_may_be_longer_than_the_stored_mask(monkeypatch):
    monkeypatch.setattr("specdec_lite.engine.native.TRIANGLE", 8)
    model = native()
    cache, expected = model.new_cache(), logits_of(model, PROMPT)
    rows = [
        model.score(PROMPT[start:end], cache).logits[0] for start, end in ((0, 5), (5, 8), (8, 10))
    ]
    assert apart(torch.cat(rows), expected) < 1e-10 and model.backend.triangle.shape == (8, 8)


def test_a_config_saved_without_a_cache_gets_one():
    """Fine-tuning with gradient checkpoints saves such configs."""
    model = CausalLM(build("Llama", dict(use_cache=False)).double())
    cache = model.new_cache()
    model.score(PROMPT, cache)
    assert (
        apart(model.score([7, 8], cache).logits[0], logits_of(model, [*PROMPT, 7, 8])[-2:]) < CLOSE
    )


def test_models_have_the_attributes_of_their_config():
    """The context length is read from any of its names."""
    of = lambda m: (m.vocab_size, m.num_layers, m.max_positions, m.hidden_size)
    assert of(native()) == of(hugging_face("GPT2")) == (VOCABULARY, 2, 512, 32)
    kinds = {"llama": 512, "mpt": 512, "whisper": 512, "bloom": 1 << 30}
    assert {kind: CausalLM(tiny(kind)).max_positions for kind in kinds} == kinds


# Context ------------------------------------------------------------------------------------------


def test_long_rope_is_read_no_further_than_its_first_context():
    """A longer pass rotates all its tokens by other angles, so text would depend on γ."""
    rope = dict(
        rope_type="longrope",
        short_factor=[1.0] * 4,
        long_factor=[4.0] * 4,
        rope_theta=1e4,
        original_max_position_embeddings=24,
    )
    model = CausalLM(
        build(
            "Phi3",
            FAMILIES["Phi3"]
            | dict(original_max_position_embeddings=24, rope_parameters=rope, sliding_window=None),
        ).double()
    )
    assert model.max_positions == 24
    assert CausalLM(build("Phi3", FAMILIES["Phi3"])).max_positions == 512
    plain = generate(model, PROMPT[:4], max_new_tokens=20).tokens
    assert all(
        torch.equal(generate(model, PROMPT[:4], ModelDrafter(model, gamma), 20).tokens, plain)
        for gamma in (1, 3, 6)
    )
    with pytest.raises(ValueError, match="context length of 24"):
        generate(model, PROMPT[:4], max_new_tokens=21)
    model.max_positions = 512  # what the error prevents
    plain = generate(model, PROMPT[:4], max_new_tokens=40).tokens
    assert any(
        not torch.equal(generate(model, PROMPT[:4], ModelDrafter(model, gamma), 40).tokens, plain)
        for gamma in (1, 3, 6)
    )


@pytest.mark.parametrize("kind", ["bert", "roformer"])
def test_bidirectional_models_raise_an_error(kind, monkeypatch):
    CausalLM(tiny(kind))
    monkeypatch.setitem(models_zoo.SMALL, "is_decoder", False)
    with pytest.raises(ValueError, match="is_decoder=False"):
        CausalLM(tiny(kind))


@pytest.mark.parametrize("model", [native, lambda: hugging_face("Qwen2")])
@pytest.mark.parametrize("ids", [[3, 48], [-1, 2]])
def test_ids_outside_the_vocabulary_raise_and_change_nothing(model, ids):
    model = model()
    cache = model.new_cache()
    model.score([1, 2, 3], cache)
    with pytest.raises(
        ValueError, match=f"tokens holds ids from {min(ids)} to {max(ids)}: must be 0 … 47"
    ):
        model.score(ids, cache)
    assert cache.length == 3
    fresh = model.score([1, 2, 3, 4], model.new_cache(), last=True).logits
    assert torch.allclose(model.score([4], cache).logits, fresh, atol=1e-5)
