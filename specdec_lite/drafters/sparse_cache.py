"""The target itself as draft, on a part of its cache: attention sinks, a recent window, and chunks
that the last query asks for (`chunks`).

Source: Chen et al. 2024 (MagicDec), with the selection of Xiao et al. 2024 (StreamingLLM).
"""

from specdec_lite import checks
from specdec_lite.drafters.chunks import Chunks
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.own import OwnDrafter
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.speculation import Context


class SparseCacheDrafter(OwnDrafter):
    """Draft γ tokens with the whole target, which sees only a part of its cache. It pays where
    reading the cache costs more than reading the weights: long contexts in large batches.

    Args:
        target: a native model; the one that decodes.
        sinks: entries kept from the beginning of the text, ≥ 0.
        window: entries kept from its end, ≥ 1.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        select: chooses more of them in every round, before the window.

    A window that reaches back to the beginning makes it the target as its own draft.
    """

    def __init__(
        self,
        target: CausalLM,
        sinks: int = 4,
        window: int = 64,
        gamma: int | Length = 4,
        select: Chunks | None = None,
    ):
        super().__init__(target, gamma)
        self.sinks = checks.whole("sinks", sinks, 0)
        self.window = checks.whole("window", window, 1)
        self.select = select
        self.hidden_layers = () if select is None else select.layers
        for layer in self.hidden_layers:
            checks.whole("select's layer", layer, 0, target.num_layers - 1)

    def part(self, context: Context) -> Cache:
        held = context.cache.length
        recent = max(0, held - self.window)
        kept = {*range(min(self.sinks, held)), *range(recent, held)}
        if self.select is not None:
            kept |= self.select(self.target, context, recent)
        return context.cache.select(sorted(kept), room=self.length.gamma)
