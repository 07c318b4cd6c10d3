"""What a draft can learn from having been refused: the target's law at that place, and steps on it.

What lives here: the notes of a generation, and steps on the notes of several. What does not: who
takes the notes, and when (`online`).
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.engine.models import CausalLM


@dataclass(slots=True, eq=False)
class Notes:
    """text: ids [n]. laws: the target's at temperature 1, [V] by the number of tokens before it,
    wherever a draft was refused.
    """

    text: Tensor
    laws: dict[int, Tensor] = field(default_factory=dict)


class Lessons:
    """Steps of AdamW on a model, one for every `every` notes.

    Args:
        model: its parameters with `requires_grad`.
        every: notes a step, ≥ 1.
        learning_rate: of the steps.

    steps: how many were made.
    """

    def __init__(self, model: CausalLM, every: int, learning_rate: float):
        self.model = model
        self.every = every
        self.optimizer = torch.optim.AdamW(model.model.parameters(), learning_rate, weight_decay=0)
        self.waiting: list[Notes] = []
        self.steps = 0

    def take(self, notes: Notes) -> None:
        """Wait for more notes, or step on the mean over all places of those that wait."""
        self.waiting.append(notes)
        if len(self.waiting) < self.every:
            return
        useful = [each for each in self.waiting if each.laws]
        self.waiting = []
        if useful:
            torch.cat([self.losses(each) for each in useful]).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.steps += 1

    def losses(self, notes: Notes) -> Tensor:
        """Cross-entropy [places] between the laws noted and the model's own; row i of a pass speaks
        of token i + 1.
        """
        places = torch.tensor(list(notes.laws), device=notes.text.device)
        out = self.model.model(notes.text[None, : int(places.max())])
        rows = getattr(out, "logits", out)[0, places - 1]
        width = min(rows.shape[1], len(notes.laws[int(places[0])]))
        laws = torch.stack([law[:width] for law in notes.laws.values()])
        return F.cross_entropy(rows[:, :width], laws.to(rows), reduction="none")
