"""The texts that heads are trained and evaluated on: written by the target itself, in batches.

SmolLM2's answers are files of the repository, called pieces. `training_text/smollm2/README.md` names
the commit whose command writes more of them.
"""

import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import SHIPPED as PAIR
from specdec_lite.texts.corpus import DOMAINS, evaluation_prompts, held_out_text, make_prompts
from specdec_lite.training.loop import draw_windows
from specdec_lite.training.own_text import own_text
from specdec_lite.training.token_streams import prepare

PIECES = Path("training_text/smollm2")
"""Folder of SmolLM2's answers, relative to the repository's root."""
STREAM_PROMPTS, STREAM_TEXTS = 512, 256
"""Prompts that are drawn for the stream of the pair's own text, and how many of them are used."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One text that the target continued.

    Attributes:
        ids: [n] tokens, prompt included.
        start: position of the first token that the target wrote.
        kind: kind of prompt.
        temperature: temperature of the target when it wrote.
    """

    ids: Tensor
    start: int
    kind: str = "text"
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of one target.

    Attributes:
        training: texts to train on.
        held_out: texts to evaluate on.
    """

    training: list[Sample]
    held_out: list[Sample]


def smollm2_texts(target: CausalLM, tokenizer, work: Path, count: int | None = None) -> Texts:
    """Return SmolLM2's answers to chat prompts, as many as `PIECES` holds."""
    texts: dict[bool, list[Sample]] = {False: [], True: []}
    for piece in sorted(PIECES.glob("*.xz")):
        for held_out, sample in read_piece(piece):
            texts[held_out].append(sample)
    if not texts[False]:
        raise ValueError(f"{PIECES}: holds no text to train on; its README says how it is written")
    return Texts(texts[False][:count], texts[True])


def read_piece(path: Path) -> list[tuple[bool, Sample]]:
    """Return the answers of a piece, each with whether its prompt is held out from training.

    A piece is one xz stream: a line of JSON that lists the answers, then all ids, 16 bits each.
    """
    line, _, body = lzma.decompress(path.read_bytes()).partition(b"\n")
    header = json.loads(line)
    rows = [dict(zip(header["fields"], row)) for row in header["texts"]]
    ids = torch.from_numpy(np.frombuffer(body, "<u2").astype(np.int64))
    return [
        (row["held_out"], Sample(part, row["start"], row["kind"], row["temperature"]))
        for row, part in zip(rows, ids.split([row["length"] for row in rows]), strict=True)
    ]


def pair_texts(
    target: CausalLM, tokenizer, work: Path, count: int, prompt: int = 64, new: int = 128
) -> Texts:
    """Return texts that the shipped target continued, half of them greedily, half at temperature 1.

    The prompts of the training texts are pieces of the target's training text; those of the
    held-out texts are from documents that it was not trained on.
    """
    _, streams = prepare(work, PAIR)
    prompts = draw_windows(streams, np.random.default_rng(0), count, prompt)[1]
    held_out_prompts = calibration_prompts(tokenizer)[:64]
    training: list[Sample] = []
    held_out: list[Sample] = []
    for seed, temperature in enumerate((0.0, 1.0)):
        for samples, rows in ((training, prompts[seed::2]), (held_out, held_out_prompts)):
            texts = own_text(target, list(rows), new, work / "own-text", 256, temperature, seed)
            samples.extend(Sample(ids, rows.shape[1], "text", temperature) for ids in texts)
    return Texts(training, held_out)


def calibration_prompts(tokenizer) -> Tensor:
    """Return prompts [B, 96] from the held-out documents, without the evaluation prompts."""
    evaluated = {item["text"] for items in evaluation_prompts().values() for item in items}
    texts = dict.fromkeys(
        item["text"]
        for items in make_prompts(each=40).values()
        for item in items
        if item["text"] not in evaluated
    )
    rows = [tokenizer.encode(text)[:96] for text in texts]
    return torch.tensor([row for row in rows if len(row) == 96])


def held_out_rows(tokenizer) -> Tensor:
    """Return the held-out text [B, 256] in windows that do not overlap."""
    texts = [
        torch.tensor(tokenizer.encode(text))
        for domain in DOMAINS
        for text in held_out_text()[domain]
    ]
    return torch.cat([text[: len(text) // 256 * 256].view(-1, 256) for text in texts])


def own_stream(target: CausalLM, work: Path) -> dict[str, np.ndarray]:
    """Return the target's continuations at temperature 1 of its training text, as one stream."""
    _, streams = prepare(work, PAIR)
    prompts = draw_windows(streams, np.random.default_rng(9), STREAM_PROMPTS, 64)[1]
    texts = own_text(target, list(prompts[:STREAM_TEXTS]), 192, work / "own", 64, 1.0)
    return {"library": torch.cat(texts).numpy().astype(np.uint16)}


def batch_by_length(
    texts: Sequence[Sample], size: int, padding: int
) -> list[tuple[Tensor, Tensor]]:
    """Group texts of similar length into padded batches of tokens and of which tokens count."""
    ordered = sorted(texts, key=lambda text: len(text.ids))
    batches = []
    for first in range(0, len(ordered), size):
        part = ordered[first : first + size]
        length = len(part[-1].ids) + padding
        tokens = torch.stack([pad(text.ids, length) for text in part])
        positions = torch.arange(length)
        counted = [(positions >= text.start) & (positions < len(text.ids)) for text in part]
        batches.append((tokens, torch.stack(counted)))
    return batches


def pad(ids: Tensor, length: int) -> Tensor:
    """Return a text padded with its last token.

    Shapes: ids [n].
    """
    return torch.cat((ids, ids[-1:].expand(length - len(ids))))


def batch_order(count: int, steps: int) -> list[int]:
    """Return the number of the batch of every step: a new random order per epoch."""
    rng = np.random.default_rng(0)
    return [int(i) for _ in range(-(-steps // count)) for i in rng.permutation(count)][:steps]
