"""Sources of proposals: one file, one class per method."""
from .blockwise import BlockwiseDrafter
from .model import ModelDrafter

__all__ = ["BlockwiseDrafter", "ModelDrafter"]
