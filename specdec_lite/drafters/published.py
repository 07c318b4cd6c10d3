"""Read heads that others have published: config.json and weights, in the formats engines serve.

    head              stored by                               read by
    EAGLE-1, -3, 3.1  its authors, speculators                EagleDrafter, version 1, 2 or 3
    P-EAGLE           speculators, SpecForge                  EagleDrafter, version 3
    Medusa            its authors, vLLM                       MedusaDrafter
    DFlash            its authors, speculators, SpecForge     BlockDiffusionDrafter
    DSpark            DeepSpec, speculators, SpecForge        BlockDiffusionDrafter
    DFlash 2          its authors                             BlockDiffusionDrafter

Each has `from_pretrained(target, path=folder)`. Block heads are read in `parallel.published_blocks`.
Files of tensors are read without running pickled code. A head that does not fit the target, or that
has a part which is not known here, raises ValueError with the name of the part: an EAGLE head with
a window, a gated or recurrent correction, Domino's, an attention sink, experts.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from specdec_lite.checks import is_whole
from specdec_lite.drafters.eagle_head import Eagle1Head, Eagle3Head, FeatureHead, ParallelEagleHead
from specdec_lite.drafters.heads import FullHeads, Heads, ReducedHeads
from specdec_lite.engine.cache import Layer
from specdec_lite.engine.hf_state import FUSED
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import TransformerConfig
from specdec_lite.loading.checkpoints import read_weights
from specdec_lite.loading.model_config import PART, config_in, read_config

AUTHORS_MEDUSA = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
"""Names of the file in which Medusa's authors, and engines after them, store all heads."""
AUTHORS_EAGLE = "pytorch_model.bin"
"""Name of the file in which EAGLE's authors store a head."""
NORMS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
"""Options of an EAGLE-3 head; fc_norm and norm_output make it EAGLE-3.1."""
MASKS = ("mask_token_id", "pard_token", "ptd_token_id")
"""Entries that name the mask's token of a P-EAGLE head, in the order in which they are read."""
DEEPER = re.compile(r"layers\.[1-9]\d{0,3}\.")
"""Beginning of the names of blocks after the first."""
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""Types of a head's weights."""
MAPS = ("d2t", "t2d")
"""Tensors that are no weights."""
ROPES = ("rope_parameters", "rope_scaling")
"""Entries of a config that state the rotary angles."""
UNUSED = "rotary_emb.inv_freq"
"""End of the name of a stored tensor that is computed here, as transformers does."""


def is_published(path: str | Path | None) -> bool:
    """Return whether a path is a folder with a config.json, unlike weights of this library."""
    return path is not None and (Path(path) / "config.json").is_file()


def read_eagle(folder: str | Path, target: CausalLM, version: int) -> FeatureHead:
    """Return a published EAGLE head in the target's dtype, on its device."""
    folder = Path(folder)
    config, tensors = read_folder(folder)
    kind = str(
        config.get("speculators_model_type", "eagle3" if "norm.weight" in tensors else "eagle")
    )
    if kind not in (("eagle3", "peagle") if version == 3 else ("eagle",)):
        raise ValueError(f"{folder}: holds a head of type {kind}, version={version} was asked for")
    shape = _shape(folder, config, target, is_parallel(config, tensors))
    read = _read_eagle3 if version == 3 else _read_eagle1
    head = read(folder, config, tensors, shape, target)
    return head.to(target.device, target.dtype).requires_grad_(False)


def read_medusa(folder: str | Path, target: CausalLM) -> Heads:
    """Return published Medusa heads."""
    folder = Path(folder)
    for name in AUTHORS_MEDUSA:
        if (folder / name).is_file():
            heads = _read_authors_medusa(folder, name, target)
            return heads.to(target.device, target.dtype).requires_grad_(False)
    _, tensors = read_folder(folder)
    # A folder may repeat the target's matrix once per head. Such a copy is dropped; a matrix that
    # was trained further raises, since the class has no place for it.
    if copies := [name for name in tensors if name.startswith("lm_heads.")]:
        rows = target.projection  # of a packed head it is computed
        for name in copies:
            drop_copy(folder, tensors, name, rows)
    matrices = []
    while (weight := tensors.pop(f"blocks.{len(matrices)}.layers.0.weight", None)) is not None:
        matrices.append(weight.T)
    check_empty(folder, tensors)
    if not matrices:
        raise ValueError(f"{folder}: holds no blocks.0.layers.0.weight: no Medusa heads")
    check_sizes(folder, matrices[0].shape[0], target)
    heads = ReducedHeads(target.hidden_size, len(matrices), target.vocab_size)
    heads.up.data = torch.stack(matrices)
    return heads.to(target.device, target.dtype).requires_grad_(False)


# Parts --------------------------------------------------------------------------------------------


def read_folder(folder: Path) -> tuple[dict, dict[str, Tensor]]:
    """Return config.json and the tensors, without the prefix "model." and what is computed."""
    config, tensors = read_config(folder), check_numbers(folder, _read_all(folder))
    for part in ("eagle_config", "dflash_config", "dspark_config"):
        if not isinstance(config.get(part) or {}, dict):
            raise ValueError(f"{folder}: {part}={config[part]!r:.60}: must be a JSON object")
    names = {name: name.removeprefix("model.") for name in tensors}
    if twice := sorted(new for old, new in names.items() if new != old and new in names):
        raise ValueError(f"{folder}: holds {twice[0]} twice, with and without the prefix 'model.'")
    return config, {n: tensors[old] for old, n in names.items() if not n.endswith(UNUSED)}


def check_numbers(folder: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a file's tensors; raise ValueError if one is quantized or holds no finite numbers."""
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES and not name.endswith(MAPS):
            raise ValueError(
                f"{folder}: {name} has {tensor.dtype}: quantized heads are not known here"
            )
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"{folder}: {name} holds NaN or infinity")
    return tensors


def _read_all(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a folder's safetensors files, or of the file that authors of EAGLE use."""
    file = folder / AUTHORS_EAGLE
    if file.is_file() and not [*folder.glob("*.safetensors")]:
        return read_tensors(file)
    return read_weights(folder)


def layer_config(config: dict) -> dict:
    """Return the entries that state the sizes of a layer; `speculators` stores them apart."""
    nested = config.get("transformer_layer_config")
    return nested if isinstance(nested, dict) else config


def is_parallel(config: dict, tensors: dict) -> bool:
    """Return whether an EAGLE-3 head drafts all tokens in one pass (P-EAGLE)."""
    is_named = config.get("speculators_model_type") == "peagle"
    return is_named or bool(config.get("parallel_drafting")) or "mask_hidden" in tensors


def _shape(folder: Path, config: dict, target: CausalLM, is_deep: bool) -> TransformerConfig:
    """Return the sizes of a head's blocks, after checking that they fit the target."""
    sizes = {"vocab_size": target.vocab_size} | layer_config(config)
    listed = sizes.get("layer_types")
    types = {*map(str, listed)} if isinstance(listed, list) else set()
    if types - {"full_attention"} or sizes.get("use_sliding_window"):
        raise ValueError(
            f"{folder}: layer_types={sizes.get('layer_types')}, use_sliding_window="
            f"{sizes.get('use_sliding_window')}: an EAGLE head with a window is not known here"
        )
    shape = config_in(folder / "config.json", sizes | {"model_type": "llama"})
    if shape is None:
        raise ValueError(
            f"{folder}: its config.json states a layer that is not a plain Llama's{unusual(sizes)}"
        )
    # Some authors copy the target's entries, its number of layers among them, for their one layer.
    if shape.num_layers not in (1, target.num_layers) and not is_deep:
        raise ValueError(f"{folder}: has {shape.num_layers} layers: must have one")
    check_sizes(folder, config.get("target_hidden_size") or shape.hidden_size, target)
    return shape


def unusual(sizes: dict) -> str:
    """Return the entries that can make a layer another one, for the end of a message."""
    names = ("hidden_act", "attention_bias", "mlp_bias", "quantization_config", PART, *ROPES)
    stated = [f"{name}={sizes[name]!r:.200}" for name in names if sizes.get(name)]
    return f" ({', '.join(stated)})" if stated else ""


def check_sizes(folder: Path, size: int, target: CausalLM) -> None:
    """Raise ValueError if a head reads states of another size than the target's."""
    if size != target.hidden_size:
        raise ValueError(
            f"{folder}: reads hidden states of size {size}, the target's have {target.hidden_size}"
        )


def check_widths(folder: Path, shape: TransformerConfig, tensors: dict[str, Tensor]) -> None:
    """Raise ValueError if a config states larger sizes than are stored, before memory is taken."""
    stored = max((size for tensor in tensors.values() for size in tensor.shape), default=0)
    stated = max(shape.hidden_size, shape.intermediate_size, shape.num_heads * shape.head_size)
    layers = len({name.split(".")[1] for name in tensors if name.startswith("layers.")})
    if stated > stored or shape.num_layers > max(1, layers):
        raise ValueError(
            f"{folder}: its config.json states a width of {stated} and {shape.num_layers} layers, its"
            f" tensors have at most {stored} and {layers}"
        )


def _read_authors_medusa(folder: Path, name: str, target: CausalLM) -> FullHeads:
    """Return Medusa heads in the authors' format: 0.0.linear.weight, 0.0.linear.bias, 0.1.weight …"""
    config, tensors = read_config(folder), check_numbers(folder, read_tensors(folder / name))
    if config.get("medusa_num_layers", 1) != 1:
        raise ValueError(
            f"{folder}: medusa_num_layers={config['medusa_num_layers']}: must be 1 block per head"
        )
    stored = len({key.split(".")[0] for key in tensors})
    count = config.get("medusa_num_heads", stored)
    if not is_whole(count) or not 1 <= count <= stored:
        raise ValueError(f"{folder}: medusa_num_heads={count!r}: must be 1 … {stored}")
    heads = FullHeads(target.hidden_size, count, target.vocab_size).to(target.dtype)
    parts = {"up": "0.linear.weight", "bias": "0.linear.bias", "rows": "1.weight"}
    keys = {ours: [f"{i}.{theirs}" for i in range(count)] for ours, theirs in parts.items()}
    if missing := [key for group in keys.values() for key in group if key not in tensors]:
        raise ValueError(f"{folder}: {name} lacks {missing[0]}")
    known = {f"{i}.{theirs}" for i in range(stored) for theirs in parts.values()}
    check_empty(folder, {key: 0 for key in tensors.keys() - known})
    check_sizes(folder, tensors["0.0.linear.bias"].numel(), target)
    for ours, group in keys.items():
        own = heads.get_parameter(ours)
        for key in group:
            if tensors[key].shape != own.shape[1:]:
                raise ValueError(
                    f"{folder}: {key} has shape {tuple(tensors[key].shape)}, must be"
                    f" {tuple(own.shape[1:])} for this target"
                )
        stacked = torch.stack([tensors[key] for key in group])
        own.data.copy_(stacked.transpose(1, 2) if ours == "up" else stacked)
    return heads


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, or of a file of `torch.save`."""
    found = read_file(file)
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()):
        raise ValueError(f"{file}: holds {type(found).__name__}, must be named tensors alone")
    return found


def read_file(file: Path) -> Any:
    """Return the content of such a file; no code that it may contain is run."""
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        return torch.load(file, map_location="cpu", weights_only=True)
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"{file}: cannot be read: {error}") from None


def _read_eagle1(
    folder: Path, config: dict, tensors: dict, shape: TransformerConfig, target: CausalLM
) -> FeatureHead:
    """Return an EAGLE-1 head; `speculators` calls its layer "transformer"."""
    if config.get("layernorms"):
        raise ValueError(f"{folder}: layernorms=true adds norms that are not known here")
    renamed = {}
    for name, weight in tensors.items():
        new = name.replace("transformer.", "layers.0.", 1).replace("fusion_fc.", "fc.", 1)
        renamed[new] = weight
    drop_copy(folder, renamed, "lm_head.weight", target.projection)
    drop_copy(folder, renamed, "embed_tokens.weight", target.backend.embedding.weight)
    check_widths(folder, replace(shape, num_layers=1), renamed)
    head = Eagle1Head.for_target(target, **_fields(shape))
    # Published heads have a bias or none; those that are trained here have none.
    if "fc.bias" in renamed:
        head.fuse = nn.Linear(2 * head.size, head.size)
    names = {"fc.weight": "fuse.weight", "fc.bias": "fuse.bias"}
    load_state(folder, head, _ours(renamed, names) | {"ids": head.ids})
    return head


def _read_eagle3(
    folder: Path, config: dict, tensors: dict, shape: TransformerConfig, target: CausalLM
) -> FeatureHead:
    """Return an EAGLE-3 head; its layer is called "midlayer" or "layers.0"."""
    nested = config.get("eagle_config") or {}
    if False in (config.get("use_aux_hidden_state"), nested.get("use_aux_hidden_state")):
        raise ValueError(f"{folder}: use_aux_hidden_state=false: such a head is not known here")
    renamed = {name.replace("midlayer.", "layers.0.", 1): w for name, w in tensors.items()}
    own = target.backend.embedding.weight
    kind, parallel = Eagle3Head, {}
    if is_parallel(config, tensors):
        kind, parallel = ParallelEagleHead, _parallel_parts(folder, config, renamed, shape, own)
    if not parallel.get("embeddings"):
        drop_copy(folder, renamed, "embed_tokens.weight", own)
    rows = renamed.get("lm_head.weight")
    ids, order = read_vocabulary(folder, renamed, target, None if rows is None else len(rows))
    if rows is None:  # a head without its own matrix reads the target's
        weight = target.projection.cpu()
        renamed["lm_head.weight"] = weight if ids is None else weight[ids]
    elif order is not None:
        renamed["lm_head.weight"] = rows[order]
    layers = _depths(folder, config, target)
    options = {name: bool(config.get(name) or nested.get(name)) for name in NORMS}
    before = options["norm_before_residual"]
    check_widths(folder, replace(shape, num_layers=1), renamed)
    head = kind.for_target(target, ids, layers, **options, **parallel, **_fields(shape))
    if "mask_hidden" in renamed:
        renamed["mask_hidden"] = renamed["mask_hidden"].flatten()
    names = {f"fc_norm.{i}.weight": f"each.{i}.weight" for i in range(len(head.layers))} | {
        "input_norm.weight": "together.weight",
        "fc.weight": "fuse.weight",
        "norm.weight": "norm.weight",
        "lm_head.weight": "head.weight",
        "layers.0.input_layernorm.weight": "block.norm1.embedded.weight",
        "layers.0.hidden_norm.weight": "before.weight" if before else "block.norm1.state.weight",
        "mask_hidden": "mask",
        "embed_tokens.weight": "embedding.weight",
    }
    load_state(folder, head, _ours(renamed, names) | {"ids": head.ids})
    return head


def _parallel_parts(
    folder: Path, config: dict, tensors: dict, shape: TransformerConfig, own: Tensor
) -> dict:
    """Return the arguments of a P-EAGLE head, whose embedding may be trained further."""
    ids = [config[name] for name in MASKS if config.get(name) is not None]
    if not ids or not is_whole(ids[0]) or not 0 <= ids[0] < len(own):
        raise ValueError(
            f"{folder}: mask_token_id={ids[0] if ids else None!r}: must be a token of the target"
        )
    if "mask_hidden" not in tensors:
        raise ValueError(f"{folder}: lacks mask_hidden, the state of a mask (P-EAGLE)")
    stored = tensors.get("embed_tokens.weight")
    is_same = stored is None or is_copy(stored, own)
    check_widths(folder, shape, tensors)
    return {"depth": shape.num_layers, "mask_id": ids[0], "embeddings": 0 if is_same else len(own)}


def _depths(folder: Path, config: dict, target: CausalLM) -> tuple[Layer, ...] | None:
    """Return the target's layers that an EAGLE-3 head reads; None for the usual three.

    Ids are inputs of blocks, as in vLLM and `speculators`. SGLang, SpecForge and ModelOpt count the
    outputs from 0; a first id of 1 marks their files, and SGLang adds one then, as here.
    """
    nested = config.get("eagle_config") or {}
    name = "eagle_aux_hidden_state_layer_ids"
    ids = config.get(name) or nested.get(name)
    if ids is None:
        return None
    if not isinstance(ids, list) or not ids or not all(map(is_whole, ids)):
        raise ValueError(f"{folder}: {name}={ids!r}: must be a list of the target's layers")
    if ids[0] == 1 and "speculators_model_type" not in config:
        ids = [number + 1 for number in ids]
    check_layers(folder, ids, target)
    return tuple(ids)


def check_layers(folder: Path, layers: Sequence[Layer], target: CausalLM) -> None:
    """Raise ValueError if a head reads layers that the target does not give."""
    try:
        target.check_layers(layers)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def _fields(shape: TransformerConfig) -> dict:
    """Return the sizes of a block as keyword arguments."""
    left_out = ("vocab_size", "num_layers", "tied", "window", "qkv_bias", "qk_norm")
    names = TransformerConfig.__dataclass_fields__
    return {name: getattr(shape, name) for name in names if name not in left_out}


def read_vocabulary(
    folder: Path, tensors: dict, target: CausalLM, rows: int | None = None
) -> tuple[Tensor | None, Tensor | None]:
    """Return the tokens of a draft vocabulary in ascending order, and the order of its rows.

    Stored is d2t, the target's id minus the draft's id; both are None if there is no d2t. `rows` is
    the number of rows of the head's own matrix, which must be as many.
    """
    marked, offsets = tensors.pop("t2d", None), tensors.pop("d2t", None)
    if offsets is None:
        if marked is not None and not bool(marked.bool().all()):
            raise ValueError(f"{folder}: holds t2d without d2t, which orders the draft's tokens")
        return None, None
    if offsets.dim() != 1 or not len(offsets) or offsets.is_floating_point():
        raise ValueError(
            f"{folder}: d2t has shape {tuple(offsets.shape)} and dtype {offsets.dtype}: must be one"
            " whole number per draft token"
        )
    if rows is not None and rows != len(offsets):
        raise ValueError(
            f"{folder}: d2t has {len(offsets)} entries, lm_head.weight has {rows} rows"
        )
    ids = torch.arange(len(offsets)) + offsets.long()
    # Ours are sorted, so that a row of logits scatters in order; the matrix follows.
    ids, order = ids.sort()
    if int(ids[0]) < 0 or int(ids[-1]) >= target.vocab_size or len(ids.unique()) < len(ids):
        raise ValueError(
            f"{folder}: d2t maps to tokens {int(ids[0])} … {int(ids[-1])}: must be different tokens"
            f" of the target's 0 … {target.vocab_size - 1}"
        )
    if marked is not None and marked.nonzero().flatten().tolist() != ids.tolist():
        raise ValueError(f"{folder}: t2d marks other tokens than those that d2t maps to")
    return ids, order


def drop_copy(folder: Path, tensors: dict, name: str, own: Tensor) -> None:
    """Remove a tensor that is a copy of the target's own; raise ValueError if it differs."""
    copy = tensors.pop(name, None)
    if copy is None:
        return
    if not is_copy(copy, own):
        raise ValueError(
            f"{folder}: its {name} {tuple(copy.shape)} is not the target's {tuple(own.shape)}:"
            " the head belongs to another model, or has a part of its own that is not known here"
        )


def is_copy(stored: Tensor, own: Tensor) -> bool:
    """Return whether a stored matrix is the target's, in whatever dtype."""
    own = own.detach().to("cpu", torch.float32)
    # Within 1 %: heads store copies in another dtype than the target's.
    return stored.shape == own.shape and bool(
        (stored.float() - own).abs().max() <= 0.01 * own.abs().max()
    )


def _ours(tensors: dict, names: dict[str, str]) -> dict[str, Tensor]:
    """Return tensors under our names, with the matrices of the layer fused."""
    stored = {int(name.split(".")[1]) for name in tensors if DEEPER.match(name)}
    blocks = {0: "block"} | {layer: f"more.{layer - 1}" for layer in sorted(stored)}
    fused = {
        f"layers.{layer}.{part}.weight": f"{block}.{ours}.weight"
        for layer, block in blocks.items()
        for ours, parts in FUSED.items()
        for part in parts
    }
    known = fused | names
    grouped: dict[str, list[Tensor]] = {}
    for theirs, ours in known.items():
        if theirs in tensors:
            grouped.setdefault(ours, []).append(tensors[theirs])
    unknown = {name: weight for name, weight in tensors.items() if name not in known}
    return unknown | {name: torch.cat(parts) for name, parts in grouped.items()}


def load_state(folder: Path, head: nn.Module, state: dict) -> None:
    """Load a state dict; raise ValueError that names what is missing, unknown or of another size."""
    own = head.state_dict()
    present = {name: weight for name, weight in state.items() if weight is not None}
    missing = sorted(own.keys() - present.keys())
    check_empty(folder, {name: 0 for name in present.keys() - own.keys()})
    if missing:
        others = f" and {len(missing) - 1} more weights" if len(missing) > 1 else ""
        raise ValueError(f"{folder}: lacks {missing[0]}{others} (named as in this library)")
    for name, weight in present.items():
        if weight.shape != own[name].shape:
            raise ValueError(
                f"{folder}: {name} has shape {tuple(weight.shape)}, must be"
                f" {tuple(own[name].shape)} for its config.json and this target"
            )
    head.load_state_dict(present)


def check_empty(folder: Path, tensors: dict) -> None:
    """Raise ValueError if weights remain that no part of the head reads."""
    if tensors:
        first = sorted(tensors)[0]
        raise ValueError(f"{folder}: holds {first}, a part that is not known here")
