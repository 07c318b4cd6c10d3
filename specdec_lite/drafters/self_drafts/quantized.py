"""Draft with a copy of the target in fewer bits.

Source: Tiwari et al. 2025 (QuantSpec), weights only: the draft has its own cache.
"""

from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.models.model import ModelDrafter
from specdec_lite.drafters.self_drafts.quantization import quantize
from specdec_lite.engine.models import CausalLM


class QuantizedDrafter(ModelDrafter):
    """Draft γ tokens with a rounded copy of the target, which is another model than the target.

    Args:
        target: a native model.
        bits: bits per weight, 2 … 8.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
    """

    def __init__(self, target: CausalLM, bits: int = 8, gamma: int | Length = 4):
        super().__init__(quantize(target, bits), gamma)
