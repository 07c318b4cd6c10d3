"""Translation of weights between our transformer and Hugging Face's Llama family."""

import torch
from torch import Tensor

from specdec_lite.engine.transformer import Transformer, TransformerConfig

FUSED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
    "norm1": ("input_layernorm",),
    "norm2": ("post_attention_layernorm",),
    "q_norm": ("self_attn.q_norm",),
    "k_norm": ("self_attn.k_norm",),
}
"""Our name of each part of a block → the Hugging Face parts that it concatenates, in this order."""


def split_sizes(config: TransformerConfig) -> dict[str, list[int]]:
    """Return the rows of each Hugging Face part in a fused matrix, by our name of the matrix."""
    groups = config.num_kv_heads * config.head_size
    return {
        "qkv": [config.num_heads * config.head_size, groups, groups],
        "gate_up": [config.intermediate_size] * 2,
    }


def from_hf_state(state: dict[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Return a Hugging Face state dict under our names, with matrices fused."""
    ours = {
        "embedding.weight": state.pop("model.embed_tokens.weight"),
        "norm.weight": state.pop("model.norm.weight"),
    }
    ours["head.weight"] = ours["embedding.weight"] if config.tied else state.pop("lm_head.weight")
    for layer in range(config.num_layers):
        for name, theirs in FUSED.items():
            for kind in ("weight", "bias"):
                parts = [
                    state.pop(key)
                    for part in theirs
                    if (key := f"model.layers.{layer}.{part}.{kind}") in state
                ]
                if parts:
                    ours[f"blocks.{layer}.{name}.{kind}"] = (
                        torch.cat(parts) if len(parts) > 1 else parts[0]
                    )
    return ours


def to_hf_state(model: Transformer) -> dict[str, Tensor]:
    """Return a model's weights under Hugging Face's names: the inverse of `from_hf_state`."""
    config, ours = model.config, model.state_dict()
    state = {
        "model.embed_tokens.weight": ours["embedding.weight"],
        "model.norm.weight": ours["norm.weight"],
    }
    if not config.tied:
        state["lm_head.weight"] = ours["head.weight"]
    splits = split_sizes(config)
    for layer in range(config.num_layers):
        for name, theirs in FUSED.items():
            for kind in ("weight", "bias"):
                fused = ours.get(f"blocks.{layer}.{name}.{kind}")
                if fused is not None:
                    parts = fused.split(splits[name]) if name in splits else [fused]
                    state |= {
                        f"model.layers.{layer}.{part}.{kind}": t.contiguous()
                        for part, t in zip(theirs, parts)
                    }
    return state
