"""Sources of proposals: one file, one class per method."""
from .blockwise import BlockwiseDrafter
from .medusa import MedusaDrafter
from .model import ModelDrafter

__all__ = ["BlockwiseDrafter", "MedusaDrafter", "ModelDrafter"]
