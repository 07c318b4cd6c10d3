"""Exported EAGLE heads: the names and shapes that vLLM loads, and the same logits from them."""

import json

import pytest
import torch
import torch.nn.functional as F
from features_zoo import random_head
from models_zoo import native
from safetensors.torch import load_file

from specdec_lite.drafters.eagle_head import Eagle3Head
from specdec_lite.training.export import export
from specdec_lite.training.unroll import unroll

TARGET = native(num_layers=8, dtype=torch.float32)
IDS = torch.arange(5, 25)
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


def test_other_heads_are_rejected(tmp_path):
    with pytest.raises(ValueError, match="head is a MtpHead"):
        export(tmp_path, random_head(TARGET, "mtp"), TARGET)
    with pytest.raises(ValueError, match=r"\(0, 1, 'final'\)"):
        export(tmp_path, random_head(TARGET, "eagle3"), TARGET)
