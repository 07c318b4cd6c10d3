"""Write SmolLM2's weights for the live page, in the integers of its own 4-bit file.

The file's layout is that of the kernel's memory, so the page copies each shard to its place. Nothing
is rounded again: the page multiplies with the weights that `load_smollm2` dequantizes.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from specdec_lite import _extras
from specdec_lite.loading.checkpoints import load_tokenizer
from specdec_lite.loading.gguf_file import split_halves
from specdec_lite.loading.smollm2 import ABOUT, GGUF, smollm2_folder
from specdec_lite.loading.weights import FILE, SHIPPED, read_stored

LANES = 8
"""Rows of a matrix that the kernel processes together."""
GROUP = 32
"""Columns that share a scale."""
SHARD = 16_000_000
"""Bytes per file."""
STOP = 2
"""The token that ends an answer."""
FILES = "smollm2"
"""Beginning of the names of the files."""


def unpack_rows(raw: np.ndarray, bits: int) -> tuple[np.ndarray, ...]:
    """Return the parts of GGUF's blocks of 32 columns.

    Shapes: raw [rows, …].
    """
    blocks = raw.reshape(len(raw), -1, 20 if bits == 4 else 34)
    halves = np.ascontiguousarray(blocks[..., : 4 if bits == 4 else 2]).view(np.uint16)
    if bits == 8:
        return halves[..., 0], blocks[..., 2:]
    packed = blocks[..., 4:]
    return halves[..., 0], halves[..., 1], np.concatenate((packed & 15, packed >> 4), -1)


def panels(raw: np.ndarray, bits: int) -> bytes:
    """Return a matrix in the kernel's reading order: one block per panel of 8 rows and group.

    Shapes: raw [rows, …].
    """
    *halves, integers = unpack_rows(raw, bits)
    rows, groups, _ = integers.shape
    numbers = [half.reshape(-1, LANES, groups).transpose(0, 2, 1) for half in halves]
    columns = integers.reshape(-1, LANES, groups, GROUP).transpose(0, 2, 3, 1)
    if bits == 8:
        packed = columns.reshape(rows // LANES, groups, -1)
    else:
        vectors = columns.reshape(rows // LANES, groups, 8, 4 * LANES)
        packed = vectors[..., : 2 * LANES] | vectors[..., 2 * LANES :] << 4
        packed = packed.reshape(rows // LANES, groups, -1)
    parts = [np.ascontiguousarray(each).view(np.uint8) for each in numbers]
    return np.concatenate((*parts, packed.astype(np.uint8)), -1).tobytes()


class PackedFile:
    """Tensors one after another, each at a multiple of 16 bytes."""

    def __init__(self):
        self.data = bytearray()

    def add(self, content: bytes) -> int:
        """Append bytes and return their offset."""
        self.data += bytes(-len(self.data) % 16)
        offset = len(self.data)
        self.data += content
        return offset

    def vector(self, numbers: np.ndarray) -> dict:
        """Append a float32 vector and return its manifest entry."""
        content = numbers.astype(np.float32).tobytes()
        return {"offset": self.add(content), "rows": 1, "cols": len(numbers)}

    def matrix(self, raw: np.ndarray, bits: int) -> dict:
        """Append a matrix in groups and return its manifest entry.

        Shapes: raw [rows, …].
        """
        cols = raw.shape[1] // (20 if bits == 4 else 34) * GROUP
        offset = self.add(panels(raw, bits))
        return {"offset": offset, "rows": len(raw), "cols": cols, "bits": bits}


def add_target(file: PackedFile, reader) -> dict:
    """Append the model and return its manifest entry."""

    def field(name: str):
        return reader.fields[f"llama.{name}"].contents()

    raw = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
    heads, kv_heads = field("attention.head_count"), field("attention.head_count_kv")
    tensors = {
        "embedding": file.matrix(raw["token_embd.weight"], 8),
        "norm": file.vector(raw["output_norm.weight"]),
    }
    for layer in range(field("block_count")):
        names = f"blk.{layer}."
        rotated = [
            split_halves(torch.from_numpy(raw[f"{names}attn_{name}.weight"]), count).numpy()
            for name, count in (("q", heads), ("k", kv_heads))
        ]
        qkv = np.concatenate((*rotated, raw[f"{names}attn_v.weight"]))
        gate_up = np.concatenate([raw[f"{names}ffn_{name}.weight"] for name in ("gate", "up")])
        for name, matrix in (
            ("qkv", qkv),
            ("out", raw[f"{names}attn_output.weight"]),
            ("gate_up", gate_up),
            ("down", raw[f"{names}ffn_down.weight"]),
        ):
            tensors[f"blocks.{layer}.{name}"] = file.matrix(matrix, 4)
        for number, name in (("1", "attn"), ("2", "ffn")):
            tensors[f"blocks.{layer}.norm{number}"] = file.vector(raw[f"{names}{name}_norm.weight"])
    config = {
        "hidden": field("embedding_length"),
        "inner": field("feed_forward_length"),
        "layers": field("block_count"),
        "heads": heads,
        "kvHeads": kv_heads,
        "headSize": field("rope.dimension_count"),
        "vocab": field("vocab_size"),
        "theta": field("rope.freq_base"),
        "eps": round(field("attention.layer_norm_rms_epsilon"), 12),
        "tied": True,
    }
    return {"config": config, "tensors": tensors}


def add_head(file: PackedFile, path: Path, config: dict) -> dict:
    """Append the trained EAGLE-1 head and return its manifest entry."""
    names = {"fuse": "fuse"}
    names |= {f"blocks.0.{name}": f"block.{name}" for name in ("qkv", "out", "gate_up", "down")}
    _, stored = read_stored(path, str(path))
    tensors = {name: file.matrix(stored[f"{own}.weight"].numpy(), 8) for name, own in names.items()}
    tensors["blocks.0.norm2"] = file.vector(stored["block.norm2.weight"].float().numpy())
    ids = stored["ids"]
    own = {"layers": 1, "tied": False, "vocab": len(ids)}
    return {"config": config | own, "tensors": tensors, "ids": ids.tolist()}


def tokenizer_data(path: Path) -> dict:
    """Return pieces, merges and special tokens of a byte-level BPE."""
    data = json.loads(path.read_text("utf-8"))
    vocabulary = data["model"]["vocab"]
    return {
        "pieces": sorted(vocabulary, key=vocabulary.get),
        "merges": data["model"]["merges"],
        "special": {token["content"]: token["id"] for token in data["added_tokens"]},
    }


def chat_parts(folder: Path) -> dict[str, str]:
    """Return what the chat template writes before and after a question."""
    question = "QUESTION"
    text = load_tokenizer(folder).apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
    )
    before, after = str(text).split(question)
    return {"before": before, "after": after}


def export(folder: Path, head: Path) -> tuple[bytes, dict]:
    """Return the file's bytes and the manifest, without the names of the shards."""
    file = PackedFile()
    target = add_target(file, _extras.load("gguf").GGUFReader(folder / GGUF))
    models = {"target": target, "head": add_head(file, head, target["config"])}
    manifest = {
        "about": ABOUT,
        "chat": chat_parts(folder),
        "stop": STOP,
        "models": models,
        "tokenizer": tokenizer_data(folder / "tokenizer.json") | {"digits": True},
    }
    return bytes(file.data), manifest


def write(folder: Path, report: Callable[[str], None] = print) -> dict | None:
    """Write the shards and the manifest, and return what the page must know before it loads them.

    The page checks the manifest by its hash, and each shard by its hash in the manifest.
    """
    try:
        source = smollm2_folder()
    except (ConnectionError, ValueError, OSError) as error:
        report(f"the live page has no SmolLM2: {error}")
        return None
    data, manifest = export(source, SHIPPED / "eagle1" / "smollm2" / FILE)
    shards = []
    for number, start in enumerate(range(0, len(data), SHARD)):
        part, name = data[start : start + SHARD], f"{FILES}-{number}.bin"
        (folder / name).write_bytes(part)
        shards.append(
            {"name": name, "bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()}
        )
    content = json.dumps(manifest | {"bytes": len(data), "shards": shards}).encode()
    (folder / f"{FILES}.json").write_bytes(content)
    published = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return {"bytes": len(data), "manifest": published}
