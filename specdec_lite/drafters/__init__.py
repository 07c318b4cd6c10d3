"""Sources of proposals: one file, one class per method."""

from specdec_lite.drafters.blockwise import BlockwiseDrafter
from specdec_lite.drafters.medusa import MedusaDrafter
from specdec_lite.drafters.model import ModelDrafter

__all__ = ["BlockwiseDrafter", "MedusaDrafter", "ModelDrafter"]
