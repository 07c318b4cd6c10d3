"""Heads of the EAGLE family as folders that vLLM loads beside their target.

What lives here: names, shapes and config of `{"method": "eagle", …}` and `{"method": "eagle3", …}`,
and the writing of such a folder. What does not: the heads (`drafters.feature_head`), and running an
engine.
"""

import json
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite.drafters.feature_head import Eagle1Head, Eagle3Head, FeatureHead
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import FUSED
from specdec_lite.loading.pairs import config_to_hf
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
    prefix, architecture = kinds[type(head)]
    tensors = state(head, prefix)
    config = config_to_hf(head.shape, architecture, vocab_size=target.vocab_size, mlp_bias=False)
    if isinstance(head, Eagle3Head):
        count = len(head.ids)
        config["draft_vocab_size"] = count
        known = torch.zeros(target.vocab_size, dtype=torch.bool)
        known[head.ids.cpu()] = True
        tensors |= {"d2t": head.ids.cpu() - torch.arange(count), "t2d": known}
    return write_folder(folder, config, tensors, dtype)


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


def write_folder(
    folder: str | Path, config: dict, tensors: dict[str, Tensor], dtype: torch.dtype
) -> Path:
    """Write config.json and model.safetensors, whole numbers as they are; returns the latter."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config |= {"dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    ready = {n: w.to(dtype) if w.is_floating_point() else w for n, w in tensors.items()}
    return write(folder / "model.safetensors", ready, {})
