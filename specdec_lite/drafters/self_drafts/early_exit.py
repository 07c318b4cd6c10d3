"""Draft with the target's first layers.

Source: Elhoushi et al. 2024 (LayerSkip). Their training makes the drafts better, not exact; here a
small adapter is trained instead, and the target is not changed.
"""

from pathlib import Path

from specdec_lite import checks
from specdec_lite.drafters.heads.heads import ExitHead, check_heads
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.self_drafts.exit_session import EarlyExitSession
from specdec_lite.drafters.self_drafts.self_draft import SelfDrafter
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights, load
from specdec_lite.speculation import Context


class EarlyExitDrafter(SelfDrafter):
    """Draft γ tokens with the first layers of the target, its final norm and its head.

    The draft reads and writes the target's own cache through a view, so it never has to catch up.
    Verification overwrites its entries or, with `reuse`, keeps them.

    Args:
        target: a native model; the one that decodes.
        layers: number of its layers that draft, 1 … all but one.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        reuse: verify from the drafted states, so that no layer runs twice. The states of the last
            drafted token, which drafting does not need, are then computed too.
        adapter: module trained for this exit, between norm and head; None for none.
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
        """Load a trained adapter, which also sets the number of layers.

        Args:
            target: the model that decodes.
            path: file or folder of the adapter; None for the one shipped for this target.
            gamma: as for the class.
            reuse: as for the class.
        """
        checks.native("target", target)
        adapter = load(find_weights("early_exit", target, path), target, ExitHead)
        return cls(target, adapter.layers, gamma, reuse, adapter)

    def draft_cache(self, context: Context) -> Cache:
        return context.cache.view(layers=self.layers)  # pyright: ignore[reportOptionalMemberAccess]

    def start(self, context: Context) -> EarlyExitSession:
        return EarlyExitSession(self, self.layers, self.adapter, self.reuse)
