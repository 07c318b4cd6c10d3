"""Draft with the target on a part of its cache: attention sinks, a window and selected chunks.

Source: Chen et al. 2025 (MagicDec), with the selection of Xiao et al. 2024 (StreamingLLM).
"""

from specdec_lite import checks
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.self_drafts.chunks import Chunks
from specdec_lite.drafters.self_drafts.self_draft import SelfDrafter
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.speculation import Context


class SparseCacheDrafter(SelfDrafter):
    """Draft γ tokens with the whole target, which attends to only a part of its cache.

    It pays if reading the cache costs more than reading the weights: with long contexts in large
    batches. If the window covers the whole text, the draft is the target itself.

    Args:
        target: a native model; the one that decodes.
        sinks: entries kept from the beginning of the text, ≥ 0.
        window: entries kept from its end, ≥ 1.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        select: selects chunks between sinks and window in every round; None for none.
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

    def draft_cache(self, context: Context) -> Cache:
        length = context.cache.length  # pyright: ignore[reportOptionalMemberAccess]
        recent = max(0, length - self.window)
        entries = {*range(min(self.sinks, length)), *range(recent, length)}
        if self.select is not None:
            entries |= self.select(self.target, context, recent)
        return context.cache.select(sorted(entries), room=self.length.gamma)  # pyright: ignore[reportOptionalMemberAccess]
