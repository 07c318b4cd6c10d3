"""Draft with the first layers of the target, and let verification continue from their states."""

import torch
from torch import Tensor

from specdec_lite.drafters.chain import draft_chain
from specdec_lite.drafters.heads.heads import ExitHead
from specdec_lite.drafters.self_drafts.self_draft import SelfDrafter, SelfDraftSession
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context


class EarlyExitSession(SelfDraftSession):
    """The drafting of one generation. Every round starts from a new view of the target's cache.

    Args:
        drafter: the drafter.
        layers: number of layers that draft.
        adapter: module between norm and head; None for none.
        reuse: report the drafted states, so that verification starts from them.
    """

    def __init__(self, drafter: SelfDrafter, layers: int, adapter: ExitHead | None, reuse: bool):
        super().__init__(drafter)
        self.layers = layers
        self.adapter = adapter
        self.reuse = reuse

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        target = self.drafter.target
        view = self.drafter.draft_cache(context)
        states: list[Tensor] = []

        def run(token: Tensor | None) -> Tensor:
            """Feed one token and return its normed exit state [d]."""
            fed = context.tokens[-1:] if token is None else token
            self.passes += 1
            layers = (self.layers, "final")
            hidden = target.score(fed, view, hidden_layers=layers, logits=False).hidden
            states.append(hidden[self.layers])
            return hidden["final"][0, -1]

        def follow(token: Tensor | None) -> Tensor:
            state = run(token)
            return target.head(state if self.adapter is None else self.adapter(state))

        proposal = draft_chain(context, follow, self.length)
        if not self.reuse or not len(proposal.tree):
            return proposal
        run(proposal.tree.tokens[-1:])
        reused = (self.layers, torch.cat(states, dim=1))
        return Proposal(proposal.tree, proposal.probs, states=reused)
