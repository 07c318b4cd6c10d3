"""Heads of the EAGLE family as folders that vLLM loads beside their target.

What lives here: names, shapes and config of `{"method": "eagle", …}` and `{"method": "eagle3", …}`.
What does not: the heads (`drafters.feature_head`), and running an engine.
"""

import json
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite.drafters.feature_head import Eagle1Head, Eagle3Head, FeatureHead
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import FUSED
from specdec_lite.loading.weights import write

NORMS = {
    "block.norm1.embedded.weight": "midlayer.input_layernorm.weight",
    "block.norm1.state.weight": "midlayer.hidden_norm.weight",
    "norm.weight": "norm.weight",
    "head.weight": "lm_head.weight",
    "fuse.weight": "fc.weight",
}


def export(
    folder: str | Path, head: FeatureHead, target: CausalLM, dtype: torch.dtype = torch.bfloat16
) -> Path:
    """Write config.json and model.safetensors for vLLM's `speculative_config`: {"method": "eagle" or
    "eagle3", "model": folder, "num_speculative_tokens": γ}.

    Args:
        folder: made where it is missing.
        head: an `Eagle1Head`, which vLLM lets draft every token of the target's vocabulary, not
            only `ids`; or an `Eagle3Head` of three layers, whose `ids` become d2t and t2d. vLLM
            takes the layers from the target: blocks 2, L/2 and L − 3.
        target: whose sizes stand in the config.
        dtype: of the stored weights.

    Raises ValueError for other heads.
    """
    kinds = {Eagle1Head: ("layers.0", "LlamaForCausalLM")}
    kinds[Eagle3Head] = ("midlayer", "LlamaForCausalLMEagle3")
    if type(head) not in kinds or head.layers not in (("final",), head.reads(target.num_layers)):
        raise ValueError(
            f"head is a {type(head).__name__} on layers {head.layers}: must be an Eagle1Head, or an"
            " Eagle3Head on its own three layers"
        )
    folder = Path(folder)
    prefix, architecture = kinds[type(head)]
    tensors = {name: weight.to(dtype) for name, weight in state(head, prefix).items()}
    shape = head.shape
    described = {
        "architectures": [architecture],
        "model_type": "llama",
        "vocab_size": target.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_size,
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": "silu",
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "max_position_embeddings": shape.max_positions,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": str(dtype).removeprefix("torch."),
    }
    if isinstance(head, Eagle3Head):
        count = len(head.ids)
        described["draft_vocab_size"] = count
        known = torch.zeros(target.vocab_size, dtype=torch.bool)
        known[head.ids.cpu()] = True
        tensors |= {"d2t": head.ids.cpu() - torch.arange(count), "t2d": known}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    return write(folder / "model.safetensors", tensors, {})


def state(head: FeatureHead, prefix: str) -> dict[str, Tensor]:
    """The weights under the names of a Llama block called `prefix`, matrices taken apart."""
    shape = head.shape
    inner = shape.num_kv_heads * shape.head_size
    splits = {
        "qkv": [shape.num_heads * shape.head_size, inner, inner],
        "gate_up": [shape.intermediate_size] * 2,
    }
    made = {}
    for name, weight in head.state_dict().items():
        if name in NORMS:
            made[NORMS[name]] = weight
        elif name != "ids":
            ours = name.split(".")[1]
            parts = weight.split(splits[ours]) if ours in splits else [weight]
            for theirs, part in zip(FUSED[ours], parts):
                made[f"{prefix}.{theirs}.weight"] = part
    return made
