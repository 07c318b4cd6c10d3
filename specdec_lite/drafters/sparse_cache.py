"""The target itself as draft, on a part of its cache: attention sinks and a recent window.

Source: Chen et al. 2024 (MagicDec), with the selection of Xiao et al. 2024 (StreamingLLM).
"""

from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Shape


class SparseCacheDrafter(Drafter):
    """Draft γ tokens with the whole target, which sees only the first and the last entries of its
    cache. It pays where reading the cache costs more than reading the weights: long contexts in
    large batches.

    Args:
        target: a native model; the one that decodes.
        sinks: entries kept from the beginning of the text, ≥ 0.
        window: entries kept from its end, ≥ 1.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.

    A window that reaches back to the beginning makes it the target as its own draft.
    """

    def __init__(self, target: CausalLM, sinks: int = 4, window: int = 64, gamma: int | Length = 4):
        self.target = checks.native("target", target)
        self.sinks = checks.whole("sinks", sinks, 0)
        self.window = checks.whole("window", window, 1)
        self.length = Length.of(gamma)

    def start(self, context: Context) -> "SparseCacheSession":
        return SparseCacheSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def shape(self) -> Shape:
        return Shape.chain(self.length.gamma)


class SparseCacheSession(ChainSession):
    """Every round drafts on a fresh copy of the selected entries."""

    def __init__(self, drafter: SparseCacheDrafter):
        super().__init__(drafter.length)
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        drafter = self.drafter
        held = context.cache.length
        kept = {*range(min(drafter.sinks, held)), *range(max(0, held - drafter.window), held)}
        cache = context.cache.select(sorted(kept), room=drafter.length.gamma)

        def follow(token: int | None) -> Tensor:
            fed = context.tokens[-1:] if token is None else [token]
            self.passes += 1
            return drafter.target.score(fed, cache, last=True).logits[0, -1]

        return draft_chain(context, follow, self.length)
