"""A trainer for heads of every kind: same texts, same hidden states, same loss and same measure.

Heads that are trained this way can be compared with each other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from specdec_lite.drafters.eagle_head import Eagle3Head
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.memory import has_bfloat16
from specdec_lite.loading.pairs import load_pair
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.training.anchors import anchor_acceptance, anchor_loss, counted_predictions
from specdec_lite.training.eagle import DEPTHS
from specdec_lite.training.features import Features
from specdec_lite.training.head_texts import (
    Texts,
    batch_by_length,
    most_frequent_tokens,
    pair_texts,
    smollm2_texts,
    train_on_batches,
)
from specdec_lite.training.loop import Plan

LAYERS = (1, 3, 5, "final")
ANCHORS = 32
DECAY = 0.8
BATCH = 8


def usable_anchors(counted: Tensor, depths: int) -> Tensor:
    """Return the anchors after which, in at least one text, all predicted tokens count.

    Shapes: counted [B, n].
    """
    anchors = torch.arange(1, counted.shape[1] - depths, device=counted.device)
    return anchors[counted_predictions(counted, anchors, depths).all(-1).any(0)]


def fit(
    head: nn.Module,
    target: CausalLM,
    data: Sequence[tuple[Tensor, Tensor]],
    features: Callable[[Tensor], dict],
    depths: int,
    plan: Plan,
    path: Path,
) -> float:
    """Train a head after random anchors, new ones at every step, and return the seconds.

    Shapes: features [B, n].
    """

    def loss(row: Tensor) -> Tensor:
        step, number = row.tolist()
        tokens, counted = (part.to(target.device) for part in data[number])
        states = {layer: rows.float() for layer, rows in features(tokens).items()}
        generator = torch.Generator().manual_seed(step)
        usable = usable_anchors(counted, depths)
        order = torch.randperm(len(usable), generator=generator)
        anchors = usable[order[:ANCHORS].to(usable.device)].sort().values
        return anchor_loss(head, target, tokens, states, anchors, depths, DECAY, counted)

    return train_on_batches(head, loss, len(data), plan, path)


@dataclass(frozen=True)
class HeadTrainer:
    """What all heads of one target are trained and evaluated with.

    Attributes:
        target: the heads' target, without gradients.
        draft: the draft of the shipped pair; None for other targets.
        texts: written by the target.
        features: tokens [B, n] → the target's hidden states by layer.
        padding: tokens to add to the longest text of a batch.
    """

    target: CausalLM
    draft: CausalLM | None
    texts: Texts
    features: Features
    padding: int = 0

    @classmethod
    def for_pair(cls, work: Path, count: int, device: str = "cpu") -> "HeadTrainer":
        """Return the trainer for the shipped pair."""
        pair = load_pair(device=device, dtype="float32")
        pair.target.model.requires_grad_(False)
        texts = pair_texts(pair.target, pair.tokenizer, work, count)
        return cls(pair.target, pair.draft, texts, Features(pair.target, work / "features", LAYERS))

    @classmethod
    def for_smollm2(cls, work: Path, count: int | None, device: str = "cpu") -> "HeadTrainer":
        """Return the trainer for SmolLM2, with the batches and layers of `training eagle`.

        If EAGLE was trained with the same folder, all hidden states are stored already.
        """
        dtype = "bfloat16" if has_bfloat16(device) else "float32"
        target, tokenizer = load_smollm2(device, dtype)
        target.model.requires_grad_(False)
        texts = smollm2_texts(target, tokenizer, work, count)
        layers = tuple(dict.fromkeys((*Eagle3Head.default_layers(target.num_layers), "final")))
        return cls(target, None, texts, Features(target, work / "features", layers), DEPTHS + 1)

    def most_frequent_tokens(self, count: int) -> Tensor:
        """Return the ids [count] that the target writes most often, in rising order."""
        ids = most_frequent_tokens(self.texts.training, count, self.target.vocab_size)
        return ids.sort().values

    def train(self, head: nn.Module, depths: int, epochs: float, rate: float, path: Path) -> dict:
        """Train a head on the training texts and evaluate it on the held-out texts."""
        data = batch_by_length(self.texts.training, BATCH, self.padding)
        steps = max(1, round(epochs * len(data)))
        plan = Plan(steps, rate, BATCH, warmup=max(1, steps // 20), weight_decay=0.0)
        seconds = fit(head, self.target, data, self.features, depths, plan, path)
        head.requires_grad_(False)
        return {"steps": steps, "seconds": seconds, "held_out": self.evaluate(head, depths)}

    def evaluate(self, head: nn.Module | CausalLM, depths: int) -> dict[str, dict]:
        """Return rates by depth on the held-out texts."""
        table = {}
        for name, temperature in (("alpha", 1.0), ("agrees", 0.0)):
            rows = self.rates_by_text(head, depths, temperature)
            error = rows.std(0) / len(rows) ** 0.5
            table[name] = {"mean": rows.mean(0).tolist(), "error": error.tolist()}
        return table

    def rates_by_text(
        self, head: nn.Module | CausalLM, depths: int, temperature: float, every: int = 3
    ) -> Tensor:
        """Return the rates [texts, depths] of the held-out texts of one temperature."""
        name = "alpha" if temperature else "agrees"
        chosen = [text for text in self.texts.held_out if text.temperature == temperature]
        rates = []
        for tokens, counted in batch_by_length(chosen, BATCH, self.padding):
            tokens, counted = tokens.to(self.target.device), counted.to(self.target.device)
            anchors = usable_anchors(counted, depths)[::every]
            states = self.features(tokens)
            kind = self.target.device.type
            with torch.autocast(kind, torch.bfloat16, self.target.dtype == torch.bfloat16):
                measures = anchor_acceptance(head, self.target, tokens, states, anchors, depths)
            usable = counted_predictions(counted, anchors, depths).all(-1, keepdim=True)
            means = (measures[name] * usable).sum(1) / usable.sum(1)
            rates.append(means[usable.any(1)[:, 0]])
        return torch.cat(rates).double().cpu()
