"""Read heads that others have published: config.json and weights, in the formats engines serve.

    head              stored by                               read by
    EAGLE-1, -3, 3.1  its authors, speculators                EagleDrafter, version 1, 2 or 3
    P-EAGLE           speculators, SpecForge                  EagleDrafter, version 3
    Medusa            its authors, vLLM                       MedusaDrafter
    DFlash            its authors, speculators, SpecForge     BlockDiffusionDrafter
    DSpark            DeepSpec, speculators, SpecForge        BlockDiffusionDrafter
    DFlash 2          its authors                             BlockDiffusionDrafter

Each drafter has `from_pretrained(target, path=folder)`; its file has the reader of its formats. Here
is what they share.
Files of tensors are read without running pickled code. A head that does not fit the target, or that
has a part which is not known here, raises ValueError with the name of the part: an EAGLE head with
a window, a gated or recurrent correction, Domino's, an attention sink, experts.
"""

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from specdec_lite.checks import is_whole
from specdec_lite.engine.cache import Layer
from specdec_lite.engine.hf_state import FUSED
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import TransformerConfig
from specdec_lite.loading.checkpoints import read_weights
from specdec_lite.loading.model_config import PART, read_config

AUTHORS_EAGLE = "pytorch_model.bin"
"""Name of the file in which EAGLE's authors store a head."""
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
