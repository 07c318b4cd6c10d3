"""Draft with the target itself, on a part of its layers or of its cache."""

from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Limits


class SelfDrafter(Drafter):
    """Draft a chain with the target itself: subclass it and define `draft_cache`.

    Args:
        target: a native model; the one that decodes.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
    """

    makes_passes = True

    def __init__(self, target: CausalLM, gamma: int | Length):
        self.target = checks.native("target", target)
        self.length = Length.of(gamma)

    def draft_cache(self, context: Context) -> Cache:
        """Return the cache a round drafts with: a view of the target's, or a part of it."""
        raise NotImplementedError

    def start(self, context: Context) -> "SelfDraftSession":
        return SelfDraftSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def limits(self) -> Limits:
        return Limits.chain(self.length.gamma)


class SelfDraftSession(ChainSession):
    """The drafting of one generation. Every round starts from the target's cache anew."""

    def __init__(self, drafter: SelfDrafter):
        super().__init__(drafter.length)
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        cache = self.drafter.draft_cache(context)

        def follow(token: Tensor | None) -> Tensor:
            fed = context.tokens[-1:] if token is None else token
            self.passes += 1
            return self.drafter.target.score(fed, cache, last=True).logits[0, -1]

        return draft_chain(context, follow, self.length)
