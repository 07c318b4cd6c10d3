"""Exported heads: the names and shapes that vLLM loads, and the same logits from them."""

import json

import torch
import torch.nn.functional as F
from features_zoo import random_head
from heads_zoo import random_blocks
from models_zoo import native
from safetensors.torch import load_file

from specdec_lite.drafters.eagle_head import Eagle3Head
from specdec_lite.drafters.heads import OutputHead, ReducedHeads
from specdec_lite.training.anchors import anchor_logits
from specdec_lite.training.export import export, export_blocks, export_medusa
from specdec_lite.training.unroll import unroll

TARGET = native(num_layers=8, dtype=torch.float32)
IDS = torch.arange(5, 25)
WORDS = torch.arange(3, 43, 2)
TEXT = torch.tensor([[5, 17, 3, 41, 9, 28, 33, 12]])


def eagle3():
    torch.manual_seed(0)
    return Eagle3Head.for_target(TARGET, IDS).requires_grad_(False)


def test_the_tensors_of_an_eagle_head(tmp_path):
    export(tmp_path, random_head(TARGET), TARGET)
    sizes = {name: tuple(t.shape) for name, t in load_file(tmp_path / "model.safetensors").items()}
    assert sizes == {
        "fc.weight": (32, 64),
        "layers.0.self_attn.q_proj.weight": (32, 32),
        "layers.0.self_attn.k_proj.weight": (16, 32),
        "layers.0.self_attn.v_proj.weight": (16, 32),
        "layers.0.self_attn.o_proj.weight": (32, 32),
        "layers.0.mlp.gate_proj.weight": (48, 32),
        "layers.0.mlp.up_proj.weight": (48, 32),
        "layers.0.mlp.down_proj.weight": (32, 48),
        "layers.0.post_attention_layernorm.weight": (32,),
    }
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["num_hidden_layers"] == 1 and config["architectures"] == ["LlamaForCausalLM"]


def test_the_tensors_of_an_eagle_3_head(tmp_path):
    export(tmp_path, eagle3(), TARGET)
    tensors = load_file(tmp_path / "model.safetensors")
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {
        "fc.weight": (32, 96),
        "midlayer.self_attn.q_proj.weight": (32, 64),
        "midlayer.self_attn.k_proj.weight": (16, 64),
        "midlayer.self_attn.v_proj.weight": (16, 64),
        "midlayer.self_attn.o_proj.weight": (32, 32),
        "midlayer.mlp.gate_proj.weight": (48, 32),
        "midlayer.mlp.up_proj.weight": (48, 32),
        "midlayer.mlp.down_proj.weight": (32, 48),
        "midlayer.hidden_norm.weight": (32,),
        "midlayer.input_layernorm.weight": (32,),
        "midlayer.post_attention_layernorm.weight": (32,),
        "norm.weight": (32,),
        "lm_head.weight": (20, 32),
        "d2t": (20,),
        "t2d": (48,),
    }
    assert (torch.arange(20) + tensors["d2t"]).tolist() == IDS.tolist()
    assert tensors["t2d"].nonzero()[:, 0].tolist() == IDS.tolist()
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["draft_vocab_size"] == 20 and tensors["d2t"].dtype == torch.int64


def test_the_first_pair_through_the_exported_weights_gives_our_logits(tmp_path):
    """A single pair attends to itself alone, so the block is o(v) and the MLP, written out here."""
    head = eagle3()
    export(tmp_path, head, TARGET, torch.float32)
    w = load_file(tmp_path / "model.safetensors")
    hidden = TARGET.score(TEXT, TARGET.new_cache(), hidden_layers=head.layers).hidden
    embedded = TARGET.embed(TEXT)
    ours = head.logits(next(unroll(head, hidden, embedded, 1))[0, 0], head.rows(TARGET))

    def norm(x, name):
        return F.rms_norm(x, x.shape, w[name], head.shape.norm_eps)

    g = w["fc.weight"] @ torch.cat([hidden[layer][0, 0] for layer in head.layers])
    pair = (
        norm(embedded[0, 1], "midlayer.input_layernorm.weight"),
        norm(g, "midlayer.hidden_norm.weight"),
    )
    v = (w["midlayer.self_attn.v_proj.weight"] @ torch.cat(pair)).view(2, 8)
    a = g + w["midlayer.self_attn.o_proj.weight"] @ v.repeat_interleave(2, 0).flatten()
    x = norm(a, "midlayer.post_attention_layernorm.weight")
    gate = F.silu(w["midlayer.mlp.gate_proj.weight"] @ x) * (w["midlayer.mlp.up_proj.weight"] @ x)
    a = a + w["midlayer.mlp.down_proj.weight"] @ gate
    assert (w["lm_head.weight"] @ norm(a, "norm.weight") - ours).abs().max() < 1e-5


# Medusa and block diffusion ------------------------------------------------------------------------


def heads():
    result = ReducedHeads(32, 3, len(WORDS)).requires_grad_(False)
    torch.nn.init.normal_(result.up, std=0.3, generator=torch.Generator().manual_seed(0))
    result.words.ids.copy_(WORDS)
    return result


def blocks(**options):
    shape = {"num_layers": 1, "num_kv_heads": 4, "qk_norm": True}
    result = random_blocks(TARGET, 4, words=len(WORDS), layers=(2, 5), **shape | options)
    for norm in (result.blocks[0].q_norm, result.blocks[0].k_norm, result.inputs):
        if norm is not None:
            torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
    result.words.ids.copy_(WORDS)
    return result


def states(layers):
    return TARGET.score(TEXT, TARGET.new_cache(), hidden_layers=(*layers, "final")).hidden


def test_exported_medusa_heads_give_our_logits(tmp_path):
    export_medusa(tmp_path, heads(), TARGET, torch.float32)
    w = load_file(tmp_path / "model.safetensors")
    assert {name: tuple(t.shape) for name, t in w.items()} == {
        **{f"blocks.{i}.layers.0.weight": (32, 32) for i in range(3)},
        "lm_heads.0.weight": (48, 32),
    }
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["truncated_vocab_size"], config["num_heads"]) == (48, 3)
    x = states(())["final"][0, 3]
    output = OutputHead(TARGET, heads().words)
    ours = anchor_logits(heads(), output, TEXT, states(()), torch.tensor([4]), 3)[0, 0]
    for i in range(3):
        theirs = F.linear(x + F.silu(w[f"blocks.{i}.layers.0.weight"] @ x), w["lm_heads.0.weight"])
        assert (theirs[WORDS] - ours[i]).abs().max() < 1e-5


def split_heads(x, name, w, norm=None):
    """[n, d] → [H, n, h], normed if `norm` is given."""
    projected = F.linear(x, w[f"layers.0.self_attn.{name}_proj.weight"]).unflatten(-1, (4, 8))
    weight = w.get(f"layers.0.self_attn.{name}_norm.weight") if norm else None
    return (projected if weight is None else F.rms_norm(projected, (8,), weight, norm)).transpose(
        0, 1
    )


def rotate(x, start, theta):
    """Apply rotary embeddings from position `start` on; x: [H, n, 8]."""
    at = torch.arange(start, start + x.shape[1]).float()
    angles = torch.outer(at, theta ** (-torch.arange(0, 8, 2) / 8)).repeat(1, 2)
    other = torch.cat((-x[..., 4:], x[..., :4]), -1)
    return x * angles.cos() + other * angles.sin()


def test_exported_block_diffusion_gives_our_logits(tmp_path):
    """Compare with vLLM's layer, written out.

    Context keys skip the input norm, all keys are normed, and the block attends to all of itself.
    """
    head = blocks()
    export_blocks(tmp_path, head, TARGET, 47, torch.float32)
    w = load_file(tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["dflash_config"] == {"mask_token_id": 47, "target_layer_ids": [1, 4]}
    assert config["draft_vocab_size"] == 20 and tuple(w["fc.weight"].shape) == (32, 64)
    assert (torch.arange(20) + w["d2t"]).tolist() == WORDS.tolist()
    eps, theta = head.config.norm_eps, head.config.rope_theta
    known = states((2, 5))
    ours = anchor_logits(head, OutputHead(TARGET, head.words), TEXT, known, torch.tensor([5]), 3)[
        0, 0
    ]

    def norm(x, name):
        return F.rms_norm(x, (32,), w[name], eps)

    context = F.linear(torch.cat((known[2], known[5]), -1)[0, :5], w["fc.weight"])
    context = norm(context, "hidden_norm.weight")
    mask = torch.load(tmp_path / "mask_embedding.pt", weights_only=True)["embedding"]
    x = torch.cat((TARGET.embed(TEXT[0, 5:6]), mask.expand(3, -1)))
    inner = norm(x, "layers.0.input_layernorm.weight")
    q = rotate(split_heads(inner, "q", w, eps), 5, theta)
    keys = (split_heads(context, "k", w, eps), split_heads(inner, "k", w, eps))
    k = torch.cat((rotate(keys[0], 0, theta), rotate(keys[1], 5, theta)), 1)
    v = torch.cat((split_heads(context, "v", w), split_heads(inner, "v", w)), 1)
    seen = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
    x = x + F.linear(seen, w["layers.0.self_attn.o_proj.weight"])
    inner = norm(x, "layers.0.post_attention_layernorm.weight")
    gate = F.silu(F.linear(inner, w["layers.0.mlp.gate_proj.weight"]))
    up = F.linear(inner, w["layers.0.mlp.up_proj.weight"])
    x = x + F.linear(gate * up, w["layers.0.mlp.down_proj.weight"])
    theirs = F.linear(norm(x, "norm.weight")[1:], w["lm_head.weight"])
    assert (theirs - ours).abs().max() < 1e-4
