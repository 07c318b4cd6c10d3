"""Read block heads that others have published: DFlash, DSpark and DFlash 2.

The formats are the authors', those of `speculators` and SpecForge, and DeepSpec's. A part or an
option that is not known here raises ValueError with its name: a head without it would draft from
what it was not trained to read.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec_lite.checks import is_whole
from specdec_lite.drafters.block_head import BlockHead, BlockParts
from specdec_lite.drafters.published import Checkpoint, read_file, unusual
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import TransformerConfig
from specdec_lite.loading.model_config import config_in

USUAL = {
    "projector_type": (None, "dflash", "dspark", "dflash2"),
    "markov_head_type": (None, "vanilla"),
    "draft_ffn_type": (None, "dense"),
    "shift_label": (None, False),
    "attention_sink_bias": (None, False),
    "add_swa_attention_sink_bias": (None, False),
    "final_logit_softcapping": (None, 0),
    "output_multiplier": (None, 1),
    "input_embedding_scale": (None, 1),
    "attention_mode": (None, "gqa", "mha"),
    **dict.fromkeys(("attention_modes", "conditioning_source", "moe_preset"), (None,)),
    **dict.fromkeys(("dspine_config", "hspec_config"), (None,)),
    "rope_is_neox_style": (None, True),
    "enable_qwen35_gated_q_proj": (None, False),
}
"""Options of a head, and their values that are known here."""
CORRECTIONS = {
    "markov_head.markov_w1.weight": "correction.before.weight",
    "markov_head.markov_w2.weight": "correction.after.weight",
    "candidate_selector.predecessor_codebook": "correction.before.weight",
    "candidate_selector.successor_codebook": "correction.after.weight",
    "candidate_selector.hidden_projection.weight": "correction.gate.weight",
}
PARTS = CORRECTIONS | {
    "fc.weight": "fuse.weight",
    "norm.weight": "norm.weight",
    "hidden_norm.weight": "inputs.weight",
    "confidence_head.proj.weight": "confidence.weight",
    "confidence_head.proj.bias": "confidence.bias",
}
"""Published names of the parts outside the layers → ours."""
CONVOLUTIONS = {
    f"{theirs}.{part}": f"{ours}.{new}"
    for theirs, ours in (("attention_conv", "around_attention"), ("mlp_conv", "around_mlp"))
    for part, new in (("base_kernel", "base"), ("kernel_projection.weight", "predict.weight"))
} | {
    "input_layernorm.weight": "around_attention.norm.weight",
    "post_attention_layernorm.weight": "around_mlp.norm.weight",
}
"""Published names of a convolved layer's parts → ours; its norms belong to the convolutions."""
MOST_BLOCK = 1024
"""The most tokens of a block."""
FULL, SLIDING = "full_attention", "sliding_attention"


def read_blocks(folder: str | Path, target: CausalLM) -> BlockHead:
    """Return a published block head in the target's dtype, on its device."""
    stored = Checkpoint(folder, target)
    config, tensors = stored.config, stored.tensors
    # DSpark's options may have an object of their own, which comes first, as in SGLang.
    own = (config.get("dflash_config") or {}) | (config.get("dspark_config") or {})
    config["dflash_config"] = own
    options = config | own
    for name, known in USUAL.items():
        value = options.get(name)
        stored.check(value in known, f"{name}={value!r} is an option not known here")
    shape = _shape(stored, options)
    stored.check_size(shape.hidden_size)
    ids = stored.vocabulary("lm_head.weight", "markov_head.markov_w2.weight")
    rows = target.projection if ids is None else target.projection[ids]
    stored.drop_copies(lm_head=rows, embed_tokens=target.backend.embedding.weight)
    mask = _mask(stored, options.get("mask_token_id"))
    words = 0 if ids is None else len(ids)
    parts = _parts(stored, options, shape, words)
    rank = next((tensors[name].shape[-1] for name in CORRECTIONS if name in tensors), 0)
    stored.check_widths(shape)
    name, shift = "target_layer_ids", 1
    if name not in options:
        # The authors count blocks from 0, and name a block's output; ours is "after block b".
        name, shift = "aux_hidden_state_layer_ids", 0
    layers = stored.check_layers(name, options.get(name), shift)
    fields = {name: getattr(shape, name) for name in TransformerConfig.__dataclass_fields__}
    head = BlockHead(
        layers, options["block_size"], target.vocab_size, rank, words, parts.stated, **fields
    )
    names = dict(PARTS)
    for layer in range(shape.num_layers if parts.taps else 0):
        for theirs, ours in CONVOLUTIONS.items():
            names[f"layers.{layer}.{theirs}"] = f"blocks.{layer}.{ours}"
    # The only row of an embedding that the head has of its own is that of the mask.
    further = {"embedding.weight": mask[None]} | ({} if ids is None else {"words.ids": ids})
    return stored.load(head, stored.ours(names, "blocks.{}".format) | further)


def _shape(stored: Checkpoint, options: dict) -> TransformerConfig:
    """Return the sizes of a head's layers; windows are read apart, as they may differ by layer."""
    plain = {"model_type": "qwen3", "tie_word_embeddings": True, "layer_types": None}
    sizes = stored.sizes
    size: Any = options.get("block_size")
    shape = config_in(stored.folder / "config.json", sizes | plain | {"use_sliding_window": False})
    if shape is None or not is_whole(size) or not 2 <= size <= MOST_BLOCK:
        raise ValueError(
            f"{stored.folder}: its config.json is not that of a DFlash head of this kind: the layers"
            f" must be Qwen3's{unusual(sizes)}, and block_size={size!r} a whole number in 2 …"
            f" {MOST_BLOCK}"
        )
    return shape


def _parts(stored: Checkpoint, options: dict, shape: TransformerConfig, words: int) -> BlockParts:
    """Return the parts that a head has beyond DFlash's first form."""
    config, tensors = stored.config, stored.tensors
    windows, causal = _windows(stored, shape.num_layers)
    kinds = [options.get("projector_type"), config.get("speculators_model_type")]
    kinds += [config.get("architectures")]
    is_dspark = any("dspark" in str(kind).lower() for kind in kinds)
    kernel = tensors.get("layers.0.attention_conv.base_kernel")
    group = options.get("conv_group_size", 16) if kernel is not None else 16
    stored.check(
        kernel is None or is_whole(group) and group >= 1 and shape.hidden_size % group == 0,
        f"conv_group_size={group!r}: must divide hidden_size={shape.hidden_size}",
    )
    has_selector = any(name.startswith("candidate_selector.") for name in tensors)
    candidates = options.get("selector_top_k", 16) if has_selector else 0
    is_right = is_whole(candidates) and candidates >= has_selector
    stored.check(is_right, f"selector_top_k={candidates!r}: must be a whole number ≥ 1")
    confidence = tensors.get("confidence_head.proj.weight")
    reads = "" if confidence is None else "state"
    if confidence is not None and confidence.shape[-1] > shape.hidden_size:
        reads = "state and token"
    return BlockParts(
        windows=windows,
        causal=causal,
        from_anchor=bool(options.get("sample_from_anchor", is_dspark)),
        taps=0 if kernel is None else kernel.shape[1],
        group=group,
        candidates=candidates,
        confidence=reads,
        all_tokens=bool(words) and "markov_head.markov_w1.weight" in tensors,
    )


def _windows(stored: Checkpoint, count: int) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Return the window of every layer, and whether it attends to no later position of its block.

    A query attends to keys less than a window away, as in transformers and vLLM. If a config does
    not state which layers are causal, those of type sliding_attention are, as in vLLM.
    """
    config, sizes = stored.config, stored.sizes
    own = config["dflash_config"]
    types: Any = sizes.get("layer_types") or [FULL] * count
    if not sizes.get("layer_types") and sizes.get("use_sliding_window"):
        first = sizes.get("max_window_layers", 28)
        stored.check(is_whole(first), f"max_window_layers={first!r:.60}: must be a whole number")
        types = [FULL if layer < first else SLIDING for layer in range(count)]
    window = own.get("swa_window_size", sizes.get("sliding_window"))
    stored.check(
        isinstance(types, list)
        and len(types) == count
        and not {*map(str, types)} - {FULL, SLIDING},
        f"layer_types={types}: must be {FULL!r} or {SLIDING!r} for each of {count} layers",
    )
    declared = [kind == SLIDING for kind in types]
    slides = [True] * count if own.get("use_swa") and not any(declared) else declared
    is_right = not any(slides) or window is not None and is_whole(window) and window >= 1
    stored.check(is_right, f"sliding_window={window!r}: must be a whole number ≥ 1")
    says_none = sizes.get("use_sliding_window") is False and not own.get("use_swa")
    stored.check(
        not (any(slides) and says_none), f"use_sliding_window=false contradicts layer_types={types}"
    )
    stated = config.get("is_causal", own.get("causal"))
    if stated is not None:
        causal = [bool(stated)] * count
    else:
        later = "dflash2" in str(config.get("speculators_model_type"))
        causal = declared
        if config.get("sliding_window_non_causal", later):
            causal = [False] * count
    windows = tuple(window if slide else None for slide in slides)
    return windows if any(slides) else (), tuple(causal) if any(causal) else ()


def _mask(stored: Checkpoint, mask_id: Any) -> Tensor:
    """Return the embedding [d] of a position to fill."""
    file = stored.folder / "mask_embedding.pt"
    if file.is_file():
        content = read_file(file)
        mask = content.get("embedding") if isinstance(content, dict) else None
        if not isinstance(mask, Tensor):
            raise ValueError(f"{file}: lacks 'embedding', the state of a position to fill")
        return stored.numbers({file.name: mask})[file.name]
    known = len(stored.target.backend.embedding.weight)
    is_token = mask_id is not None and is_whole(mask_id) and 0 <= mask_id < known
    stored.check(is_token, f"mask_token_id={mask_id}: must be a token of the target")
    return stored.target.embed(torch.tensor(mask_id)).detach().cpu()
