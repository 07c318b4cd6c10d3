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
from specdec_lite.drafters.published import (
    check_empty,
    check_layers,
    check_numbers,
    check_sizes,
    check_widths,
    drop_copy,
    layer_config,
    load_state,
    read_file,
    read_folder,
    read_vocabulary,
    unusual,
)
from specdec_lite.engine.hf_state import from_hf_state
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
    "hidden_norm.weight": "inputs.weight",
    "confidence_head.proj.weight": "confidence.weight",
    "confidence_head.proj.bias": "confidence.bias",
}
"""Published names of the parts outside the layers → ours."""
KERNELS = {"base_kernel": "base", "kernel_projection.weight": "predict.weight"}
CONVOLUTIONS = {"attention_conv": "around_attention", "mlp_conv": "around_mlp"}
NORMS = {"norm1": "around_attention.norm", "norm2": "around_mlp.norm"}
MOST_BLOCK = 1024
"""The most tokens of a block."""
FULL, SLIDING = "full_attention", "sliding_attention"


def read_blocks(folder: str | Path, target: CausalLM) -> BlockHead:
    """Return a published block head in the target's dtype, on its device."""
    folder = Path(folder)
    config, tensors = read_folder(folder)
    # DSpark's options may have an object of their own, which comes first, as in SGLang.
    own, further = config.get("dflash_config") or {}, config.get("dspark_config") or {}
    config["dflash_config"] = own = own | further
    sizes, options = layer_config(config), config | own
    for name, known in USUAL.items():
        if options.get(name) not in known:
            raise ValueError(f"{folder}: {name}={options[name]!r} is an option not known here")
    shape = _shape(folder, sizes, options)
    check_sizes(folder, shape.hidden_size, target)
    ids, order = read_vocabulary(folder, tensors, target)
    if order is not None:
        for name in ("lm_head.weight", "markov_head.markov_w2.weight"):
            if name in tensors and len(tensors[name]) == len(order):
                tensors[name] = tensors[name][order]
    rows = target.projection if ids is None else target.projection[ids]
    drop_copy(folder, tensors, "lm_head.weight", rows)
    drop_copy(folder, tensors, "embed_tokens.weight", target.backend.embedding.weight)
    mask = _mask(folder, options.get("mask_token_id"), target)
    parts = _parts(folder, config, tensors, shape, 0 if ids is None else len(ids))
    rank = next((tensors[name].shape[-1] for name in CORRECTIONS if name in tensors), 0)
    check_widths(folder, shape, tensors)
    fields = {name: getattr(shape, name) for name in TransformerConfig.__dataclass_fields__}
    words = 0 if ids is None else len(ids)
    layers = _layers(folder, options)
    head = BlockHead(
        layers, options["block_size"], target.vocab_size, rank, words, parts.stated, **fields
    )
    ours = _ours(folder, tensors, shape, mask)
    if head.words is not None and ids is not None:
        ours["words.ids"] = ids
    load_state(folder, head, ours)
    check_layers(folder, head.layers, target)
    return head.to(target.device, target.dtype).requires_grad_(False)


def _shape(folder: Path, sizes: dict, options: dict) -> TransformerConfig:
    """Return the sizes of a head's layers; windows are read apart, as they may differ by layer."""
    plain = {"model_type": "qwen3", "tie_word_embeddings": True, "layer_types": None}
    file = folder / "config.json"
    shape = config_in(file, sizes | plain | {"use_sliding_window": False})
    size: Any = options.get("block_size")
    if shape is None or not is_whole(size) or not 2 <= size <= MOST_BLOCK:
        raise ValueError(
            f"{folder}: its config.json is not that of a DFlash head of this kind: the layers must"
            f" be Qwen3's{unusual(sizes)}, and block_size={size!r} a whole number in 2 … {MOST_BLOCK}"
        )
    return shape


def _layers(folder: Path, options: dict) -> list[int]:
    """Return the target's layers that a head reads."""
    # The authors count blocks from 0, and name a block's output; ours is "after block b".
    name, shift = "target_layer_ids", 1
    if name not in options:
        name, shift = "aux_hidden_state_layer_ids", 0
    ids = options.get(name)
    if not isinstance(ids, list) or not ids or not all(map(is_whole, ids)):
        raise ValueError(f"{folder}: {name}={ids!r}: must be a list of the target's layers")
    return [layer + shift for layer in ids]


def _parts(
    folder: Path, config: dict, tensors: dict, shape: TransformerConfig, words: int
) -> BlockParts:
    """Return the parts that a head has beyond DFlash's first form."""
    options = config | (config.get("dflash_config") or {})
    windows, causal = _windows(folder, config, shape.num_layers)
    kinds = [options.get("projector_type"), config.get("speculators_model_type")]
    kinds += [config.get("architectures")]
    is_dspark = any("dspark" in str(kind).lower() for kind in kinds)
    kernel = tensors.get("layers.0.attention_conv.base_kernel")
    group = options.get("conv_group_size", 16)
    if kernel is not None and (not is_whole(group) or group < 1 or shape.hidden_size % group):
        raise ValueError(
            f"{folder}: conv_group_size={group!r}: must divide hidden_size={shape.hidden_size}"
        )
    has_selector = any(name.startswith("candidate_selector.") for name in tensors)
    candidates = options.get("selector_top_k", 16)
    if has_selector and (not is_whole(candidates) or candidates < 1):
        raise ValueError(f"{folder}: selector_top_k={candidates!r}: must be a whole number ≥ 1")
    confidence = tensors.get("confidence_head.proj.weight")
    reads = "" if confidence is None else "state"
    if confidence is not None and confidence.shape[-1] > shape.hidden_size:
        reads = "state and token"
    return BlockParts(
        windows=windows,
        causal=causal,
        from_anchor=bool(options.get("sample_from_anchor", is_dspark)),
        taps=0 if kernel is None else kernel.shape[1],
        group=group if kernel is not None else 16,
        candidates=candidates if has_selector else 0,
        confidence=reads,
        all_tokens=bool(words) and "markov_head.markov_w1.weight" in tensors,
    )


def _windows(
    folder: Path, config: dict, count: int
) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Return the window of every layer, and whether it attends to no later position of its block.

    A query attends to keys less than a window away, as in transformers and vLLM. If a config does
    not state which layers are causal, those of type sliding_attention are, as in vLLM.
    """
    sizes, own = layer_config(config), config.get("dflash_config") or {}
    types = sizes.get("layer_types") or [FULL] * count
    if not sizes.get("layer_types") and sizes.get("use_sliding_window"):
        first = sizes.get("max_window_layers", 28)
        if not is_whole(first):
            raise ValueError(f"{folder}: max_window_layers={first!r:.60}: must be a whole number")
        types = [FULL if layer < first else SLIDING for layer in range(count)]
    window = own.get("swa_window_size", sizes.get("sliding_window"))
    if not isinstance(types, list) or len(types) != count or {*map(str, types)} - {FULL, SLIDING}:
        raise ValueError(
            f"{folder}: layer_types={types}: must be {FULL!r} or {SLIDING!r} for each of {count}"
            " layers"
        )
    declared = [kind == SLIDING for kind in types]
    slides = [True] * count if own.get("use_swa") and not any(declared) else declared
    if any(slides) and (window is None or not is_whole(window) or window < 1):
        raise ValueError(f"{folder}: sliding_window={window!r}: must be a whole number ≥ 1")
    if any(slides) and sizes.get("use_sliding_window") is False and not own.get("use_swa"):
        raise ValueError(f"{folder}: use_sliding_window=false contradicts layer_types={types}")
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


def _ours(folder: Path, tensors: dict, shape: TransformerConfig, mask: Tensor) -> dict:
    """Return all tensors under our names; those that are not known keep theirs, and raise."""
    state = {f"model.{name}": weight for name, weight in tensors.items()}
    # The only row of an embedding that the head has of its own is that of the mask.
    state["model.embed_tokens.weight"] = mask[None]
    ours = {new: state.pop(f"model.{name}") for name, new in PARTS.items() if name in tensors}
    is_convolved = "layers.0.attention_conv.base_kernel" in tensors
    for layer in range(shape.num_layers if is_convolved else 0):
        for theirs, name in CONVOLUTIONS.items():
            for part, new in KERNELS.items():
                weight = state.pop(f"model.layers.{layer}.{theirs}.{part}", None)
                ours[f"blocks.{layer}.{name}.{new}"] = weight
    try:
        layers = from_hf_state(state, shape)
    except KeyError as error:
        raise ValueError(f"{folder}: lacks {error}") from None
    check_empty(folder, {name.removeprefix("model."): weight for name, weight in state.items()})
    layers.pop("head.weight")
    norms: dict[str, Tensor | None] = {}
    if is_convolved:  # the norms of its blocks belong to the convolutions
        for layer in range(shape.num_layers):
            for theirs, new in NORMS.items():
                weight = layers.pop(f"blocks.{layer}.{theirs}.weight", None)
                norms[f"blocks.{layer}.{new}.weight"] = weight
    return ours | layers | norms


def _mask(folder: Path, mask_id: int | None, target: CausalLM) -> Tensor:
    """Return the embedding [d] of a position to fill."""
    file = folder / "mask_embedding.pt"
    if file.is_file():
        stored = read_file(file)
        mask = stored.get("embedding") if isinstance(stored, dict) else None
        if not isinstance(mask, Tensor):
            raise ValueError(f"{file}: lacks 'embedding', the state of a position to fill")
        return check_numbers(folder, {file.name: mask})[file.name]
    known = len(target.backend.embedding.weight)
    if mask_id is None or not is_whole(mask_id) or not 0 <= mask_id < known:
        raise ValueError(f"{folder}: mask_token_id={mask_id}: must be a token of the target")
    return target.embed(torch.tensor(mask_id)).detach().cpu()
