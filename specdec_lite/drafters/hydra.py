"""Medusa's heads in sequence: each reads the words drafted before its own. Source: Ankner et al.
2024, arXiv 2402.05109 (Hydra).
"""

from pathlib import Path

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.heads import HydraHeads, check_size, check_target
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import load, where
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Shape


class HydraDrafter(Drafter):
    """Draft a chain with heads that see the words drafted before their own.

    Args:
        target: whose state "final" and embeddings are read, and whose projection is shared.
        heads: trained on it.
        gamma: draft length, 1 … the number of heads; None: all of them.
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
        """With the heads in the file or folder `path`; None: those shipped for this target."""
        return cls(target, load(where("hydra", target, path), target, HydraHeads), gamma)

    def start(self, context: Context) -> "HydraSession":
        return HydraSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        check_target(self.target, target)

    def shape(self) -> Shape:
        return Shape.chain(self.gamma)


class HydraSession(ChainSession):
    """Begins every round anew, at the last row that the target has scored."""

    def __init__(self, drafter: HydraDrafter):
        super().__init__(drafter.gamma)
        self.target = drafter.target
        self.heads = drafter.heads

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        """Nothing after a prompt of one token: no token has been scored then."""
        if context.scores is None:
            return NOTHING
        state = context.scores.hidden["final"][0, -1]
        known = [int(context.tokens[-1])]

        def follow(token: int | None) -> Tensor:
            known.extend([] if token is None else [token])
            self.passes += 1
            embedded = self.target.embed(context.tokens.new_tensor(known))
            return self.target.head(self.heads(len(known) - 1, state, embedded))

        return draft_chain(context, follow, self.length)
