"""One text, one set of stored states and one measure for heads of every kind, so that they compare.

What lives here: the text, training a head on it, its rates on what was held out. What does not:
what a head says behind an anchor (`anchored`), which heads there are (`heads`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from specdec_lite.drafters.feature_head import Eagle3Head
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import load_pair
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.training.anchored import acceptance, anchored_loss, spoken_of
from specdec_lite.training.eagle import (
    DEPTHS,
    Texts,
    batched,
    frequent,
    order,
    pair_texts,
    smollm2_texts,
)
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan, train

LAYERS = (1, 3, 5, "final")
ANCHORS = 32
DECAY = 0.8
BATCH = 8


def places(counted: Tensor, depths: int) -> Tensor:
    """The anchors of texts whose own words are `counted` [B, n]: in one of them all tokens after an
    anchor count.
    """
    anchors = torch.arange(1, counted.shape[1] - depths)
    return anchors[spoken_of(counted, anchors, depths).all(-1).any(0)]


def fit(
    head: nn.Module,
    target: CausalLM,
    data: Sequence[tuple[Tensor, Tensor]],
    features: Callable[[Tensor], dict],
    depths: int,
    plan: Plan,
    path: Path,
) -> float:
    """Train a head behind `ANCHORS` places of every text, drawn anew at every step: the seconds it
    took, earlier runs included.
    """
    turns = order(len(data), plan.steps)

    def source(first: int):
        return (torch.tensor([step, turns[step]]) for step in range(first, plan.steps))

    def of_step(row: Tensor) -> Tensor:
        step, turn = row.tolist()
        tokens, counted = data[turn]
        states = {layer: rows.float() for layer, rows in features(tokens).items()}
        drawn = torch.Generator().manual_seed(step)
        some = places(counted, depths)
        anchors = some[torch.randperm(len(some), generator=drawn)[:ANCHORS]].sort().values
        return anchored_loss(head, target, tokens, states, anchors, depths, DECAY, counted)

    return train(head, of_step, {"batches": turns}, plan, path, source=source)


@dataclass(frozen=True)
class Material:
    """What all heads are trained and judged with: target, draft, texts, and the states at them.

    room: places behind the last token of every text.
    """

    target: CausalLM
    draft: CausalLM | None
    texts: Texts
    features: Features
    room: int = 0

    @classmethod
    def gather(cls, work: Path, count: int) -> "Material":
        """The shipped pair, `count` texts of its target's own, and where their states are kept."""
        pair = load_pair(dtype="float32")
        pair.target.model.requires_grad_(False)
        texts = pair_texts(pair.target, pair.tokenizer, work, count)
        return cls(pair.target, pair.draft, texts, Features(pair.target, work / "features", LAYERS))

    @classmethod
    def smollm2(cls, work: Path, count: int | None) -> "Material":
        """SmolLM2 and its own text, `count` answers at most, in the batches and with the layers of
        `training eagle`: where that was trained in the same folder, all states are stored.
        """
        target, tokenizer = load_smollm2("cpu", "bfloat16")
        target.model.requires_grad_(False)
        texts = smollm2_texts(target, tokenizer, work, count)
        layers = tuple(dict.fromkeys((*Eagle3Head.reads(target.num_layers), "final")))
        return cls(target, None, texts, Features(target, work / "features", layers), DEPTHS + 1)

    def frequent(self, count: int) -> Tensor:
        """The tokens [count] that the target writes most often, in rising order."""
        return frequent(self.texts.training, count, self.target.vocab_size).sort().values

    def learn(self, head: nn.Module, depths: int, epochs: float, rate: float, path: Path) -> dict:
        """Train a head on the texts and judge it on those held out: steps, seconds, rates by depth."""
        data = batched(self.texts.training, BATCH, self.room)
        steps = max(1, round(epochs * len(data)))
        plan = Plan(steps, rate, BATCH, warmup=max(1, steps // 20), weight_decay=0.0)
        seconds = fit(head, self.target, data, self.features, depths, plan, path)
        head.requires_grad_(False)
        return {"steps": steps, "seconds": seconds, "held_out": self.judge(head, depths)}

    def judge(self, head: nn.Module, depths: int) -> dict[str, dict]:
        """Rates by depth on the texts held out: the mean over texts and its standard error."""
        table = {}
        for name, temperature in (("alpha", 1.0), ("agrees", 0.0)):
            rows = self.by_text(head, depths, temperature)
            error = rows.std(0) / len(rows) ** 0.5
            table[name] = {"mean": rows.mean(0).tolist(), "error": error.tolist()}
        return table

    def by_text(
        self, head: nn.Module | CausalLM, depths: int, temperature: float, every: int = 3
    ) -> Tensor:
        """[texts, K]: behind every third token of the held-out texts of this temperature, α at
        temperature 1 where they were sampled, agreement where they are greedy.
        """
        name = "alpha" if temperature else "agrees"
        chosen = [text for text in self.texts.held_out if text.temperature == temperature]
        found = []
        for tokens, counted in batched(chosen, BATCH, self.room):
            anchors = places(counted, depths)[::every]
            states = self.features(tokens)
            with torch.autocast("cpu", torch.bfloat16, self.target.dtype == torch.bfloat16):
                each = acceptance(head, self.target, tokens, states, anchors, depths)[name]
            ours = spoken_of(counted, anchors, depths).all(-1, keepdim=True)
            found.append(((each * ours).sum(1) / ours.sum(1))[ours.any(1)[:, 0]])
        return torch.cat(found).double()
