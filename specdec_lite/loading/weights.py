"""One file for every trained drafter: its weights, what it is built with, and whose it is.

What lives here: saving and loading any module beside the target it was trained on, and the target's
fingerprint. What does not: the modules (`drafters`), training them (`training`).
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialised
from torch import Tensor, nn

from specdec_lite.checks import model
from specdec_lite.engine.models import CausalLM

FILE = "weights.safetensors"
BLOCKS = "Q8_0"
SHIPPED = Path(__file__).parent.parent / "weights"
Module = TypeVar("Module", bound=nn.Module)


def fingerprint(target: CausalLM) -> str:
    """Sixteen hexadecimal digits that tell one trained target from another, whatever the dtype it
    was loaded in.

    A hash of the shape and of the first 4,096 entries of every weight, rounded to bfloat16 and then
    to 1/1024. (A target stored in float32 and loaded in float16 is rounded twice, and may then pass
    for another one.)
    """
    digest = hashlib.sha256(
        f"{target.vocab_size} {target.hidden_size} {target.num_layers}".encode()
    )
    for _, weight in sorted(target.model.named_parameters()):
        few = weight.detach().flatten()[:4096].bfloat16().float() * 1024
        digest.update(few.round().to(torch.int32).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> Path:
    """Write a safetensors file whole or not at all: interrupted, it leaves the file that was there.

    Args:
        path: the file; its folder is made where it is missing.
        tensors: what to store, by name, on any device.
        metadata: texts that are stored with it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    part.write_bytes(serialised(stored, {"format": "pt"} | metadata))
    part.replace(path)
    return path


def save(
    folder: str | Path,
    module: nn.Module,
    target: CausalLM,
    config: dict,
    dtype: torch.dtype = torch.bfloat16,
    bits: int = 16,
) -> Path:
    """Write a trained module to folder/weights.safetensors, whole or not at all.

    Args:
        folder: made where it is missing.
        module: any module; its sub-modules' weights are stored too.
        target: whose fingerprint is stored.
        config: what the module is built with again: arguments by name, as JSON can hold them.
        dtype: of the stored floating-point numbers; whole numbers stay as they are.
        bits: 8 stores matrices whose rows are whole blocks of 32 numbers in GGUF's Q8_0, a byte
            a number and a scale a block.
    """
    if bits not in (8, 16):
        raise ValueError(f"bits={bits!r}: must be 8 or 16")
    again = tied(module)
    own = {name: w.detach() for name, w in module.state_dict().items() if name not in again}
    small = [name for name, weight in own.items() if bits == 8 and has_blocks(weight)]
    weights = {name: packed(w) if name in small else cast(w, dtype) for name, w in own.items()}
    metadata = {"config": json.dumps(config), "target": fingerprint(target)}
    if small:
        metadata[BLOCKS] = json.dumps(small)
    return write(Path(folder) / FILE, weights, metadata)


def load(path: str | Path, target: CausalLM, build: Callable[..., Module]) -> Module:
    """The module that was saved in a file, or in the folder that holds weights.safetensors: frozen,
    on the target's device and in its dtype.

    Args:
        path: folder or file.
        target: the model that the module was trained on.
        build: the stored config by name → a module to hold the weights.

    Raises ValueError where there is no such file, where it holds something else, and for what was
    trained on another target.
    """
    named = f"path={str(path)!r}"
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ValueError(f"{named}: must be a folder that holds {FILE}, or such a file")
    try:
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata() or {}
            small = json.loads(metadata.get(BLOCKS, "[]"))
            weights = {
                name: unpacked(opened.get_tensor(name))
                if name in small
                else opened.get_tensor(name)
                for name in opened.keys()
            }
    except SafetensorError as error:
        raise ValueError(f"{named}: not a safetensors file ({error})") from None
    if not {"config", "target"} <= set(metadata):
        raise ValueError(
            f"{named}: holds {sorted(weights)} without config and fingerprint of their target: not"
            " the file of a trained drafter"
        )
    if metadata["target"] != fingerprint(target):
        raise ValueError(
            f"{named}: trained on another target (fingerprint {metadata['target']}, this target's"
            f" is {fingerprint(target)}): train it on this one with"
            " `python -m specdec_lite.training`"
        )
    module = built(build, json.loads(metadata["config"]), named)
    again = tied(module)
    own = {name: weight for name, weight in module.state_dict().items() if name not in again}
    check_weights(weights, own, named)
    ready = {name: cast(weight, target.dtype) for name, weight in weights.items()}
    module.load_state_dict(
        ready | {name: ready[first] for name, first in again.items()}, assign=True
    )
    return module.to(target.device).requires_grad_(False).eval()


def shipped(folder: Path, target: CausalLM) -> Path:
    """Of the folders in `folder`, one for every target that something was trained for, that of this
    target. ValueError where there is none.
    """
    own = fingerprint(target)
    for file in sorted(folder.glob(f"*/{FILE}")):
        with safe_open(file, "pt") as opened:
            if (opened.metadata() or {}).get("target") == own:
                return file.parent
    there = ", ".join(sorted(file.parent.name for file in folder.glob(f"*/{FILE}")))
    raise ValueError(
        f"target: nothing ships for it (fingerprint {own}) in {folder}, which holds {there}: give"
        " path, or train with `python -m specdec_lite.training`"
    )


def where(name: str, target: CausalLM, path: str | Path | None = None) -> str | Path:
    """`path`, a folder or file; None: the folder of weights/`name` that ships for this target.

    TypeError where target is no `CausalLM`, ValueError where nothing ships for it.
    """
    model("target", target)
    return shipped(SHIPPED / name, target) if path is None else path


def built(build: Callable[..., Module], config: dict, named: str) -> Module:
    """A module of this config; the numbers it is begun with take nothing from the global chance."""
    try:
        with torch.random.fork_rng(devices=[]):
            return build(**config)
    except TypeError as error:
        raise ValueError(
            f"{named}: stored with config {config}, which is not one of"
            f" {getattr(build, '__qualname__', build)} ({error})"
        ) from None


def tied(module: nn.Module) -> dict[str, str]:
    """Names of weights that are another weight over again, each with that one's name: stored once."""
    first: dict[int, str] = {}
    state = module.state_dict(keep_vars=True)
    names = {name: first.setdefault(id(weight), name) for name, weight in state.items()}
    return {name: known for name, known in names.items() if name != known}


def check_weights(weights: dict[str, Tensor], wanted: dict[str, Tensor], named: str) -> None:
    """ValueError where the stored weights are not, name by name and shape by shape, those wanted."""
    missing = sorted(set(wanted) - set(weights))
    left_over = sorted(set(weights) - set(wanted))
    if missing or left_over:
        raise ValueError(
            f"{named}: other weights than this drafter's: missing {missing}, left over {left_over}"
        )
    for name, weight in weights.items():
        if weight.shape != wanted[name].shape:
            raise ValueError(
                f"{named}: {name} has shape {tuple(weight.shape)}, this drafter's has"
                f" {tuple(wanted[name].shape)}"
            )


def has_blocks(weight: Tensor) -> bool:
    """Whether these are matrices of floating-point numbers whose rows are whole blocks of 32."""
    return weight.is_floating_point() and weight.dim() > 1 and weight.shape[-1] % 32 == 0


def packed(weight: Tensor) -> Tensor:
    """A matrix [..., n] in Q8_0: bytes [..., 34/32 · n]."""
    return torch.from_numpy(quantize(weight.float().cpu().numpy(), GGMLQuantizationType.Q8_0))


def unpacked(blocks: Tensor) -> Tensor:
    """The matrix [..., n] of such bytes, in float32."""
    return torch.from_numpy(dequantize(blocks.numpy(), GGMLQuantizationType.Q8_0))


def cast(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy in `dtype`, or as it is where it holds whole numbers."""
    return weight.to(dtype if weight.is_floating_point() else weight.dtype, copy=True)
