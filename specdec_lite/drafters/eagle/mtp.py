"""Multi-token prediction: a block trained on the text itself drafts, fed with its own output.

Source: DeepSeek-AI 2024 (DeepSeek-V3), section 2.2. Their one module drafts one token; engines
apply it repeatedly.
"""

from pathlib import Path

from specdec_lite.drafters.eagle.eagle import Draft, EagleDrafter
from specdec_lite.drafters.eagle.feature_head import MtpHead
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights, load


class MtpDrafter(EagleDrafter):
    """Draft as EAGLE does, with a block that norms both inputs and its output.

    In DeepSeek-V3 the block is trained together with the target and is a part of the model. The
    shipped block was trained later, on a frozen target.

    Args:
        target: the model that decodes.
        head: block trained on this target.
        draft: as for `EagleDrafter`.
    """

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, draft: Draft | None = None
    ) -> "MtpDrafter":
        """Load a trained block.

        Args:
            target: the model that decodes.
            path: file or folder of the block; None for the one shipped for this target.
            draft: as for `EagleDrafter`; None: a chain of 4.
        """
        head = load(find_weights("mtp", target, path), target, MtpHead)
        return cls(target, head, 4 if draft is None else draft)
