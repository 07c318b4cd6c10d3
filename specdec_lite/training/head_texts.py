"""The texts that heads are trained and evaluated on: written by the target itself, in batches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import SHIPPED as PAIR
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.training.loop import Plan, draw_windows, train
from specdec_lite.training.medusa_evaluation import calibration_prompts
from specdec_lite.training.own_text import own_text
from specdec_lite.training.smollm2_text import plan_batches, read_answers
from specdec_lite.training.token_streams import prepare

PAIR_TEXTS = 2048
"""Number of training texts of the shipped pair."""


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
    """Return SmolLM2's answers to chat prompts, as many as exist."""
    folder = cache_folder() / "smollm2-own-text"
    texts: dict[bool, list[Sample]] = {False: [], True: []}
    for text in read_answers(folder, plan_batches(folder, tokenizer)):
        sample = Sample(text.ids, text.start, text.kind, text.temperature)
        texts[text.held_out].append(sample)
    return Texts(texts[False][:count], texts[True])


def pair_texts(
    target: CausalLM,
    tokenizer,
    work: Path,
    count: int | None = None,
    prompt: int = 64,
    new: int = 128,
) -> Texts:
    """Return texts that the shipped target continued, half of them greedily, half at temperature 1.

    The prompts of the training texts are pieces of the target's training text; those of the
    held-out texts are from documents that it was not trained on.
    """
    _, streams = prepare(work, PAIR)
    rng = np.random.default_rng(0)
    prompts = draw_windows(streams, rng, count or PAIR_TEXTS, prompt)[1]
    held_out_prompts = calibration_prompts(tokenizer)[:64]
    training: list[Sample] = []
    held_out: list[Sample] = []
    for seed, temperature in enumerate((0.0, 1.0)):
        for samples, rows in ((training, prompts[seed::2]), (held_out, held_out_prompts)):
            texts = own_text(target, list(rows), new, work / "own-text", 256, temperature, seed)
            samples.extend(Sample(ids, rows.shape[1], "text", temperature) for ids in texts)
    return Texts(training, held_out)


def batch_by_length(
    texts: Sequence[Sample], size: int, padding: int
) -> list[tuple[Tensor, Tensor]]:
    """Group texts of similar length into padded batches."""
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


def most_frequent_tokens(texts: Sequence[Sample], count: int, vocab_size: int) -> Tensor:
    """Return the ids that the target wrote most often, the most frequent first."""
    written = torch.cat([text.ids[text.start :] for text in texts])
    counts = torch.bincount(written, minlength=vocab_size)
    return counts.topk(min(count, vocab_size)).indices


def batch_order(count: int, steps: int, seed: int = 0) -> list[int]:
    """Return the number of the batch of every step: a new random order per epoch."""
    rng = np.random.default_rng(seed)
    return [int(i) for _ in range(-(-steps // count)) for i in rng.permutation(count)][:steps]


def train_on_batches(
    head: nn.Module, loss: Callable[[Tensor], Tensor], count: int, plan: Plan, path: Path
) -> float:
    """Train with a loss of [step, number of its batch]; return the seconds, earlier runs too."""
    numbers = batch_order(count, plan.steps)

    def source(first: int) -> Iterator[Tensor]:
        return (torch.tensor([step, numbers[step]]) for step in range(first, plan.steps))

    return train(head, loss, {"batches": numbers}, plan, path, source=source)
