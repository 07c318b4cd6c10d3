"""Save and load trained drafters: weights, configuration and the fingerprint of their target.

Every trained drafter is stored in one safetensors file. Its metadata states the arguments that
build the module and which target the module was trained on. The bytes of each tensor are sorted by
their position in a number and deflated, which changes no bit of the weights.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.files import check_counts, written_whole

FILE = "weights.safetensors"
BLOCKS = "Q8_0"
"""GGUF's blocks of 32 numbers: a scale in float16, then 32 codes of 8 bits."""
BITS = range(4, 9)
"""Bits of the codes of a block. Codes of fewer bits repeat more often: deflated, they take less."""
DEFLATED = "deflated"
"""Key of the metadata: tensor → dtype, shape and number of bytes whose positions are sorted."""
STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY)
"""Ways to deflate, of which the smaller result is stored: trained weights repeat by chance only."""
GROUP = 32
"""Numbers that share a scale."""
MOST_BYTES = 1 << 33
"""The most bytes of a tensor that is unpacked: a small file can hold very many zeros."""
STEPS = tuple(0.7 + 0.02 * number for number in range(21))
"""Scales to try, relative to the one that reaches the largest number of a block."""
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
    copies = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with written_whole(path) as part:
        part.write_bytes(serialize(copies, {"format": "pt"} | metadata))
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
    duplicates = tied_weights(module)
    own = {name: w.detach() for name, w in module.state_dict().items() if name not in duplicates}
    in_blocks = [name for name, weight in own.items() if bits in BITS and has_blocks(weight)]
    tensors = {
        name: pack(weight, bits) if name in in_blocks else cast(weight, dtype).cpu()
        for name, weight in own.items()
    }
    metadata = {"config": json.dumps(config), "target": fingerprint(target)}
    if in_blocks:
        metadata[BLOCKS] = json.dumps(in_blocks)
    return write_deflated(Path(folder) / FILE, tensors, metadata)


def load(path: str | Path, target: CausalLM, build: Callable[..., Module]) -> Module:
    """Load a module that `save` wrote."""
    label = f"path={str(path)!r}"
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ValueError(f"{label}: must be a folder that holds {FILE}, or such a file")
    # A small file can hold very many zeros: what it states is compared before a tensor is read.
    metadata, shapes = read_shapes(file, label)
    if not {"config", "target"} <= set(metadata):
        raise ValueError(
            f"{label}: holds {sorted(shapes)} without the metadata config and target: not the file"
            " of a trained drafter"
        )
    if metadata["target"] != fingerprint(target):
        raise ValueError(
            f"{label}: trained on another target (fingerprint {metadata['target']}, this target's"
            f" is {fingerprint(target)}): train it on this one with"
            " `python -m specdec_lite.training`"
        )
    config = _entry(metadata, "config", dict, label)
    with torch.device("meta"):  # the sizes are compared before any memory is taken
        outline = build_module(build, config, label)
    duplicates = tied_weights(outline)
    expected = {n: weight for n, weight in outline.state_dict().items() if n not in duplicates}
    check_shapes(shapes, {name: (*w.shape,) for name, w in expected.items()}, label)
    _, weights = read(file, label)
    module = build_module(build, config, label)
    state = {name: cast(weight, target.dtype) for name, weight in weights.items()}
    state |= {name: state[first] for name, first in duplicates.items()}
    module.load_state_dict(state, assign=True)
    return module.to(target.device).requires_grad_(False).eval()


def read(file: Path, label: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the dequantized tensors of a file."""
    metadata, tensors = read_stored(file, label)
    return metadata, tensors | {name: unpack(tensors[name]) for name in blocks_of(metadata, label)}


def blocks_of(metadata: dict[str, str], label: str) -> list[str]:
    """Return the names of the tensors that are stored in blocks."""
    return _entry(metadata, BLOCKS, list, label) if BLOCKS in metadata else []


def read_shapes(file: Path, label: str) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    """Return the metadata and the shapes of a file's tensors, dequantized; read no tensor."""
    try:
        with safe_open(file, "pt") as content:
            metadata = content.metadata() or {}
            shapes = {name: (*content.get_slice(name).get_shape(),) for name in content.keys()}
    except SafetensorError as error:
        raise ValueError(f"{label}: not a safetensors file ({error})") from None
    deflated = _entry(metadata, DEFLATED, dict, label) if DEFLATED in metadata else {}
    blocks = blocks_of(metadata, label)
    for key, names in ((DEFLATED, deflated), (BLOCKS, blocks)):
        if unknown := [name for name in names if str(name) not in shapes]:
            raise ValueError(
                f"{label}: its metadata {key} names {unknown[0]!r}, which is not there"
            )
    try:
        shapes |= {name: (*map(int, shape),) for name, (_, shape, _) in deflated.items()}
        shapes |= {n: (*shapes[n][:-1], shapes[n][-1] // (2 + GROUP) * GROUP) for n in blocks}
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{label}: its metadata {DEFLATED} does not fit ({error})") from None
    return metadata, shapes


def read_stored(file: Path, label: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a file, quantized ones in their blocks."""
    metadata, _ = read_shapes(file, label)
    deflated = json.loads(metadata.get(DEFLATED, "{}"))
    with safe_open(file, "pt") as content:
        tensors = {name: content.get_tensor(name) for name in content.keys()}
    try:
        return metadata, tensors | {
            name: inflate(tensors[name], *deflated[name]) for name in deflated
        }
    except (zlib.error, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{label}: its metadata {DEFLATED} does not fit ({error})") from None


def write_deflated(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> Path:
    """Write a file whose tensors are deflated; quantized ones are given in their blocks."""
    widths = {name: tensor.element_size() for name, tensor in tensors.items()}
    widths |= dict.fromkeys(blocks_of(metadata, str(path)), 2 + GROUP)
    deflated = {
        name: (str(tensor.dtype).removeprefix("torch."), list(tensor.shape), widths[name])
        for name, tensor in tensors.items()
    }
    packed = {name: deflate(tensor, widths[name]) for name, tensor in tensors.items()}
    return write(path, packed, metadata | {DEFLATED: json.dumps(deflated)})


def deflate(tensor: Tensor, width: int) -> Tensor:
    """Return the bytes of a tensor, sorted by their position in items of a width, and deflated."""
    items = tensor.contiguous().flatten().view(torch.uint8).numpy().reshape(-1, width)
    streams = [zlib.compressobj(9, strategy=strategy) for strategy in STRATEGIES]
    data = min((each.compress(items.T.tobytes()) + each.flush() for each in streams), key=len)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def inflate(data: Tensor, dtype: str, shape: Sequence[int], width: int) -> Tensor:
    """Return the tensor that was deflated."""
    kind = getattr(torch, dtype)
    size = math.prod(shape) * kind.itemsize
    if size > MOST_BYTES:
        raise ValueError(f"a tensor has {str(size)[:20]} bytes, must have ≤ {MOST_BYTES}")
    raw = zlib.decompressobj().decompress(data.numpy().tobytes(), size + 1)
    items = np.frombuffer(raw, np.uint8).reshape(width, -1).T
    numbers = torch.from_numpy(items.flatten()).view(-1, kind.itemsize).view(kind)
    return numbers.view(shape)


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


class Pretrained:
    """A drafter with a trained module, which `from_pretrained` reads.

    Attributes:
        folder: name of the folder of what ships.
        build: builds the untrained module from a stored config.
    """

    folder: ClassVar[str]
    build: ClassVar[Callable[..., nn.Module]]

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, **options: Any
    ) -> Self:
        """Load trained weights.

        Args:
            target: the model that decodes.
            path: file or folder of the weights; None for those shipped for this target.
            options: the other arguments of the class.
        """
        return cls.made(target, cls.read(target, path), **options)

    @classmethod
    def made(cls, target: CausalLM, module: Any, **options: Any) -> Self:
        """Return the drafter with this module."""
        return cls(target, module, **options)  # pyright: ignore[reportCallIssue]

    @classmethod
    def read(cls, target: CausalLM, path: str | Path | None) -> nn.Module:
        """Return the trained module."""
        return load(find_weights(cls.folder, target, path), target, cls.build)


def build_module(build: Callable[..., Module], config: dict, label: str) -> Module:
    """Build a module without changing the global random state."""
    try:
        check_counts(config)
        with torch.random.fork_rng(devices=[]):
            return build(**config)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise ValueError(
            f"{label}: stored with config {str(config)[:400]}, which is not one of"
            f" {getattr(build, '__qualname__', build)} ({str(error)[:400]})"
        ) from None


def tied_weights(module: nn.Module) -> dict[str, str]:
    """Return {name: name of the first weight that is the same tensor} for repeated weights."""
    first: dict[int, str] = {}
    state = module.state_dict(keep_vars=True)
    names = {name: first.setdefault(id(weight), name) for name, weight in state.items()}
    return {name: original for name, original in names.items() if name != original}


def check_shapes(shapes: dict[str, tuple], expected: dict[str, tuple], label: str) -> None:
    """Check the names and shapes of stored weights."""
    missing = sorted(set(expected) - set(shapes))
    unexpected = sorted(set(shapes) - set(expected))
    if missing or unexpected:
        raise ValueError(
            f"{label}: other weights than this drafter's: missing {missing}, unexpected {unexpected}"
        )
    for name, shape in shapes.items():
        if shape != expected[name]:
            raise ValueError(
                f"{label}: {name} has shape {shape}, this drafter's has {expected[name]}"
            )


def has_blocks(weight: Tensor) -> bool:
    """Return whether a tensor holds floating-point rows of whole blocks of 32 numbers."""
    return weight.is_floating_point() and weight.dim() > 1 and weight.shape[-1] % GROUP == 0


def pack(weight: Tensor, bits: int) -> Tensor:
    """Quantize a matrix, every block with its own scale.

    The scale of a block is that of `STEPS` with the least squared error: the one that reaches the
    largest number exactly is too coarse for the others.

    Shapes: weight [..., n]; result [..., 34/32 · n].
    """
    groups = weight.detach().float().cpu().unflatten(-1, (-1, GROUP))
    scale = least_squares_scale(groups, bits)
    codes = codes_of(groups, scale, bits).to(torch.int8)
    return torch.cat((scale.view(torch.uint8), codes.view(torch.uint8)), -1).flatten(-2)


def codes_of(groups: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Return the nearest codes of numbers."""
    quotient = groups / scale.float().masked_fill(scale == 0, 1)
    return quotient.round().clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def least_squares_scale(groups: Tensor, bits: int) -> Tensor:
    """Return the scale of each block, of either sign, with the least squared error.

    Shapes: groups [..., 32]; result [..., 1].
    """
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True)) / -(2 ** (bits - 1))
    best, least = torch.zeros_like(largest).half(), torch.full_like(largest, math.inf)
    for step in STEPS:
        codes = codes_of(groups, largest * step, bits)
        scale = (groups * codes).sum(-1, keepdim=True) / codes.square().sum(-1, keepdim=True)
        scale = scale.nan_to_num(0.0).half()
        rounded = codes_of(groups, scale, bits) * scale.float()
        error = (rounded - groups).square().sum(-1, keepdim=True)
        best, least = torch.where(error < least, scale, best), torch.minimum(error, least)
    return best


def unpack(blocks: Tensor) -> Tensor:
    """Dequantize a matrix.

    Shapes: blocks [..., 34/32 · n].
    """
    groups = blocks.unflatten(-1, (-1, 2 + GROUP))
    scale = groups[..., :2].contiguous().view(torch.float16).float()
    return (scale * groups[..., 2:].contiguous().view(torch.int8).float()).flatten(-2)


def cast(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a copy in a dtype; integers keep their dtype."""
    return weight.to(dtype if weight.is_floating_point() else weight.dtype, copy=True)
