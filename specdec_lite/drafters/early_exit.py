"""The target's first layers as its own draft.

Source: Zhang et al. 2024 (Draft & Verify); Elhoushi et al. 2024 (LayerSkip), whose training is not
needed for the result to be exact, only for it to be fast.
"""

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Shape


class EarlyExitDrafter(Drafter):
    """Draft γ tokens with the first layers of the target, its final norm and its head.

    Args:
        target: a native model; the one that decodes.
        layers: how many of its layers draft, 1 … all but one.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        reuse: hand the drafted states on, so that verification begins behind the exit and no layer
            runs twice. It costs one shallow pass more a round: the last drafted token's.

    The draft reads and writes the target's own cache, through a view: it has nothing to catch up
    with, and what it wrote is overwritten or, with `reuse`, kept.
    """

    def __init__(self, target: CausalLM, layers: int, gamma: int | Length = 4, reuse: bool = True):
        self.target = checks.native("target", target)
        self.layers = checks.whole("layers", layers, 1, target.num_layers - 1)
        self.length = Length.of(gamma)
        self.reuse = reuse

    def start(self, context: Context) -> "EarlyExitSession":
        return EarlyExitSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def shape(self) -> Shape:
        return Shape.chain(self.length.gamma)


class EarlyExitSession(ChainSession):
    """Every round begins with a fresh view, where the target's cache ends."""

    def __init__(self, drafter: EarlyExitDrafter):
        super().__init__(drafter.length)
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        drafter = self.drafter
        view = context.cache.view(layers=drafter.layers)
        states: list[Tensor] = []

        def follow(token: int | None) -> Tensor:
            fed = context.tokens[-1:] if token is None else [token]
            self.passes += 1
            scores = drafter.target.score(fed, view, hidden_layers=(drafter.layers,))
            states.append(scores.hidden[drafter.layers])
            return scores.logits[0, -1]

        proposal = draft_chain(context, follow, self.length)
        if not drafter.reuse or not len(proposal.tree):
            return proposal
        follow(int(proposal.tree.tokens[-1]))
        return Proposal(
            proposal.tree, proposal.probs, states=(drafter.layers, torch.cat(states, dim=1))
        )
