"""Export of Medusa's heads and block diffusion to folders that vLLM loads beside their target.

vLLM's methods are {"method": "medusa", …} and {"method": "dflash", …}.
"""

from pathlib import Path

import torch

from specdec_lite.checks import whole
from specdec_lite.drafters.block_head import BlockHead
from specdec_lite.drafters.heads import OutputHead, ReducedHeads
from specdec_lite.engine.hf_state import to_hf_state
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.model_config import config_to_hf
from specdec_lite.training.export import write_folder


def export_medusa(
    folder: str | Path, heads: ReducedHeads, target: CausalLM, dtype: torch.dtype = torch.bfloat16
) -> Path:
    """Write config.json and model.safetensors for vLLM's `speculative_config`.

    The configuration is {"method": "medusa", "model": folder, "num_speculative_tokens": number of
    heads}. vLLM drafts a chain: the likeliest token of every head. It drafts from the target's
    whole vocabulary, not from the heads' own: version 0.32 has a token_map for a reduced
    vocabulary but rejects files that contain one.
    """
    if not isinstance(heads, ReducedHeads):
        raise ValueError(f"heads is a {type(heads).__name__}: must be ReducedHeads")
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "truncated_vocab_size": target.vocab_size,
        "num_heads": heads.count,
        "num_hidden_layers": 1,
        "original_lm_head": True,
    }
    tensors = {f"blocks.{i}.layers.0.weight": matrix.T for i, matrix in enumerate(heads.up)}
    tensors["lm_heads.0.weight"] = target.projection
    return write_folder(folder, config, tensors, dtype)


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
