"""A draft model that goes on learning while it serves, from the rows at which it was refused.

Source: Liu et al. 2024, arXiv 2310.07177. The target's pass computes its law at every drafted place
anyway; where a draft was refused, that law is what the draft should have said.
"""

import copy
from collections import deque

import torch

from specdec_lite import checks
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.lessons import Lessons, Notes
from specdec_lite.drafters.matches import token_ids
from specdec_lite.drafters.model import ModelDrafter, ModelSession
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.speculation import Context


class OnlineDrafter(ModelDrafter):
    """Draft with a copy of a model that learns between generations, never inside one.

    Args:
        model: a `CausalLM` in float32 or float64; it stays as it is.
        gamma: as for `ModelDrafter`.
        every: one step of AdamW for so many texts that it was told to learn.
        learning_rate: of these steps.

    A generation only notes; `learn(text)`, prompt and output together, takes its notes up. Of
    generations that were not learnt, the newest are remembered: 8, or `every`. Seeds stay
    reproducible: the same texts, learnt in the same order, make the same draft.
    """

    def __init__(
        self, model: CausalLM, gamma: int | Length = 4, every: int = 8, learning_rate: float = 1e-4
    ):
        checks.whole("every", every, 1)
        checks.number("learning_rate", learning_rate)
        if checks.model("model", model).dtype not in (torch.float32, torch.float64):
            raise ValueError(f"model is in {model.dtype}: must be in float32 or float64 to learn")
        super().__init__(CausalLM(copy.deepcopy(model.model).requires_grad_(True)), gamma)
        self.lessons = Lessons(self.model, every, learning_rate)
        self.notes: deque[Notes] = deque(maxlen=max(every, 8))

    def start(self, context: Context) -> "OnlineSession":
        return OnlineSession(self, context)

    def learn(self, tokens) -> None:
        """Take up what the generation that wrote this text noted; every `every`-th call makes a
        step. ValueError for a text that no generation wrote which is still to be learnt from.
        """
        ids = torch.from_numpy(token_ids("tokens", tokens)).to(self.model.device)
        own = [notes for notes in self.notes if torch.equal(ids[: len(notes.text)], notes.text)]
        if not own:
            raise ValueError(
                "tokens: no generation of this drafter that is still to be learnt from wrote this"
                " text; give prompt and output together"
            )
        notes = max(own, key=lambda each: len(each.text))
        self.notes.remove(notes)
        laws = {place: law for place, law in notes.laws.items() if place < len(ids)}
        self.lessons.take(Notes(ids, laws))


class OnlineSession(ModelSession):
    """Notes the target's law wherever a draft was refused."""

    def __init__(self, drafter: OnlineDrafter, context: Context):
        super().__init__(drafter.model, drafter.length, context)
        self.lessons = drafter.lessons
        self.steps = drafter.lessons.steps
        self.notes = Notes(context.tokens)
        drafter.notes.append(self.notes)

    def propose(self, context: Context) -> Proposal:
        if self.steps != self.lessons.steps:
            raise ValueError("the drafter has learnt inside a generation: call learn between them")
        self.notes.text = context.tokens
        return super().propose(context)

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        super().observe(verdict, scores)
        if verdict.kind == "recovered":
            row = scores.logits[0, verdict.path[-1] + 1 if verdict.path else 0]
            self.notes.laws[self.root + len(verdict.path)] = row.softmax(-1)
