"""An ordinary draft model that fills all places of a draft in one pass, over mask tokens: PARD.

Source: An et al. 2025, arXiv 2504.18583.
"""

from pathlib import Path

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.parallel import ParallelSession
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.weights import load, where
from specdec_lite.speculation import Context, Drafter, Shape


class PardDrafter(Drafter):
    """Draft γ tokens in one pass of a draft over the text and γ − 1 masks behind it.

    Args:
        model: a draft model that was trained to fill masks.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        mask_id: the token that stands for a place to be filled: it is fed, and never drafted. None:
            the model's last one, a row behind the target's vocabulary where it has such a row.
    """

    def __init__(self, model: CausalLM, gamma: int | Length = 4, mask_id: int | None = None):
        self.model = checks.model("model", model)
        self.length = Length.of(gamma)
        last = model.vocab_size - 1
        self.mask_id = last if mask_id is None else checks.whole("mask_id", mask_id, 0, last)

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, gamma: int | Length = 4
    ) -> "PardDrafter":
        """The draft in the file or folder `path`; None: the one shipped for this target."""
        return cls(CausalLM(load(where("pard", target, path), target, built)), gamma)

    def start(self, context: Context) -> "PardSession":
        return PardSession(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.same_device("drafter", self.model, target)
        checks.positions(self.model, positions)

    def shape(self) -> Shape:
        return Shape.chain(self.length.gamma)

    def draft_model(self) -> CausalLM:
        return self.model


class PardSession(ParallelSession):
    """After every pass the masks are cut off: the cache then holds the committed text alone."""

    def __init__(self, drafter: PardDrafter, context: Context):
        super().__init__(drafter.length)
        self.model = drafter.model
        self.mask_id = drafter.mask_id
        room = len(context.tokens) + context.wanted + self.length.gamma
        self.cache = self.model.new_cache(capacity=room)

    def rows(self, context: Context, count: int) -> Tensor:
        fresh = context.tokens[self.cache.length :].clamp(max=self.model.vocab_size - 1)
        masks = fresh.new_full((count - 1,), self.mask_id)
        logits = self.model.score(torch.cat((fresh, masks)), self.cache).logits[0, -count:]
        self.cut(len(context.tokens) + 1)
        masked = torch.arange(logits.shape[-1], device=logits.device) == self.mask_id
        return logits.masked_fill(masked, float("-inf"))

    def cut(self, length: int) -> None:
        """The last token of the text is always fed: the first row is read there."""
        self.cache.crop(min(self.cache.length, length - 1))


def built(**config) -> Transformer:
    """An untrained draft of these sizes; its vocabulary's last row is the mask's."""
    return Transformer(TransformerConfig(**config))
