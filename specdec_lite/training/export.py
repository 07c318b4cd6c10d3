"""Export of EAGLE heads to folders that vLLM loads beside their target.

vLLM's methods are {"method": "eagle", …} and {"method": "eagle3", …}.
"""

import json
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite.drafters.eagle_head import Eagle1Head, Eagle3Head, FeatureHead
from specdec_lite.engine.hf_state import FUSED
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.model_config import config_to_hf
from specdec_lite.loading.weights import write

RENAMED = {
    "block.norm1.embedded.weight": "midlayer.input_layernorm.weight",
    "block.norm1.state.weight": "midlayer.hidden_norm.weight",
    "norm.weight": "norm.weight",
    "head.weight": "lm_head.weight",
    "fuse.weight": "fc.weight",
}
"""Our name → vLLM's name of the weights that are not inside a block."""


def export(
    folder: str | Path, head: FeatureHead, target: CausalLM, dtype: torch.dtype = torch.bfloat16
) -> Path:
    """Write config.json and model.safetensors for vLLM's `speculative_config`.

    The configuration is {"method": "eagle" or "eagle3", "model": folder,
    "num_speculative_tokens": γ}.
    """
    kinds: dict[type[FeatureHead], tuple[str, str]] = {
        Eagle1Head: ("layers.0", "LlamaForCausalLM"),
        Eagle3Head: ("midlayer", "LlamaForCausalLMEagle3"),
    }
    if type(head) not in kinds or head.layers not in (
        ("final",),
        head.default_layers(target.num_layers),
    ):
        raise ValueError(
            f"head is a {type(head).__name__} on layers {head.layers}: must be an Eagle1Head, or an"
            " Eagle3Head on its own three layers"
        )
    prefix, architecture = kinds[type(head)]
    tensors = vllm_tensors(head, prefix)
    config = config_to_hf(head.shape, architecture, vocab_size=target.vocab_size, mlp_bias=False)
    if isinstance(head, Eagle3Head):
        count = len(head.ids)
        config["draft_vocab_size"] = count
        in_draft = torch.zeros(target.vocab_size, dtype=torch.bool)
        in_draft[head.ids.cpu()] = True
        tensors |= {"d2t": head.ids.cpu() - torch.arange(count), "t2d": in_draft}
    return write_folder(folder, config, tensors, dtype)


def vllm_tensors(head: FeatureHead, prefix: str) -> dict[str, Tensor]:
    """Return a head's weights under vLLM's names, fused matrices split."""
    sizes = head.shape
    kv_size = sizes.num_kv_heads * sizes.head_size
    splits = {
        "qkv": [sizes.num_heads * sizes.head_size, kv_size, kv_size],
        "gate_up": [sizes.intermediate_size] * 2,
    }
    tensors = {}
    for name, weight in head.state_dict().items():
        if name in RENAMED:
            tensors[RENAMED[name]] = weight
        elif name != "ids":
            ours = name.split(".")[1]
            parts = weight.split(splits[ours]) if ours in splits else [weight]
            for theirs, part in zip(FUSED[ours], parts):
                tensors[f"{prefix}.{theirs}.weight"] = part
    return tensors


def write_folder(
    folder: str | Path, config: dict, tensors: dict[str, Tensor], dtype: torch.dtype
) -> Path:
    """Write config.json and model.safetensors and return the path of the latter."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config |= {"dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    cast = {n: w.to(dtype) if w.is_floating_point() else w for n, w in tensors.items()}
    return write(folder / "model.safetensors", cast, {})
