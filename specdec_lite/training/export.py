"""Export of EAGLE heads and of block diffusion to folders for vLLM, beside the target.

vLLM's methods are "eagle", "eagle3" and "dflash".
"""

import json
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite.checks import whole
from specdec_lite.drafters.block_diffusion import BlockHead
from specdec_lite.drafters.eagle import Eagle1Head, Eagle3Head, FeatureHead
from specdec_lite.drafters.heads import OutputHead
from specdec_lite.engine.hf_state import FUSED, split_sizes, to_hf_state
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
    splits = split_sizes(head.shape)
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


def export_blocks(
    folder: str | Path,
    head: BlockHead,
    target: CausalLM,
    mask_id: int,
    dtype: torch.dtype = torch.bfloat16,
) -> Path:
    """Write a folder for vLLM's `speculative_config` with block diffusion (DFlash).

    The configuration is {"method": "dflash", "model": folder, "num_speculative_tokens": γ}. vLLM
    fills a block of γ + 1 positions, best as long as in training.
    """
    shape = head.config
    is_plain = head.correction is None and not head.parts.stated
    if not shape.qk_norm or not is_plain or not all(map(is_block, head.layers)):
        raise ValueError(
            f"head has qk_norm={shape.qk_norm}, layers={head.layers}, parts={head.parts.stated} and"
            f" {'a' if head.correction else 'no'} correction: it must have normed queries and keys,"
            " layers 1 … L, no such parts and no correction"
        )
    state = to_hf_state(head)
    mask = state.pop("model.embed_tokens.weight")[0]
    tensors = {name.removeprefix("model."): weight for name, weight in state.items()}
    tensors |= {"fc.weight": head.fuse.weight, "hidden_norm.weight": head.inputs.weight}
    config = config_to_hf(
        shape,
        "DFlashDraftModel",
        model_type="qwen3",
        vocab_size=target.vocab_size,
        tie_word_embeddings=False,
        block_size=head.size,
        dflash_config={
            "mask_token_id": whole("mask_id", mask_id, 0, target.vocab_size - 1),
            "target_layer_ids": [int(layer) - 1 for layer in head.layers],
        },
    )
    if head.words is not None:
        ids = head.words.ids.cpu()
        config["draft_vocab_size"] = len(ids)
        tensors["lm_head.weight"] = OutputHead(target, head.words).rows
        tensors["d2t"] = ids - torch.arange(len(ids))
    path = write_folder(folder, config, tensors, dtype)
    mask_file = {"embedding": mask.detach().to("cpu", dtype).clone(), "mask_token_id": mask_id}
    torch.save(mask_file, Path(folder) / "mask_embedding.pt")
    return path


def is_block(layer: int | str) -> bool:
    """Return whether a layer is the output of a block, the only layers that vLLM can number."""
    return isinstance(layer, int) and layer > 0
