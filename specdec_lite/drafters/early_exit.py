"""The target's first layers as its own draft.

Source: Elhoushi et al. 2024 (LayerSkip), whose training is not needed for the result to be exact,
only for it to be fast: here a small head is trained in its place, and the target stays as it is.
"""

from pathlib import Path

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import draft_chain
from specdec_lite.drafters.heads import ExitHead, check_heads
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.own import OwnDrafter, OwnSession
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import load, where
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context


class EarlyExitDrafter(OwnDrafter):
    """Draft γ tokens with the first layers of the target, its final norm and its head.

    Args:
        target: a native model; the one that decodes.
        layers: how many of its layers draft, 1 … all but one.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        reuse: hand the drafted states on, so that verification begins behind the exit and no layer
            runs twice. The last drafted token's states, which no draft needed, are then made too.
        adapter: trained for this exit; it stands between the norm and the head. None: nothing does.

    The draft reads and writes the target's own cache, through a view: it has nothing to catch up
    with, and what it wrote is overwritten or, with `reuse`, kept.
    """

    def __init__(
        self,
        target: CausalLM,
        layers: int,
        gamma: int | Length = 4,
        reuse: bool = True,
        adapter: ExitHead | None = None,
    ):
        super().__init__(target, gamma)
        self.layers = checks.whole("layers", layers, 1, target.num_layers - 1)
        self.reuse = reuse
        self.adapter = adapter
        if adapter is not None:
            check_heads(adapter, target)
            if adapter.layers != layers:
                raise ValueError(f"layers={layers}: the adapter was trained for {adapter.layers}")

    @classmethod
    def from_pretrained(
        cls,
        target: CausalLM,
        path: str | Path | None = None,
        gamma: int | Length = 4,
        reuse: bool = True,
    ) -> "EarlyExitDrafter":
        """With the adapter in the file or folder `path`; None: the one that ships for this target."""
        checks.native("target", target)
        adapter = load(where("early_exit", target, path), target, ExitHead)
        return cls(target, adapter.layers, gamma, reuse, adapter)

    def part(self, context: Context) -> Cache:
        return context.cache.view(layers=self.layers)

    def start(self, context: Context) -> "EarlyExitSession":
        return EarlyExitSession(self)


class EarlyExitSession(OwnSession):
    """Every round begins with a fresh view, where the target's cache ends."""

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        drafter = self.drafter
        view = drafter.part(context)
        states: list[Tensor] = []

        def run(token: int | None) -> Tensor:
            fed = context.tokens[-1:] if token is None else [token]
            self.passes += 1
            wanted = (drafter.layers, "final")
            hidden = drafter.target.score(fed, view, hidden_layers=wanted, logits=False).hidden
            states.append(hidden[drafter.layers])
            return hidden["final"][0, -1]

        def follow(token: int | None) -> Tensor:
            state = run(token)
            return drafter.target.head(state if drafter.adapter is None else drafter.adapter(state))

        proposal = draft_chain(context, follow, self.length)
        if not drafter.reuse or not len(proposal.tree):
            return proposal
        run(int(proposal.tree.tokens[-1]))
        handed_on = (drafter.layers, torch.cat(states, dim=1))
        return Proposal(proposal.tree, proposal.probs, states=handed_on)
