"""PARD: predict all drafted tokens in one pass, at mask tokens. Source: An et al. 2025."""

from pathlib import Path

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.followed import Followed
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.parallel.parallel import ParallelSession
from specdec_lite.engine.linear import pack
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.weights import find_weights, load
from specdec_lite.speculation import Context, Drafter, Limits


class PardDrafter(Drafter):
    """Draft γ tokens in one pass of a draft model over the text and γ − 1 masks after it.

    Args:
        model: a draft model trained to fill masks.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        mask_id: the mask's token id, which is fed and never drafted; None: the model's last token,
            which may lie outside the target's vocabulary.
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
        """Load a trained draft model.

        Args:
            target: the model that decodes.
            path: file or folder of the model; None for the one shipped for this target.
            gamma: as for the class.
        """
        return cls(CausalLM(pack(load(find_weights("pard", target, path), target, build))), gamma)

    def start(self, context: Context) -> "PardSession":
        return PardSession(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.same_device("drafter", self.model, target)
        checks.positions(self.model, positions)

    def limits(self) -> Limits:
        return Limits.chain(self.length.gamma)

    def draft_model(self) -> CausalLM:
        return self.model


class PardSession(ParallelSession):
    """The drafting of one generation. The cache follows the text, so it keeps no mask."""

    def __init__(self, drafter: PardDrafter, context: Context):
        super().__init__(drafter.length)
        self.model = drafter.model
        self.mask_id = drafter.mask_id
        capacity = len(context.tokens) + context.wanted + self.length.gamma
        self.cache = self.model.new_cache(capacity=capacity)
        self.followed = Followed(self.cache)

    def rows(self, context: Context, count: int) -> Tensor:
        fresh = self.followed.behind(context.tokens).clamp(max=self.model.vocab_size - 1)
        masks = fresh.new_full((count - 1,), self.mask_id)
        logits = self.model.score(torch.cat((fresh, masks)), self.cache).logits[0, -count:]
        masked = torch.arange(logits.shape[-1], device=logits.device) == self.mask_id
        return logits.masked_fill(masked, float("-inf"))


def build(**config) -> Transformer:
    """Build an untrained draft model; the last row of its vocabulary is the mask's."""
    return Transformer(TransformerConfig(**config))
