"""Train a draft on the target's distributions at the positions where its tokens were rejected."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.engine.models import CausalLM
from specdec_lite.transfer import upload


@dataclass(slots=True, eq=False)
class TrainingExamples:
    """What one generation recorded for training.

    Attributes:
        text: token ids [n].
        rows: the target's distributions [V] at temperature 1 at positions where a draft was
            rejected; the key is the number of tokens before the position.
    """

    text: Tensor
    rows: dict[int, Tensor] = field(default_factory=dict)


class OnlineTrainer:
    """Take one step of AdamW for every `every` texts.

    Args:
        model: model to train; its parameters have `requires_grad`.
        every: texts per step, ≥ 1.
        learning_rate: learning rate of the steps.

    Attributes:
        steps: number of steps taken so far.
    """

    def __init__(self, model: CausalLM, every: int, learning_rate: float):
        self.model = model
        self.every = every
        self.optimizer = torch.optim.AdamW(model.model.parameters(), learning_rate, weight_decay=0)
        self.waiting: list[TrainingExamples] = []
        self.steps = 0

    def add(self, examples: TrainingExamples) -> None:
        """Add the examples of one text. When there are enough texts, step on their mean loss."""
        self.waiting.append(examples)
        if len(self.waiting) < self.every:
            return
        useful = [each for each in self.waiting if each.rows]
        self.waiting = []
        if useful:
            torch.cat([self.losses(each) for each in useful]).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.steps += 1

    def losses(self, examples: TrainingExamples) -> Tensor:
        """Return the cross-entropy [positions] of the model's rows against the target's."""
        positions = list(examples.rows)
        out = self.model.model(upload(examples.text[None, : max(positions)], self.model.device))
        # Row i of a pass predicts token i + 1.
        logits = getattr(out, "logits", out)[0, [position - 1 for position in positions]]
        width = min(logits.shape[1], len(examples.rows[positions[0]]))
        rows = torch.stack([row[:width] for row in examples.rows.values()])
        return F.cross_entropy(logits[:, :width], rows.to(logits), reduction="none")
