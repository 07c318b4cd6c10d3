"""Pieces of text: reading returns what was written, and incomplete files are rejected."""

import json
import lzma

import pytest
import torch

from specdec_lite.training import packed_text
from specdec_lite.training.packed_text import FORMAT, Text, read_piece, read_pieces, write_piece

ABOUT = {"model": "a model", "dtype": "torch.float32"}


def some_texts(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        Text(
            kind,
            held_out,
            temperature,
            1 + number % 4,
            torch.randint(65536, (5 + number,), generator=generator),
        )
        for number, (kind, held_out, temperature) in zip(
            range(count), [("code", False, 0.0), ("story", True, 0.7), ("json", False, 1.0)] * count
        )
    ]


def same(ours, theirs):
    return len(ours) == len(theirs) and all(
        (a.kind, a.held_out, a.temperature, a.start) == (b.kind, b.held_out, b.temperature, b.start)
        and a.ids.dtype == b.ids.dtype == torch.int64
        and a.ids.equal(b.ids)
        for a, b in zip(ours, theirs)
    )


def test_pieces_are_numbered_and_read_in_their_order(tmp_path):
    folder = tmp_path / "text"
    assert read_pieces(folder) == []
    parts = [some_texts(5), some_texts(1, 1), some_texts(9, 2)]
    paths = [write_piece(folder, part, ABOUT) for part in parts]
    assert [path.name for path in paths] == ["00000.xz", "00001.xz", "00002.xz"]
    assert sorted(folder.iterdir()) == paths, "nothing unfinished is left"
    assert same(read_pieces(folder), sum(parts, []))
    paths[1].unlink()
    assert write_piece(folder, parts[1], ABOUT).name == "00003.xz", "no piece is overwritten"
    assert same(read_pieces(folder), parts[0] + parts[2] + parts[1])


def test_a_text_returns_its_prompt():
    text = Text("code", False, 0.7, 2, torch.tensor([5, 6, 7]))
    assert text.prompt() == (0.7, (5, 6))


def test_a_piece_can_be_read_without_this_code(tmp_path):
    texts = some_texts(3)
    line, _, ids = lzma.decompress(write_piece(tmp_path, texts, ABOUT).read_bytes()).partition(
        b"\n"
    )
    header = json.loads(line)
    assert header["format"] == FORMAT and ABOUT.items() <= header.items()
    assert dict(zip(header["fields"], header["texts"][1])) == {
        "kind": "story",
        "held_out": True,
        "temperature": 0.7,
        "start": 2,
        "length": 6,
    }
    low, high = ids[0::2], ids[1::2]
    every = [number for text in texts for number in text.ids.tolist()]
    assert [a + 256 * b for a, b in zip(low, high, strict=True)] == every


def test_ids_of_more_than_16_bits_are_rejected(tmp_path):
    for wrong in (65536, -1):
        text = Text("code", False, 0.0, 1, torch.tensor([3, wrong]))
        with pytest.raises(ValueError, match=f"{wrong}.*must be 0 … 65535"):
            write_piece(tmp_path, [text], ABOUT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-7],
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"no piece",
        lambda data: lzma.compress(lzma.decompress(data)[:-2]),
        lambda data: lzma.compress(lzma.decompress(data)[:-1]),
        lambda data: lzma.compress(lzma.decompress(data) + b"\0\0"),
        lambda data: lzma.compress(lzma.decompress(data).replace(b'"start"', b'"begin"')),
        lambda data: lzma.compress(b"[]\n"),
    ],
)
def test_incomplete_pieces_are_rejected_in_one_line(tmp_path, spoil):
    path = write_piece(tmp_path, some_texts(4), ABOUT)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match="00000.xz: ") as error:
        read_pieces(tmp_path)
    assert "\n" not in str(error.value)


def test_a_piece_of_another_version_is_rejected(tmp_path):
    path = write_piece(tmp_path, some_texts(4), ABOUT)
    data = lzma.decompress(path.read_bytes())
    path.write_bytes(lzma.compress(data.replace(b"answers 1", b"answers 2")))
    with pytest.raises(ValueError, match="answers 2'"):
        read_piece(path)


def test_a_piece_that_unpacks_to_more_than_any_text_is_refused(tmp_path, monkeypatch):
    """A hundred kilobytes can unpack to hundreds of megabytes of zeros."""
    monkeypatch.setattr(packed_text, "MOST_BYTES", 1_000_000)
    path = write_piece(tmp_path, some_texts(2), ABOUT)
    line = lzma.decompress(path.read_bytes()).partition(b"\n")[0]
    path.write_bytes(lzma.compress(line + b"\n" + bytes(30_000_000)))
    assert path.stat().st_size < 10_000
    with pytest.raises(ValueError, match="holds more than 1000000 bytes"):
        read_piece(path)
