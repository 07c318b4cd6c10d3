"""Medusa's heads and block diffusion as folders that vLLM loads beside their target.

What lives here: names, shapes and config of `{"method": "medusa", …}` and `{"method": "dflash", …}`.
What does not: the EAGLE family (`serving.export`), the heads (`drafters`), and running an engine.
"""

from pathlib import Path

import torch

from specdec_lite.checks import whole
from specdec_lite.drafters.block_head import BlockHead
from specdec_lite.drafters.heads import PlainHeads
from specdec_lite.drafters.words import Speaker
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import to_hf_state
from specdec_lite.loading.pairs import config_to_hf
from specdec_lite.serving.export import write_folder


def export_medusa(
    folder: str | Path, heads: PlainHeads, target: CausalLM, dtype: torch.dtype = torch.bfloat16
) -> Path:
    """Write config.json and model.safetensors for vLLM's `speculative_config`: {"method": "medusa",
    "model": folder, "num_speculative_tokens": as many as there are heads}.

    Args:
        folder: made where it is missing.
        heads: with one matrix each, all that vLLM's blocks have; it takes the likeliest token of
            every head, a chain, and of all tokens, not only their words: version 0.32 has a
            token_map for these, and refuses files that hold one.
        target: whose vocabulary projection goes with them.
        dtype: of the stored weights.

    Raises ValueError for other heads.
    """
    if not isinstance(heads, PlainHeads):
        raise ValueError(f"heads is a {type(heads).__name__}: must be PlainHeads")
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
    tensors["lm_heads.0.weight"] = target.backend.head.weight.detach()
    return write_folder(folder, config, tensors, dtype)


def export_blocks(
    folder: str | Path,
    head: BlockHead,
    target: CausalLM,
    mask_id: int,
    dtype: torch.dtype = torch.bfloat16,
) -> Path:
    """Write a folder for vLLM's {"method": "dflash", "model": folder, "num_speculative_tokens": γ}: a
    block of γ + 1 places, best as large as in training.

    Args:
        folder: made where it is missing; the mask's embedding is a file of its own in it.
        head: with normed queries and keys, which vLLM's layers have, and without a correction.
        target: whose sizes stand in the config.
        mask_id: a token that the target does not write: it stands for a place to be filled.
        dtype: of the stored weights.

    Raises ValueError for other heads, and for layers that are not behind a block of the target.
    """
    shape = head.config
    if not shape.qk_norm or head.correction is not None or not all(map(is_block, head.layers)):
        raise ValueError(
            f"head has qk_norm={shape.qk_norm}, layers={head.layers} and"
            f" {'a' if head.correction else 'no'} correction: it must have normed queries and keys,"
            " layers 1 … L and no correction"
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
            "target_layer_ids": [layer - 1 for layer in head.layers],
        },
    )
    if head.words is not None:
        ids = head.words.ids.cpu()
        config["draft_vocab_size"] = len(ids)
        tensors["lm_head.weight"] = Speaker(target, head.words).rows
        tensors["d2t"] = ids - torch.arange(len(ids))
    path = write_folder(folder, config, tensors, dtype)
    kept = {"embedding": mask.detach().to("cpu", dtype).clone(), "mask_token_id": mask_id}
    torch.save(kept, Path(folder) / "mask_embedding.pt")
    return path


def is_block(layer: int | str) -> bool:
    """Whether it is the state behind a block: vLLM counts these from 0."""
    return isinstance(layer, int) and layer > 0
