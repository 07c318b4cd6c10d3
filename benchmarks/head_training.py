"""Compare recipes and texts for SmolLM2's EAGLE heads under one budget of processor seconds.

    python -m benchmarks run head-training-smollm2                 # an hour on one core
    python -m benchmarks run head-training-smollm2 --seconds 1800  # half an hour per head

Every part trains one head from the same initial weights for the same processor seconds, and
evaluates it on the same held-out answers. So a recipe that costs more per token sees fewer tokens.
The parts differ from the first one in one respect: the loss, the number of unrolled passes, the
states that the head reads, its vocabulary, its learning rate, or its text. The target's states are
computed in advance and are not part of the budget; `texts` states what each kind of text costs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite import CausalLM, load_smollm2
from specdec_lite.drafters.eagle.feature_head import FeatureHead
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.measure.intervals import ratio
from specdec_lite.texts.corpus import training_text
from specdec_lite.training import eagle
from specdec_lite.training.features import Features
from specdec_lite.training.head_texts import (
    Sample,
    batch_by_length,
    endless_batches,
    most_frequent_tokens,
    smollm2_texts,
)
from specdec_lite.training.loop import DECAY_FROM, Plan, one_step, optimizers
from specdec_lite.training.unroll import Recipe, acceptance_by_depth, unrolled_loss

from .experiment import Experiment

ANSWERS, DOCUMENTATION, SOURCES = "answers", "documentation", "sources"
WINDOW = 256
"""Tokens of a piece of text that the target reads."""
UNREAD = 16
"""First tokens of such a piece, whose predictions do not count."""
GAMMA = 3
WARMUP = 0.05


@dataclass(frozen=True, slots=True)
class Arm:
    """How one head is trained.

    Attributes:
        version: key of `eagle.KINDS`.
        recipe: the loss.
        vocabulary: size of the draft vocabulary.
        rate: peak learning rate.
        decay_from: fraction of the budget after which the learning rate falls to zero.
        autocast: whether products are computed in bfloat16, where the processor supports it.
        texts: the kinds of text, in equal parts.
        share: part of the answers that the head may see.
        budget: part of the seconds that it trains.
    """

    version: str = "1"
    recipe: Recipe = Recipe(feature=1.0, distillation=0.1, steps=3, late=0.7)
    vocabulary: int = 12_000
    rate: float = 1e-3
    decay_from: float = DECAY_FROM
    autocast: bool = True
    texts: tuple[str, ...] = (ANSWERS,)
    share: float = 1.0
    budget: float = 1.0


FIRST = Arm()
FREE = Recipe(distillation=1.0, steps=3, late=0.7)
ARMS = {
    "EAGLE-1": FIRST,
    "no feature loss": replace(FIRST, recipe=FREE),
    "one pass": replace(FIRST, recipe=replace(FIRST.recipe, steps=1)),
    "five passes": replace(FIRST, recipe=replace(FIRST.recipe, steps=5)),
    "unrolled from the start": replace(FIRST, recipe=replace(FIRST.recipe, late=0.0)),
    "three layers": replace(FIRST, version="3", recipe=FREE),
    "vocabulary 4,096": replace(FIRST, vocabulary=4096),
    "vocabulary 8,192": replace(FIRST, vocabulary=8192),
    "rate 0.0003": replace(FIRST, rate=3e-4),
    "rate 0.003": replace(FIRST, rate=3e-3),
    "linear decay": replace(FIRST, decay_from=0.0),
    "float32": replace(FIRST, autocast=False),
    "reads documentation": replace(FIRST, texts=(DOCUMENTATION,)),
    "reads sources": replace(FIRST, texts=(SOURCES,)),
    "answers and documentation": replace(FIRST, texts=(ANSWERS, DOCUMENTATION)),
    "a third of the time": replace(FIRST, budget=1 / 3),
    "three times the time": replace(FIRST, budget=3.0),
    "a quarter of the answers": replace(FIRST, share=0.25),
}


def pieces(texts: Sequence[str], tokenizer, count: int, kind: str) -> list[Sample]:
    """Return pieces of documents, as texts that the target reads."""
    found: list[Sample] = []
    for text in texts[:: max(1, len(texts) // count)]:
        ids = torch.tensor(tokenizer.encode(text))
        found += [Sample(part, UNREAD, kind) for part in ids.split(WINDOW)[:4] if len(part) > 64]
    return found[:count]


def train_for(
    head: FeatureHead,
    loss: Callable[[int, int, float], Tensor],
    count: int,
    arm: Arm,
    seconds: float,
) -> tuple[list[int], float]:
    """Train a head for some processor seconds."""
    chosen = optimizers(head, Plan(1, arm.rate, weight_decay=0.0))
    used: list[int] = []
    began = time.process_time()
    for step, batch in enumerate(endless_batches(count)):
        spent = (time.process_time() - began) / seconds
        if spent >= 1:
            break
        rate = arm.rate * min(1.0, spent / WARMUP + 0.05, (1 - spent) / (1 - arm.decay_from))
        row = torch.tensor([step, batch])
        one_step(head, lambda row, spent=spent: loss(*row.tolist(), spent), row, chosen, rate)
        used.append(batch)
    head.eval()
    return used, time.process_time() - began


def accepted(
    head: FeatureHead, target: CausalLM, texts: Sequence[Sample], gamma: int = GAMMA
) -> dict[str, list[float]]:
    """Return what a head drafts correctly after each prefix of greedy texts, as sums by text."""
    sums: dict[str, list[float]] = {"positions": [], "agrees": [], "accepted": []}
    for text in texts:
        [(tokens, counted)] = batch_by_length([text], 1, gamma + 1)
        rows = acceptance_by_depth(head, target, tokens, counted, gamma)
        last = min(int(row["row"].max()) for row in rows)
        # A row counts if the text has all γ tokens after it, so that depths are comparable.
        starts = [row["row"] for row in rows]
        common = starts[0][(starts[0] >= int(starts[-1].min())) & (starts[0] <= last)]
        agrees = [
            row["agrees"][(row["row"] >= common[0]) & (row["row"] <= common[-1])] for row in rows
        ]
        runs = torch.stack(agrees).int().cumprod(0).sum(0)
        sums["positions"].append(len(common))
        sums["agrees"].append(int(agrees[0].sum()))
        sums["accepted"].append(int(runs.sum()))
    return sums


def rates(sums: dict[str, list[float]]) -> dict:
    """Return agreement and accepted tokens per round with 95 % intervals over texts."""
    column = lambda name: [[value] for value in sums[name]]
    return {name: ratio(column(name), column("positions")) for name in ("agrees", "accepted")}


class HeadTraining(Experiment):
    """The recording of all arms. Its first part is what the texts cost."""

    name = "head-training-smollm2"
    what = "EAGLE heads for SmolLM2 after equal processor time, by recipe and by text"
    time = "an hour"
    quick = (
        "--seconds 1 --held-out 2 --train 16 --read 16 --cache .work/quick-head-training"
        " --arms EAGLE-1"
    ).split() + ["reads documentation"]
    unrelated = ("cache", "arms")

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--seconds", type=float, default=90, help="processor seconds per head")
        parser.add_argument("--held-out", type=int, default=8, help="held-out answers per kind")
        parser.add_argument("--train", type=int, help="number of answers to train on, at most")
        parser.add_argument("--read", type=int, default=512, help="pieces per kind of read text")
        parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
        parser.add_argument("--cache", type=Path, default=cache_folder() / "head-training")

    def check(self):
        if self.options.seconds <= 0:
            raise ValueError(f"--seconds {self.options.seconds}: must be above 0")
        if "EAGLE-1" not in self.options.arms:
            raise ValueError("--arms: must contain EAGLE-1, with which the others are compared")

    def parts(self):
        return ["texts", *self.options.arms]

    @cached_property
    def model(self):
        """SmolLM2 in bfloat16, which is not trained, and its tokenizer."""
        target, tokenizer = load_smollm2("cpu", "bfloat16")
        target.model.requires_grad_(False)
        return target, tokenizer

    @cached_property
    def texts(self):
        """The target's answers, to train on and held out."""
        return smollm2_texts(*self.model, self.options.cache, self.options.train)

    @cached_property
    def held_out(self) -> list[Sample]:
        """Greedy held-out answers, equally many of every kind."""
        greedy = [text for text in self.texts.held_out if text.temperature == 0]
        kinds = dict.fromkeys(text.kind for text in greedy)
        by_kind = [[text for text in greedy if text.kind == kind] for kind in kinds]
        long = [[text for text in each if len(text.ids) > text.start + 8] for each in by_kind]
        return [text for each in long for text in each[: self.options.held_out]]

    @cached_property
    def read(self) -> dict[str, list[Sample]]:
        """The texts to train on, by kind."""
        documents, tokenizer = training_text(), self.model[1]
        count = self.options.read
        return {
            ANSWERS: self.texts.training,
            DOCUMENTATION: pieces(documents["docs"], tokenizer, count, DOCUMENTATION),
            SOURCES: pieces(documents["library"], tokenizer, count, SOURCES),
        }

    @cached_property
    def features(self) -> Features:
        """The target's states, stored once for every arm."""
        target = self.model[0]
        layers = tuple(
            dict.fromkeys((*eagle.Eagle3Head.default_layers(target.num_layers), "final"))
        )
        return Features(target, self.options.cache / "features", layers)

    def batches(self, kind: str, share: float = 1.0) -> list[tuple[Tensor, Tensor]]:
        """Return the batches of one kind of text."""
        texts = self.read[kind]
        return batch_by_length(texts[: max(1, round(share * len(texts)))], 8, eagle.DEPTHS + 2)

    def costs(self) -> dict:
        """Compute the states of all texts, and return tokens and processor seconds per kind."""
        costs = {}
        for kind in self.read:
            data = self.batches(kind)
            began = time.process_time()
            for tokens, _ in data:
                self.features(tokens)
            costs[kind] = {
                "texts": len(self.read[kind]),
                "tokens": sum(int(counted.sum()) for _, counted in data),
                "seconds": time.process_time() - began,
            }
        return costs

    def run(self, part):
        return self.costs() if part == "texts" else self.train(ARMS[part])

    def train(self, arm: Arm) -> dict:
        """Train one head and return its rates on the held-out answers."""
        target = self.model[0]
        data = [batch for kind in arm.texts for batch in self.batches(kind, arm.share)]
        ids = most_frequent_tokens(self.texts.training, arm.vocabulary, target.vocab_size)
        head = eagle.initialize_head(eagle.KINDS[arm.version].for_target(target, ids), target)

        def loss(step: int, batch: int, spent: float) -> Tensor:
            tokens, counted = data[batch]
            stored = self.features(tokens)
            states = {layer: stored[layer].float() for layer in {*head.layers, "final"}}
            steps = arm.recipe.steps if spent >= arm.recipe.late else 1
            with torch.autocast("cpu", torch.bfloat16, enabled=arm.autocast):
                return unrolled_loss(head, target, tokens, states, counted, arm.recipe, steps)

        used, seconds = train_for(head, loss, len(data), arm, arm.budget * self.options.seconds)
        head.requires_grad_(False).bfloat16()
        sums = accepted(head, target, self.held_out)
        return {
            "seconds": seconds,
            "steps": len(used),
            "tokens": sum(int(data[batch][1].sum()) for batch in used),
            "distinct": sum(int(data[batch][1].sum()) for batch in set(used)),
            "parameters": sum(weight.numel() for weight in head.parameters()),
            **rates(sums),
            "texts": sums,
        }

    def summarise(self, rows):
        texts = rows["texts"]
        arms = {name: dict(row) for name, row in rows.items() if name != "texts"}
        first = arms["EAGLE-1"]["texts"]
        for row in arms.values():
            sums = row.pop("texts")
            row["gain"] = {
                name: ratio(
                    [[mine - other] for mine, other in zip(sums[name], first[name])],
                    [[value] for value in first["positions"]],
                )
                for name in ("agrees", "accepted")
            }
        return {
            "target": fingerprint(self.model[0]),
            "budget": self.options.seconds,
            "gamma": GAMMA,
            "held_out": len(self.held_out),
            "texts": texts,
            "arms": arms,
        }

    def restore(self, data):
        return {}  # the recording has no sums by text
