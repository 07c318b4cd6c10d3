"""Carry SmolLM2 to a machine that has no network and takes few bytes at a time.

    python -m benchmarks.carried pack PARTS            # here: part-a.safetensors, part-b.safetensors
    python -m benchmarks.carried unpack PARTS FOLDER   # there: the folder that `load_smollm2` reads

The parts hold the 4-bit file as it is: byte i of all its blocks stands together, and each tensor is
deflated. Unpacking needs numpy, torch and safetensors, and gives the weights of `load_smollm2` to
the last bit.
"""

import argparse
import json
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from specdec_lite import _extras
from specdec_lite.loading.gguf_file import NAMES, TOP_NAMES, split_halves
from specdec_lite.loading.smollm2 import ABOUT, GGUF, smollm2_folder

BLOCK_BYTES = {"Q4_1": 20, "Q8_0": 34, "F32": 4}
"""Bytes of a block by the format of a tensor."""
FIRST_PART = 36_900_000
"""Bytes of the first part, at most; the second takes the rest."""
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""Files that travel beside the weights."""
HEADS = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}


def deflated(data: bytes) -> Tensor:
    """Return bytes without repetitions, coded by their frequency alone, as a tensor."""
    coder = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
    return torch.frombuffer(bytearray(coder.compress(data) + coder.flush()), dtype=torch.uint8)


def pack(folder: Path) -> list[Path]:
    """Write the two parts of the model and return their paths."""
    source = smollm2_folder()
    parts: list[dict[str, Tensor]] = [{}, {}]
    formats: dict[str, list] = {}
    for name in FILES:
        if (source / name).is_file():
            parts[0][name] = deflated((source / name).read_bytes())
    used = sum(map(len, parts[0].values()))
    for tensor in _extras.load("gguf").GGUFReader(source / GGUF).tensors:
        kind = tensor.tensor_type.name
        blocks = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1, BLOCK_BYTES[kind])
        coded = deflated(blocks.T.tobytes())
        used += len(coded)
        parts[used > FIRST_PART][tensor.name] = coded
        formats[tensor.name] = [kind, *(int(size) for size in reversed(tensor.shape))]
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "part-a.safetensors", folder / "part-b.safetensors"]
    for path, part in zip(paths, parts):
        save_file(part, path, {"formats": json.dumps({name: formats.get(name) for name in part})})
    return paths


def dequantized(kind: str, blocks: np.ndarray) -> np.ndarray:
    """Return the numbers of blocks [n, bytes], one row each, in float32."""
    half = lambda start: (
        blocks[:, start : start + 2].copy().view(np.float16).astype(np.float32)  # [n, 1]
    )
    if kind == "Q4_1":  # scale, minimum, then the codes of i and i + 16 in one byte
        pairs = blocks[:, 4:]
        codes = np.concatenate((pairs & 15, pairs >> 4), 1).astype(np.float32)
        return half(0) * codes + half(2)
    if kind == "Q8_0":  # scale, then the codes
        return blocks[:, 2:].copy().view(np.int8).astype(np.float32) * half(0)
    return blocks.copy().view(np.float32)


def read_parts(folder: Path) -> Iterator[tuple[str, list | None, bytes]]:
    """Yield name, format and bytes of everything in the parts, inflated in parallel."""
    with ThreadPoolExecutor() as pool:
        for path in sorted(folder.glob("part-*.safetensors")):
            with safe_open(path, "pt") as part:
                formats = json.loads(part.metadata()["formats"])
                coded = [part.get_tensor(name).numpy().tobytes() for name in formats]
            for (name, form), data in zip(formats.items(), pool.map(zlib.decompress, coded)):
                yield name, form, data


def unpack(parts: Path, folder: Path) -> Path:
    """Write the folder that `load_smollm2` reads, and return it; nothing if it is there already.

    Raises:
        ValueError: a part is missing.
    """
    if (folder / "config.json").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    files, state = {}, {}
    heads: dict = {}
    for name, form, data in read_parts(parts):
        if form is None:
            files[name] = data
            if name == "config.json":
                heads = json.loads(data)
            continue
        kind, *shape = form
        blocks = np.frombuffer(data, np.uint8).reshape(BLOCK_BYTES[kind], -1).T
        weight = torch.from_numpy(dequantized(kind, blocks).reshape(shape))
        if name in TOP_NAMES:
            state[TOP_NAMES[name]] = weight
            continue
        _, layer, short, _ = name.split(".")
        if short in HEADS:
            weight = split_halves(weight, heads[HEADS[short]])
        state[f"model.layers.{layer}.{NAMES[short]}.weight"] = weight.contiguous()
    expected = 2 + len(NAMES) * heads.get("num_hidden_layers", 0)
    if len(state) != expected or "config.json" not in files:
        raise ValueError(
            f"{parts}: holds {len(state)} tensors, must hold {expected}: a part is missing"
        )
    save_file(state, folder / "model.safetensors", {"format": "pt", "about": ABOUT})
    for name in sorted(files, key="config.json".__eq__):  # the folder counts once this is there
        (folder / name).write_bytes(files[name])
    return folder


def main() -> None:
    """Pack or unpack."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.carried", description=__doc__)
    parser.add_argument("action", choices=["pack", "unpack"])
    parser.add_argument("parts", type=Path, help="folder of the parts")
    parser.add_argument("folder", type=Path, nargs="?", help="folder to unpack to")
    options = parser.parse_args()
    if options.action == "unpack":
        if options.folder is None:
            parser.error("unpack needs a folder")
        print(unpack(options.parts, options.folder))
        return
    for path in pack(options.parts):
        print(path, f"{os.path.getsize(path):,} bytes")


if __name__ == "__main__":
    main()
