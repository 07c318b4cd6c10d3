"""Sources of proposals: one file, one class per method."""
from .model import ModelDrafter

__all__ = ["ModelDrafter"]
