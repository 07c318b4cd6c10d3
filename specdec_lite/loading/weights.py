"""Save and load trained drafters: weights, configuration and the fingerprint of their target.

Every trained drafter is stored in one safetensors file. Its metadata states the arguments that
build the module and which target the module was trained on.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from specdec_lite import _extras, checks
from specdec_lite.engine.models import CausalLM

FILE = "weights.safetensors"
BLOCKS = "Q8_0"
SHIPPED = Path(__file__).parent.parent / "weights"
LOADED_IN_FLOAT16 = {"a20cef35edb53b32": "6f35e66dfea6c89b"}
"""Fingerprints of targets stored in float32: after loading in float16 → as stored. The shipped one is
SmolLM2-135M-Instruct.
"""
Module = TypeVar("Module", bound=nn.Module)
Entry = TypeVar("Entry", bound=dict | list)


def fingerprint(target: CausalLM) -> str:
    """Return sixteen hexadecimal digits that identify a trained target, whatever its dtype.

    The digits are a hash of the model's sizes and of the first 4,096 entries of every weight,
    rounded to bfloat16 and then to 1/1024. A target stored in float32 and loaded in float16 is
    rounded twice, and its fingerprint may then differ, unless it is in `LOADED_IN_FLOAT16`.
    """
    digest = hashlib.sha256(
        f"{target.vocab_size} {target.hidden_size} {target.num_layers}".encode()
    )
    for _, weight in sorted(target.model.named_parameters()):
        entries = weight.detach().flatten()[:4096].bfloat16().float() * 1024
        digest.update(entries.round().to(torch.int32).cpu().numpy().tobytes())
    found = digest.hexdigest()[:16]
    return LOADED_IN_FLOAT16.get(found, found)


def write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> Path:
    """Write a safetensors file completely, or leave the existing file if interrupted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    copies = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    part.write_bytes(serialize(copies, {"format": "pt"} | metadata))
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
    """Write a trained module to folder/weights.safetensors."""
    if bits not in (8, 16):
        raise ValueError(f"bits={bits!r}: must be 8 or 16")
    duplicates = tied_weights(module)
    own = {name: w.detach() for name, w in module.state_dict().items() if name not in duplicates}
    in_blocks = [name for name, weight in own.items() if bits == 8 and has_blocks(weight)]
    tensors = {name: pack(w) if name in in_blocks else cast(w, dtype) for name, w in own.items()}
    metadata = {"config": json.dumps(config), "target": fingerprint(target)}
    if in_blocks:
        metadata[BLOCKS] = json.dumps(in_blocks)
    return write(Path(folder) / FILE, tensors, metadata)


def load(path: str | Path, target: CausalLM, build: Callable[..., Module]) -> Module:
    """Load a module that `save` wrote."""
    label = f"path={str(path)!r}"
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ValueError(f"{label}: must be a folder that holds {FILE}, or such a file")
    metadata, weights = _read(file, label)
    if not {"config", "target"} <= set(metadata):
        raise ValueError(
            f"{label}: holds {sorted(weights)} without the metadata config and target: not the file"
            " of a trained drafter"
        )
    if metadata["target"] != fingerprint(target):
        raise ValueError(
            f"{label}: trained on another target (fingerprint {metadata['target']}, this target's"
            f" is {fingerprint(target)}): train it on this one with"
            " `python -m specdec_lite.training`"
        )
    module = build_module(build, _entry(metadata, "config", dict, label), label)
    duplicates = tied_weights(module)
    expected = {n: weight for n, weight in module.state_dict().items() if n not in duplicates}
    check_weights(weights, expected, label)
    state = {name: cast(weight, target.dtype) for name, weight in weights.items()}
    state |= {name: state[first] for name, first in duplicates.items()}
    module.load_state_dict(state, assign=True)
    return module.to(target.device).requires_grad_(False).eval()


def _read(file: Path, label: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the unpacked tensors of a file."""
    try:
        with safe_open(file, "pt") as content:
            metadata = content.metadata() or {}
            tensors = {name: content.get_tensor(name) for name in content.keys()}
    except SafetensorError as error:
        raise ValueError(f"{label}: not a safetensors file ({error})") from None
    in_blocks = _entry(metadata, BLOCKS, list, label) if BLOCKS in metadata else []
    if unknown := [name for name in in_blocks if name not in tensors]:
        raise ValueError(f"{label}: its metadata {BLOCKS} names {unknown[0]!r}, which is not there")
    return metadata, tensors | {name: unpack(tensors[name]) for name in in_blocks}


def _entry(metadata: dict[str, str], key: str, kind: type[Entry], label: str) -> Entry:
    """Return an entry of the metadata that must be JSON of a kind."""
    try:
        value = json.loads(metadata[key])
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise ValueError(
            f"{label}: its metadata {key}={metadata[key][:60]!r}: must be JSON of a {kind.__name__}"
        )
    return value


def shipped_folder(folder: Path, target: CausalLM) -> Path:
    """Return the sub-folder whose weights were trained on a target."""
    own = fingerprint(target)
    files = sorted(folder.glob(f"*/{FILE}"))
    for file in files:
        with safe_open(file, "pt") as content:
            if (content.metadata() or {}).get("target") == own:
                return file.parent
    names = ", ".join(sorted(file.parent.name for file in files))
    raise ValueError(
        f"target: nothing ships for it (fingerprint {own}) in {folder}, which holds {names}: give"
        " path, or train with `python -m specdec_lite.training`"
    )


def find_weights(name: str, target: CausalLM, path: str | Path | None = None) -> str | Path:
    """Return the path of a drafter's weights."""
    checks.model("target", target)
    return shipped_folder(SHIPPED / name, target) if path is None else path


def build_module(build: Callable[..., Module], config: dict, label: str) -> Module:
    """Build a module without changing the global random state."""
    try:
        with torch.random.fork_rng(devices=[]):
            return build(**config)
    except TypeError as error:
        raise ValueError(
            f"{label}: stored with config {config}, which is not one of"
            f" {getattr(build, '__qualname__', build)} ({error})"
        ) from None


def tied_weights(module: nn.Module) -> dict[str, str]:
    """Return {name: name of the first weight that is the same tensor} for repeated weights."""
    first: dict[int, str] = {}
    state = module.state_dict(keep_vars=True)
    names = {name: first.setdefault(id(weight), name) for name, weight in state.items()}
    return {name: original for name, original in names.items() if name != original}


def check_weights(weights: dict[str, Tensor], expected: dict[str, Tensor], label: str) -> None:
    """Check the names and shapes of stored weights."""
    missing = sorted(set(expected) - set(weights))
    unexpected = sorted(set(weights) - set(expected))
    if missing or unexpected:
        raise ValueError(
            f"{label}: other weights than this drafter's: missing {missing}, unexpected {unexpected}"
        )
    for name, weight in weights.items():
        if weight.shape != expected[name].shape:
            raise ValueError(
                f"{label}: {name} has shape {tuple(weight.shape)}, this drafter's has"
                f" {tuple(expected[name].shape)}"
            )


def has_blocks(weight: Tensor) -> bool:
    """Return whether a tensor holds floating-point rows of whole blocks of 32 numbers."""
    return weight.is_floating_point() and weight.dim() > 1 and weight.shape[-1] % 32 == 0


def pack(weight: Tensor) -> Tensor:
    """Quantize a matrix to Q8_0."""
    gguf = _extras.load("gguf")
    numbers = weight.float().cpu().numpy()
    return torch.from_numpy(gguf.quants.quantize(numbers, gguf.GGMLQuantizationType.Q8_0))


def unpack(blocks: Tensor) -> Tensor:
    """Dequantize a matrix from Q8_0.

    Shapes: blocks [..., 34/32 · n].
    """
    gguf = _extras.load("gguf")
    return torch.from_numpy(gguf.quants.dequantize(blocks.numpy(), gguf.GGMLQuantizationType.Q8_0))


def cast(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a copy in a dtype; integers keep their dtype."""
    return weight.to(dtype if weight.is_floating_point() else weight.dtype, copy=True)
