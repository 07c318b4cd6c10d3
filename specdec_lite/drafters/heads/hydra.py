"""Hydra: heads like Medusa's, in sequence, each of which reads the tokens drafted before.

Source: Ankner et al. 2024, arXiv 2402.05109.
"""

from pathlib import Path

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.heads.heads import HydraHeads, check_size, check_target
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Limits


class HydraDrafter(Drafter):
    """Draft a chain with heads that read the tokens drafted before.

    Args:
        target: the model that decodes; heads read its state "final" and its embeddings, and share
            its vocabulary projection.
        heads: heads trained on this target.
        gamma: draft length, 1 … number of heads; None: the number of heads.
    """

    hidden_layers = ("final",)

    def __init__(self, target: CausalLM, heads: HydraHeads, gamma: int | None = None):
        self.target = checks.model("target", target)
        self.heads = checks.instance("heads", heads, HydraHeads, "HydraHeads")
        size, count = heads.config["hidden_size"], heads.config["count"]
        check_size("heads read states", size, target)
        self.gamma = count if gamma is None else checks.whole("gamma", gamma, 1, count)

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, gamma: int | None = None
    ) -> "HydraDrafter":
        """Load trained heads.

        Args:
            target: the model that decodes.
            path: file or folder of the heads; None for those shipped for this target.
            gamma: as for the class.
        """
        return cls(target, load(find_weights("hydra", target, path), target, HydraHeads), gamma)

    def start(self, context: Context) -> "HydraSession":
        return HydraSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        check_target(self.target, target)

    def limits(self) -> Limits:
        return Limits.chain(self.gamma)


class HydraSession(ChainSession):
    """The drafting of one generation. Every round starts at the last row the target has scored."""

    def __init__(self, drafter: HydraDrafter):
        super().__init__(drafter.gamma)
        self.target = drafter.target
        self.heads = drafter.heads

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        # After a prompt of one token no token has been scored yet.
        if context.scores is None:
            return NOTHING
        state = context.scores.hidden["final"][0, -1]
        embedded = self.target.embed(context.tokens[-1:])

        def follow(token: Tensor | None) -> Tensor:
            nonlocal embedded
            if token is not None:
                embedded = torch.cat((embedded, self.target.embed(token)))
            self.passes += 1
            return self.target.head(self.heads(len(embedded) - 1, state, embedded))

        return draft_chain(context, follow, self.length)
