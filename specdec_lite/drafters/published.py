"""Read heads that others have published: config.json and weights, in the formats engines serve.

    head              stored by                               read by
    EAGLE-1, -3, 3.1  its authors, speculators                EagleDrafter, version 1, 2 or 3
    P-EAGLE           speculators, SpecForge                  EagleDrafter, version 3
    Medusa            its authors, vLLM                       MedusaDrafter
    DFlash            its authors, speculators, SpecForge     BlockDiffusionDrafter
    DSpark            DeepSpec, speculators, SpecForge        BlockDiffusionDrafter
    DFlash 2          its authors                             BlockDiffusionDrafter

Each has `from_pretrained(target, path=folder)`. Block heads are read in `published_blocks`.
Files of tensors are read without running pickled code. A head that does not fit the target, or that
has a part which is not known here, raises ValueError with the name of the part: an EAGLE head with
a window, a gated or recurrent correction, Domino's, an attention sink, experts.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

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
LAYER = re.compile(r"layers\.(\d{1,4})\.")
"""Beginning of the names of a layer's tensors."""
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""Types of a head's weights."""
MAPS = ("d2t", "t2d")
"""Tensors that are no weights."""
ROPES = ("rope_parameters", "rope_scaling")
"""Entries of a config that state the rotary angles."""
UNUSED = "rotary_emb.inv_freq"
"""End of the name of a stored tensor that is computed here, as transformers does."""
Head = TypeVar("Head", bound=nn.Module)


def is_published(path: str | Path | None) -> bool:
    """Return whether a path is a folder with a config.json, unlike weights of this library."""
    return path is not None and (Path(path) / "config.json").is_file()


# A published head, and what is checked in all formats -------------------------------------------


class Checkpoint:
    """A published head, which readers check and empty. Its errors begin with its folder.

    Attributes:
        target: the model for which the head is read.
        config: the entries of config.json.
        tensors: by name, without the prefix "model." and without what is computed here.
    """

    def __init__(self, folder: str | Path, target: CausalLM, file: str = ""):
        self.folder, self.target = Path(folder), target
        self.config = read_config(self.folder)
        for part in ("eagle_config", "dflash_config", "dspark_config"):
            nested = self.config.get(part) or {}
            self.check(isinstance(nested, dict), f"{part}={nested!r:.60}: must be a JSON object")
        stored = self.numbers(self._read(file))
        names = {name: name.removeprefix("model.") for name in stored}
        twice = sorted(new for old, new in names.items() if new != old and new in names)
        first = "".join(twice[:1])
        self.check(not twice, f"holds {first} twice, with and without the prefix 'model.'")
        self.tensors = {n: stored[old] for old, n in names.items() if not n.endswith(UNUSED)}

    def _read(self, file: str) -> dict[str, Tensor]:
        """Return the tensors of a file; without one, of the safetensors files or of EAGLE's authors'."""
        if not file and not [*self.folder.glob("*.safetensors")]:
            file = AUTHORS_EAGLE if (self.folder / AUTHORS_EAGLE).is_file() else ""
        return read_tensors(self.folder / file) if file else read_weights(self.folder)

    def check(self, is_right: object, message: str) -> None:
        """Raise ValueError unless a condition holds."""
        if not is_right:
            raise ValueError(f"{self.folder}: {message}")

    def numbers(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors after checking that none is quantized and that all numbers are finite."""
        for name, tensor in tensors.items():
            is_known = tensor.dtype in DTYPES or name.endswith(MAPS)
            self.check(is_known, f"{name} has {tensor.dtype}: quantized heads are not known here")
            is_finite = not tensor.is_floating_point() or bool(tensor.isfinite().all())
            self.check(is_finite, f"{name} holds NaN or infinity")
        return tensors

    @property
    def sizes(self) -> dict:
        """The entries that state the sizes of a layer; `speculators` stores them apart."""
        nested = self.config.get("transformer_layer_config")
        return nested if isinstance(nested, dict) else self.config

    def check_size(self, size: int) -> None:
        """Check that a head reads states of the target's size."""
        own = self.target.hidden_size
        self.check(size == own, f"reads hidden states of size {size}, the target's have {own}")

    def check_widths(self, shape: TransformerConfig) -> None:
        """Check, before memory is taken, that the config states no larger sizes than are stored."""
        stored = max((size for tensor in self.tensors.values() for size in tensor.shape), default=0)
        stated = max(shape.hidden_size, shape.intermediate_size, shape.num_heads * shape.head_size)
        layers = len({name.split(".")[1] for name in self.tensors if name.startswith("layers.")})
        self.check(
            stated <= stored and shape.num_layers <= max(1, layers),
            f"its config.json states a width of {stated} and {shape.num_layers} layers, its tensors"
            f" have at most {stored} and {layers}",
        )

    def check_layers(self, name: str, ids: Any, shift: int = 0) -> list[Layer]:
        """Return the target's layers that an entry of the config names, each plus `shift`."""
        is_list = isinstance(ids, list) and ids and all(map(is_whole, ids))
        self.check(is_list, f"{name}={ids!r}: must be a list of the target's layers")
        layers = [layer + shift for layer in ids]
        try:
            self.target.check_layers(layers)
        except ValueError as error:
            raise ValueError(f"{self.folder}: {error}") from None
        return layers

    def vocabulary(self, *projections: str) -> Tensor | None:
        """Return the tokens of a draft vocabulary, in ascending order; None if there is no d2t.

        Stored is d2t, the target's id minus the draft's id. The rows of matrices that have one for
        each token of the draft's are put in the same order.
        """
        marked, offsets = self.tensors.pop("t2d", None), self.tensors.pop("d2t", None)
        if offsets is None:
            is_whole_vocabulary = marked is None or bool(marked.bool().all())
            self.check(
                is_whole_vocabulary, "holds t2d without d2t, which orders the draft's tokens"
            )
            return None
        self.check(
            offsets.dim() == 1 and len(offsets) and not offsets.is_floating_point(),
            f"d2t has shape {tuple(offsets.shape)} and dtype {offsets.dtype}: must be one whole"
            " number per draft token",
        )
        ids = torch.arange(len(offsets)) + offsets.long()
        # Ours are sorted, so that a row of logits scatters in order; the matrices follow.
        ids, order = ids.sort()
        first, last, size = int(ids[0]), int(ids[-1]), self.target.vocab_size
        self.check(
            first >= 0 and last < size and len(ids.unique()) == len(ids),
            f"d2t maps to tokens {first} … {last}: must be different tokens of the target's"
            f" 0 … {size - 1}",
        )
        is_same = marked is None or marked.nonzero().flatten().tolist() == ids.tolist()
        self.check(is_same, "t2d marks other tokens than those that d2t maps to")
        for name in projections:
            if len(rows := self.tensors.get(name, ())) == len(ids):
                self.tensors[name] = rows[order]
        return ids

    def drop_copies(self, **own: Tensor) -> None:
        """Remove copies of the target's own matrices; raise ValueError if one differs."""
        for part, weight in own.items():
            copy = self.tensors.pop(f"{part}.weight", None)
            self.check(
                copy is None or is_copy(copy, weight),
                f"its {part}.weight {tuple(getattr(copy, 'shape', ()))} is not the target's"
                f" {tuple(weight.shape)}: the head belongs to another model, or has a part of its"
                " own that is not known here",
            )

    def ours(self, names: dict[str, str], block: Callable[[int], str]) -> dict[str, Tensor]:
        """Return the tensors under our names, with each layer's matrices fused.

        Tensors that are not known keep their names.

        Args:
            names: published names of parts → ours.
            block: our name of a layer.
        """
        layers = {int(found[1]) for name in self.tensors if (found := LAYER.match(name))}
        fused = {
            f"layers.{layer}.{part}.weight": f"{block(layer)}.{ours}.weight"
            for layer in sorted(layers)
            for ours, parts in FUSED.items()
            for part in parts
        }
        known, grouped = fused | names, dict[str, list[Tensor]]()
        for theirs, ours in known.items():
            if theirs in self.tensors:
                grouped.setdefault(ours, []).append(self.tensors[theirs])
        unknown = {name: weight for name, weight in self.tensors.items() if name not in known}
        return unknown | {name: torch.cat(parts) for name, parts in grouped.items()}

    def check_empty(self, names: Collection[str]) -> None:
        """Raise ValueError if weights remain that no part of the head reads."""
        first = min(names, default="")
        self.check(not names, f"holds {first}, a part that is not known here")

    def check_shape(self, name: str, weight: Tensor, shape: Sequence[int]) -> None:
        """Check the shape of a weight."""
        self.check(
            weight.shape == torch.Size(shape),
            f"{name} has shape {tuple(weight.shape)}, must be {tuple(shape)} for its config.json and"
            " this target",
        )

    def load(self, head: Head, state: dict[str, Tensor]) -> Head:
        """Return a head with these weights, on the target's device and in its dtype."""
        own = head.state_dict()
        self.check_empty(state.keys() - own.keys())
        missing = sorted(own.keys() - state.keys())
        others = f" and {len(missing) - 1} more weights" if len(missing) > 1 else ""
        self.check(not missing, f"lacks {''.join(missing[:1])}{others} (named as in this library)")
        for name, weight in state.items():
            self.check_shape(name, weight, own[name].shape)
        head.to(self.target.dtype).load_state_dict(state)
        return head.to(self.target.device).requires_grad_(False)


def unusual(sizes: dict) -> str:
    """Return the entries that can make a layer another one, for the end of a message."""
    names = ("hidden_act", "attention_bias", "mlp_bias", "quantization_config", PART, *ROPES)
    stated = [f"{name}={sizes[name]!r:.200}" for name in names if sizes.get(name)]
    return f" ({', '.join(stated)})" if stated else ""


def is_copy(stored: Tensor, own: Tensor) -> bool:
    """Return whether a stored matrix is the target's, in whatever dtype."""
    own = own.detach().to("cpu", torch.float32)
    # Within 1 %: heads store copies in another dtype than the target's.
    return stored.shape == own.shape and bool(
        (stored.float() - own).abs().max() <= 0.01 * own.abs().max()
    )


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


# Medusa -----------------------------------------------------------------------------------------


def read_medusa(folder: str | Path, target: CausalLM) -> Heads:
    """Return published Medusa heads."""
    for name in AUTHORS_MEDUSA:
        if (Path(folder) / name).is_file():
            return _read_authors_medusa(Checkpoint(folder, target, name), name)
    stored = Checkpoint(folder, target)
    # A folder may repeat the target's matrix once per head. Such a copy is dropped; a matrix that
    # was trained further raises, since the class has no place for it.
    if copies := [name for name in stored.tensors if name.startswith("lm_heads.")]:
        rows = target.projection  # of a packed head it is computed
        stored.drop_copies(**{name.removesuffix(".weight"): rows for name in copies})
    up = []
    while (weight := stored.tensors.pop(f"blocks.{len(up)}.layers.0.weight", None)) is not None:
        up.append(weight.T)
    stored.check_empty(stored.tensors)
    stored.check(up, "holds no blocks.0.layers.0.weight: no Medusa heads")
    stored.check_size(up[0].shape[0])
    heads = ReducedHeads(target.hidden_size, len(up), target.vocab_size)
    return stored.load(heads, {"up": torch.stack(up), "words.ids": heads.words.ids})


def _read_authors_medusa(stored: Checkpoint, name: str) -> FullHeads:
    """Return Medusa heads in the authors' format: 0.0.linear.weight, 0.0.linear.bias, 0.1.weight …"""
    config, tensors, target = stored.config, stored.tensors, stored.target
    layers, most = config.get("medusa_num_layers", 1), len({key.split(".")[0] for key in tensors})
    stored.check(layers == 1, f"medusa_num_layers={layers}: must be 1 block per head")
    count = config.get("medusa_num_heads", most)
    is_right = is_whole(count) and 1 <= count <= most
    stored.check(is_right, f"medusa_num_heads={count!r}: must be 1 … {most}")
    heads = FullHeads(target.hidden_size, count, target.vocab_size)
    parts = {"up": "0.linear.weight", "bias": "0.linear.bias", "rows": "1.weight"}
    keys = {ours: [f"{i}.{theirs}" for i in range(count)] for ours, theirs in parts.items()}
    missing = [key for group in keys.values() for key in group if key not in tensors]
    stored.check(not missing, f"{name} lacks {''.join(missing[:1])}")
    known = {f"{i}.{theirs}" for i in range(most) for theirs in parts.values()}
    stored.check_empty(tensors.keys() - known)
    stored.check_size(tensors["0.0.linear.bias"].numel())
    for ours, group in keys.items():
        for key in group:
            stored.check_shape(key, tensors[key], heads.get_parameter(ours).shape[1:])
    state = {ours: torch.stack([tensors[key] for key in group]) for ours, group in keys.items()}
    return stored.load(heads, state | {"up": state["up"].transpose(1, 2)})


# EAGLE ------------------------------------------------------------------------------------------


def read_eagle(folder: str | Path, target: CausalLM, version: int) -> FeatureHead:
    """Return a published EAGLE head in the target's dtype, on its device."""
    stored = Checkpoint(folder, target)
    usual = "eagle3" if "norm.weight" in stored.tensors else "eagle"
    kind = str(stored.config.get("speculators_model_type", usual))
    kinds = ("eagle3", "peagle") if version == 3 else ("eagle",)
    stored.check(kind in kinds, f"holds a head of type {kind}, version={version} was asked for")
    return _read_eagle3(stored) if version == 3 else _read_eagle1(stored)


def _shape(stored: Checkpoint, is_deep: bool) -> TransformerConfig:
    """Return the sizes of a head's blocks, after checking that they fit the target."""
    sizes = {"vocab_size": stored.target.vocab_size} | stored.sizes
    types, slides = sizes.get("layer_types"), sizes.get("use_sliding_window")
    kinds = {*map(str, types)} if isinstance(types, list) else set()
    stored.check(
        not kinds - {"full_attention"} and not slides,
        f"layer_types={types}, use_sliding_window={slides}: an EAGLE head with a window is not known"
        " here",
    )
    shape = config_in(stored.folder / "config.json", sizes | {"model_type": "llama"})
    if shape is None:
        raise ValueError(
            f"{stored.folder}: its config.json states a layer that is not a plain"
            f" Llama's{unusual(sizes)}"
        )
    # Some authors copy the target's entries, its number of layers among them, for their one layer.
    is_one = is_deep or shape.num_layers in (1, stored.target.num_layers)
    stored.check(is_one, f"has {shape.num_layers} layers: must have one")
    stored.check_size(stored.config.get("target_hidden_size") or shape.hidden_size)
    return shape


def _read_eagle1(stored: Checkpoint) -> FeatureHead:
    """Return an EAGLE-1 head; `speculators` calls its layer "transformer"."""
    target, shape = stored.target, _shape(stored, is_deep=False)
    has_norms = stored.config.get("layernorms")
    stored.check(not has_norms, "layernorms=true adds norms that are not known here")
    stored.tensors = {
        name.replace("transformer.", "layers.0.", 1).replace("fusion_fc.", "fc.", 1): weight
        for name, weight in stored.tensors.items()
    }
    own = target.backend.embedding.weight
    stored.drop_copies(lm_head=target.projection, embed_tokens=own)
    stored.check_widths(replace(shape, num_layers=1))
    head = Eagle1Head.for_target(target, **_fields(shape))
    # Published heads have a bias or none; those that are trained here have none.
    if "fc.bias" in stored.tensors:
        head.fuse = nn.Linear(2 * head.size, head.size)
    names = {"fc.weight": "fuse.weight", "fc.bias": "fuse.bias"}
    return stored.load(head, stored.ours(names, lambda layer: "block") | {"ids": head.ids})


def _read_eagle3(stored: Checkpoint) -> FeatureHead:
    """Return an EAGLE-3 or P-EAGLE head; its layer is called "midlayer" or "layers.0"."""
    config, target = stored.config, stored.target
    is_parallel = config.get("speculators_model_type") == "peagle" or bool(
        config.get("parallel_drafting") or "mask_hidden" in stored.tensors
    )
    shape, nested = _shape(stored, is_parallel), config.get("eagle_config") or {}
    reads = (config.get("use_aux_hidden_state"), nested.get("use_aux_hidden_state"))
    stored.check(False not in reads, "use_aux_hidden_state=false: such a head is not known here")
    stored.tensors = tensors = {
        name.replace("midlayer.", "layers.0.", 1): w for name, w in stored.tensors.items()
    }
    own = target.backend.embedding.weight
    kind, parallel = Eagle3Head, {}
    if is_parallel:
        kind, parallel = ParallelEagleHead, _parallel_parts(stored, shape, own)
    if not parallel.get("embeddings"):
        stored.drop_copies(embed_tokens=own)
    rows, ids = tensors.get("lm_head.weight"), stored.vocabulary("lm_head.weight")
    if rows is not None and ids is not None:
        message = f"d2t has {len(ids)} entries, lm_head.weight has {len(rows)} rows"
        stored.check(len(rows) == len(ids), message)
    if rows is None:  # a head without its own matrix reads the target's
        weight = target.projection.cpu()
        tensors["lm_head.weight"] = weight if ids is None else weight[ids]
    options = {name: bool(config.get(name) or nested.get(name)) for name in NORMS}
    before = options["norm_before_residual"]
    layers = _depths(stored, nested)
    stored.check_widths(replace(shape, num_layers=1))
    head = kind.for_target(target, ids, layers, **options, **parallel, **_fields(shape))
    if "mask_hidden" in tensors:
        tensors["mask_hidden"] = tensors["mask_hidden"].flatten()
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
    block = lambda layer: f"more.{layer - 1}" if layer else "block"
    return stored.load(head, stored.ours(names, block) | {"ids": head.ids})


def _parallel_parts(stored: Checkpoint, shape: TransformerConfig, own: Tensor) -> dict:
    """Return the arguments of a P-EAGLE head, whose embedding may be trained further."""
    named = (stored.config[name] for name in MASKS if stored.config.get(name) is not None)
    mask: Any = next(named, None)
    is_token = is_whole(mask) and 0 <= mask < len(own)
    stored.check(is_token, f"mask_token_id={mask!r}: must be a token of the target")
    has_state = "mask_hidden" in stored.tensors
    stored.check(has_state, "lacks mask_hidden, the state of a mask (P-EAGLE)")
    embedding = stored.tensors.get("embed_tokens.weight")
    is_same = embedding is None or is_copy(embedding, own)
    stored.check_widths(shape)
    return {"depth": shape.num_layers, "mask_id": mask, "embeddings": 0 if is_same else len(own)}


def _depths(stored: Checkpoint, nested: dict) -> list[Layer] | None:
    """Return the target's layers that an EAGLE-3 head reads; None for the usual three.

    Ids are inputs of blocks, as in vLLM and `speculators`. SGLang, SpecForge and ModelOpt count the
    outputs from 0; a first id of 1 marks their files, and SGLang adds one then, as here.
    """
    name = "eagle_aux_hidden_state_layer_ids"
    ids = stored.config.get(name)
    ids = nested.get(name) if ids is None else ids
    if ids is None:
        return None
    counts_outputs = isinstance(ids, list) and ids[:1] == [1]
    is_shifted = counts_outputs and "speculators_model_type" not in stored.config
    return stored.check_layers(name, ids, int(is_shifted))


def _fields(shape: TransformerConfig) -> dict:
    """Return the sizes of a block as keyword arguments."""
    left_out = ("vocab_size", "num_layers", "tied", "window", "qkv_bias", "qk_norm")
    names = TransformerConfig.__dataclass_fields__
    return {name: getattr(shape, name) for name in names if name not in left_out}
