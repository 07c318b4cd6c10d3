"""A draft model that keeps learning while it serves, from the rows where its drafts were rejected.

Source: Liu et al. 2024, arXiv 2310.07177. The target's pass computes its distribution at every
drafted position anyway; where a draft is rejected, this distribution is a training example.
"""

import copy
from collections import deque
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite import checks
from specdec_lite.contract import Context
from specdec_lite.drafters.copying import token_ids
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.models import ModelDrafter, ModelSession
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
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


class OnlineDrafter(ModelDrafter):
    """Draft with a copy of a model that learns between generations, never inside one.

    A generation only records examples; `learn(text)`, prompt and output together, uses them. The
    newest 8 unused generations (or `every`, if larger) are remembered. Seeds stay reproducible:
    the same texts, learned in the same order, give the same draft.

    Args:
        model: a `CausalLM`, which is not changed; the copy of one with 16 bits learns in float32.
        gamma: as for `ModelDrafter`.
        every: number of learned texts per step of AdamW, ≥ 1.
        learning_rate: learning rate of these steps, ≥ 0.

    Attributes:
        steps: number of steps taken so far.
    """

    def __init__(
        self, model: CausalLM, gamma: int | Length = 4, every: int = 8, learning_rate: float = 1e-4
    ):
        self.every = checks.whole("every", every, 1)
        checks.number("learning_rate", learning_rate)
        learner = copy.deepcopy(checks.model("model", model).model).requires_grad_(True)
        if model.dtype.itemsize < torch.float32.itemsize:
            learner = learner.float()
        super().__init__(CausalLM(learner), gamma)
        self.optimizer = torch.optim.AdamW(
            self.model.model.parameters(), learning_rate, weight_decay=0
        )
        self.waiting: list[TrainingExamples] = []
        self.steps = 0
        self.examples: deque[TrainingExamples] = deque(maxlen=max(every, 8))

    def start(self, context: Context) -> "OnlineSession":
        return OnlineSession(self, context)

    def learn(self, tokens) -> None:
        ids = torch.from_numpy(token_ids("tokens", tokens)).to(self.model.device)
        own = [each for each in self.examples if torch.equal(ids[: len(each.text)], each.text)]
        if not own:
            raise ValueError(
                "tokens: no unused generation of this drafter produced this text; give prompt and"
                " output together, once"
            )
        longest = max(own, key=lambda each: len(each.text))
        self.examples.remove(longest)
        rows = {position: row for position, row in longest.rows.items() if position < len(ids)}
        self.add(TrainingExamples(ids, rows))

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


class OnlineSession(ModelSession):
    """The drafting of one generation, which records the target's row at every rejection."""

    def __init__(self, drafter: OnlineDrafter, context: Context):
        super().__init__(drafter.model, drafter.length, context)
        self.drafter, self.steps = drafter, drafter.steps
        self.examples = TrainingExamples(context.tokens)
        drafter.examples.append(self.examples)

    def propose(self, context: Context) -> Proposal:
        if self.steps != self.drafter.steps:
            raise ValueError("the drafter has learned inside a generation: call learn between them")
        self.examples.text = context.tokens
        return super().propose(context)

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        super().observe(verdict, scores)
        if verdict.kind == "recovered":
            row = scores.logits[0, verdict.path[-1] + 1 if verdict.path else 0]
            self.examples.rows[len(self.examples.text) + len(verdict.path)] = row.softmax(-1)
