"""Answers of a model in compact files, which a repository can hold while the text grows.

A file, called a piece, is one xz stream: a line of JSON that describes it and lists its answers,
then the ids of all answers, 16 bits each, low byte first.
"""

import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specdec_lite.loading.files import written_whole

FORMAT = "specdec-lite answers 1"
IDS = np.dtype("<u2")
MOST_BYTES = 1 << 28
"""The most bytes of a piece that is unpacked; the book's own have a tenth of them."""
FIELDS = ("kind", "held_out", "temperature", "start", "length")
"""What a piece lists for every answer; length is the number of ids."""
LISTS = ("fields", "texts")
"""Keys of that list."""


@dataclass(frozen=True, slots=True)
class Text:
    """One answer, with its prompt.

    Attributes:
        kind: kind of the prompt.
        held_out: whether the prompt is held out from training.
        temperature: temperature of the model when it answered.
        start: position of the first token of the answer.
        ids: [n] tokens of prompt and answer.
    """

    kind: str
    held_out: bool
    temperature: float
    start: int
    ids: Tensor

    def prompt(self) -> tuple[float, tuple[int, ...]]:
        """Return (temperature, ids of the prompt), which identify the answer."""
        return self.temperature, tuple(self.ids[: self.start].tolist())


def write_piece(folder: Path, texts: Sequence[Text], about: dict[str, str]) -> Path:
    """Write the next piece of a folder, completely or not at all, and return its path."""
    ids = torch.cat([text.ids for text in texts])
    if int(ids.min()) < 0 or int(ids.max()) > 0xFFFF:
        raise ValueError(f"texts: contain ids from {ids.min()} to {ids.max()}, must be 0 … 65535")
    rows = [
        [text.kind, text.held_out, text.temperature, text.start, len(text.ids)] for text in texts
    ]
    header = {"format": FORMAT, **about, "fields": FIELDS, "texts": rows}
    line = json.dumps(header, separators=(",", ":")) + "\n"
    number = max((int(path.stem) + 1 for path in piece_paths(folder)), default=0)
    path = folder / f"{number:05d}.xz"
    with written_whole(path) as unfinished:
        unfinished.write_bytes(
            lzma.compress(line.encode() + ids.numpy().astype(IDS).tobytes(), preset=9)
        )
    return path


def piece_paths(folder: Path) -> list[Path]:
    """Return the pieces of a folder in their order; none if the folder does not exist."""
    return sorted(folder.glob("[0-9]" * 5 + ".xz"))


def read_piece(path: Path) -> list[Text]:
    """Return the answers of one piece."""
    try:
        line, _, body = unpacked(path.read_bytes()).partition(b"\n")
        header = json.loads(line)
        version = header["format"]
        if version != FORMAT:
            raise ValueError(f"its format is {version!r}, must be {FORMAT!r}")
        ids = torch.from_numpy(np.frombuffer(body, IDS).astype(np.int64))
        rows = [dict(zip(header["fields"], row, strict=True)) for row in header["texts"]]
        parts = ids.split([row.pop("length") for row in rows])
        return [Text(**row, ids=part) for row, part in zip(rows, parts, strict=True)]
    except (lzma.LZMAError, EOFError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path}: is not a complete piece of text: {error}") from None


def unpacked(data: bytes) -> bytes:
    """Return what an xz stream holds, unless it ends early or holds absurdly much."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    content = stream.decompress(data, MOST_BYTES)
    if not stream.eof:
        raise ValueError(f"it ends early, or holds more than {MOST_BYTES} bytes")
    return content


def read_pieces(folder: Path) -> list[Text]:
    """Return the answers of all pieces in a folder, in their order."""
    return [text for path in piece_paths(folder) for text in read_piece(path)]
