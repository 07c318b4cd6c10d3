"""Multi-token prediction: a block trained on the text itself drafts, fed with its own output.

Source: DeepSeek-AI 2024 (DeepSeek-V3), section 2.2, whose one module drafts one token; that engines
feed it again and again is theirs.
"""

from pathlib import Path

from specdec_lite.drafters.eagle import Draft, EagleDrafter
from specdec_lite.drafters.feature_head import MtpHead
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import load, where


class MtpDrafter(EagleDrafter):
    """EAGLE's session on another block: both inputs normed, the state first, a norm before the
    vocabulary projection.

    Trained beside the target from the beginning it is a part of the model; the shipped one was
    trained later, on a target that stands still.
    """

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, draft: Draft | None = None
    ) -> "MtpDrafter":
        """The block in the file or folder `path`; None: the one shipped for this target. draft: as
        for `EagleDrafter`, a chain of 4 by default.
        """
        head = load(where("mtp", target, path), target, MtpHead)
        return cls(target, head, 4 if draft is None else draft)
