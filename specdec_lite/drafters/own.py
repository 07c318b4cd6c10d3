"""Drafting with the target itself, on a part of its layers or of its cache: what such drafters
share.
"""

from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Shape


class OwnDrafter(Drafter):
    """A chain that the target drafts for itself: subclass it, and give `part`.

    Args:
        target: a native model; the one that decodes.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
    """

    def __init__(self, target: CausalLM, gamma: int | Length):
        self.target = checks.native("target", target)
        self.length = Length.of(gamma)

    def part(self, context: Context) -> Cache:
        """What a round drafts with: a view of the target's cache, or a selection of it."""
        raise NotImplementedError

    def start(self, context: Context) -> "OwnSession":
        return OwnSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def shape(self) -> Shape:
        return Shape.chain(self.length.gamma)


class OwnSession(ChainSession):
    """Every round drafts with a fresh part of the target's cache, so there is nothing to cut."""

    def __init__(self, drafter: OwnDrafter):
        super().__init__(drafter.length)
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        cache = self.drafter.part(context)

        def follow(token: int | None) -> Tensor:
            fed = context.tokens[-1:] if token is None else [token]
            self.passes += 1
            return self.drafter.target.score(fed, cache, last=True).logits[0, -1]

        return draft_chain(context, follow, self.length)
