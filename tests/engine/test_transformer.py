"""Our transformer gives Hugging Face's logits for the same weights, in every kind of pass."""

import dataclasses

import pytest
import torch
from models_zoo import PROMPT, WINDOW, build, native

from specdec_lite import generate
from specdec_lite.engine.hf_state import from_hf_state, to_hf_state
from specdec_lite.engine.native import NativeBackend
from specdec_lite.engine.transformer import FEW, Norm, Transformer
from specdec_lite.loading.model_config import config_from_hf, config_to_hf
from specdec_lite.loading.pairs import load_model
from specdec_lite.tree import TokenTree

SHAPES = {
    "Llama, grouped": ("Llama", {}),
    "Llama, one head per group": ("Llama", dict(num_key_value_heads=4)),
    "Llama, one group": ("Llama", dict(num_key_value_heads=1)),
    "Llama, tied": ("Llama", dict(tie_word_embeddings=True)),
    "Llama, head size apart": ("Llama", dict(head_dim=16)),
    "Llama, other base": ("Llama", dict(rope_theta=500.0)),
    "Qwen2, biases": ("Qwen2", {}),
    "Qwen2, tied, one head per group": (
        "Qwen2",
        dict(tie_word_embeddings=True, num_key_value_heads=4),
    ),
    "Qwen2, window": (
        "Qwen2",
        dict(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=0),
    ),
    "Qwen2, window on no layer": (
        "Qwen2",
        dict(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=2),
    ),
    "Qwen3, norms": ("Qwen3", dict(head_dim=8)),
    "Qwen3, norms, tied": ("Qwen3", dict(head_dim=8, tie_word_embeddings=True)),
    "Mistral, window": ("Mistral", dict(sliding_window=WINDOW)),
    "Mistral, no window": ("Mistral", dict(sliding_window=None)),
}
ROPE = dict(rope_theta=500.0, original_max_position_embeddings=8)
"""A context of 8 positions before the extension, so that the texts here exceed it."""
LLAMA3 = ROPE | dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
WITHOUT_ORIGINAL = {
    name: LLAMA3[name] for name in LLAMA3.keys() - {"original_max_position_embeddings"}
}
YARN = ROPE | dict(rope_type="yarn", factor=4.0)
SHAPES |= {
    "Llama, Llama 3's positions": ("Llama", dict(rope_parameters=LLAMA3, head_dim=16)),
    "Llama, YaRN": ("Llama", dict(rope_parameters=YARN, head_dim=16)),
    "Qwen2, YaRN, attention factor": (
        "Qwen2",
        dict(rope_parameters=YARN | dict(attention_factor=1.3, beta_fast=4.0, beta_slow=0.5)),
    ),
    "Qwen3, YaRN, not truncated, two scales": (
        "Qwen3",
        dict(
            rope_parameters=YARN | dict(truncate=False, mscale=1.0, mscale_all_dim=0.8), head_dim=16
        ),
    ),
    "Llama, Llama 3's positions, no original context": (
        "Llama",
        dict(rope_parameters=WITHOUT_ORIGINAL, head_dim=16, max_position_embeddings=64),
    ),
}
ELSEWHERE = {
    "Llama, biases everywhere": ("Llama", dict(attention_bias=True)),
    "Llama, MLP biases": ("Llama", dict(mlp_bias=True)),
    "Llama, another activation": ("Llama", dict(hidden_act="gelu")),
    "Qwen3, biases": ("Qwen3", dict(head_dim=8, attention_bias=True)),
    "Qwen2, window on some layers": (
        "Qwen2",
        dict(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
    ),
    "Llama, stretched positions": (
        "Llama",
        dict(rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=10000.0)),
    ),
}
TREE = TokenTree([20, 21, 22, 23, 24], [-1, -1, 0, 1, 2])


def random_model(family, options):
    """Return a Hugging Face model with random biases and norms too: a dropped one changes logits."""
    model = build(family, dict(initializer_range=0.2) | options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight += 0.3 * torch.randn(weight.shape, generator=generator)
    return model


@pytest.mark.parametrize(
    "family, options", [*SHAPES.values(), *ELSEWHERE.values()], ids=[*SHAPES, *ELSEWHERE]
)
def test_loaded_weights_give_hugging_faces_logits(family, options, tmp_path):
    theirs = random_model(family, options)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert isinstance(ours.backend, NativeBackend) == ((family, options) in SHAPES.values())
    assert ours.dtype == torch.float32
    rest = [30, 31, 32]
    with torch.no_grad():
        expected = theirs(torch.tensor([PROMPT + rest])).logits[0]
    cache = ours.new_cache()
    rows = [
        ours.score(PROMPT, cache).logits[0],
        ours.score(rest[:1], cache).logits[0],
        ours.score(rest[1:], cache).logits[0],
    ]
    assert (torch.cat(rows) - expected).abs().max() < 1e-4
    logits = ours.score([19, *TREE.tokens.tolist()], cache, TREE).logits[0]
    for path in TREE.paths():
        with torch.no_grad():
            expected = theirs(
                torch.tensor([PROMPT + rest + [19] + TREE.tokens[list(path)].tolist()])
            ).logits[0, -len(path) - 1 :]
        assert (logits[[0, *(node + 1 for node in path)]] - expected).abs().max() < 1e-4


def test_translating_weights_back_and_forth_changes_nothing():
    for family, options in (("Llama", {}), ("Qwen2", {}), ("Qwen3", dict(head_dim=8))):
        state = {k: v for k, v in build(family, options).state_dict().items()}
        shape = dict(qkv_bias=family == "Qwen2", qk_norm=family == "Qwen3", tied=False)
        model = native(dtype=torch.float32, **shape).model
        model.load_state_dict(from_hf_state(dict(state), model.config))
        again = to_hf_state(model)
        assert set(again) == set(state) and all(torch.equal(again[k], state[k]) for k in state)


def test_rows_of_a_batch_equal_single_passes():
    model = native()
    rows = torch.tensor([PROMPT, PROMPT[::-1]])
    cache = model.new_cache(batch=2)
    both = model.score(rows, cache).logits
    for row in range(2):
        assert torch.allclose(both[row], model.score(rows[row], model.new_cache()).logits[0])


def test_half_precision_uses_angles_computed_in_float32():
    model = native(max_positions=4096).model
    exact = model.rotary(torch.device("cpu"), torch.float32)
    half = model.rotary(torch.device("cpu"), torch.bfloat16)
    assert all((a - b.float()).abs().max() < 2**-8 for a, b in zip(exact, half))
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, 8, 2).bfloat16() / 8)
    trap = torch.outer(torch.arange(4096).bfloat16(), frequencies.bfloat16()).repeat(1, 2).cos()
    # The same table with angles in bfloat16 is wrong.
    assert (trap.float() - exact[0]).abs().max() > 0.5


@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("rows", [1, 5, FEW // 576 + 1])
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 2**-7), (torch.float32, 2**-18)])
def test_norms_equal_those_of_float64_to_rounding(dtype, tolerance, rows, size, inference):
    draw = torch.Generator().manual_seed(rows)
    norm = Norm(576, 1e-5)
    norm.weight.data = (0.5 + torch.rand(576, generator=draw)).to(dtype)
    x = size * (3 + torch.randn(1, rows, 576, generator=draw))  # its mean is not 0
    x = x.to(dtype)
    exact = x.double() / (x.double().square().mean(-1, keepdim=True) + norm.eps).sqrt()
    exact *= norm.weight.detach().double()
    with torch.inference_mode(inference), torch.no_grad():
        normed = norm(x)
    assert normed.dtype == dtype and normed.is_contiguous()
    normed = normed.double()
    # In bfloat16 every number is rounded twice, by 2^-8 at most; a row's scale is not rounded.
    assert ((normed - exact).abs() <= tolerance * (1 + exact.abs())).all()
    scale = (normed * exact).sum(-1) / exact.square().sum(-1)
    assert (scale - 1).abs().max() < tolerance / 8


@torch.inference_mode()
def test_a_bfloat16_row_has_the_same_norm_in_every_pass_that_verifies():
    norm = Norm(576, 1e-5).bfloat16()
    norm.weight.data = (0.5 + torch.rand(576)).bfloat16()
    x = torch.randn(1, 17, 576).bfloat16()
    assert torch.equal(norm(x), torch.cat([norm(row) for row in x.split(1, 1)], 1))


def test_a_model_that_has_decoded_can_be_trained():
    model = native(dtype=torch.float32)
    generate(model, PROMPT, max_new_tokens=2)
    model.model.requires_grad_(True)
    model.model(torch.tensor([PROMPT])).logsumexp(-1).sum().backward()
    assert all(weight.grad is not None for weight in model.model.parameters())


@pytest.mark.parametrize("rope", [LLAMA3, YARN], ids=["llama3", "yarn"])
def test_scaled_positions_change_the_logits_and_are_saved(rope, tmp_path):
    """Without the scaling the loaded model gives other logits, so the comparisons above can fail."""
    random_model("Llama", dict(rope_parameters=rope, head_dim=16)).save_pretrained(tmp_path)
    ours = load_model(tmp_path).model
    config = ours.config
    plain = Transformer(dataclasses.replace(config, rope_scaling=None))
    plain.load_state_dict(ours.state_dict())
    text = torch.tensor([PROMPT])
    assert (ours(text) - plain(text)).abs().max() > 0.01
    assert hash(config) == hash(dataclasses.replace(config))
    assert config_from_hf(config_to_hf(config, "LlamaForCausalLM")) == config
    assert config_from_hf(config_to_hf(config, "", rope_parameters=rope | {"factor": None})) is None
