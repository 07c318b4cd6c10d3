"""Sources of proposals: one file, one class per method; and what they are made of."""

from specdec_lite.drafters.blockwise import BlockwiseDrafter
from specdec_lite.drafters.cascade import CascadeDrafter
from specdec_lite.drafters.chain import draft_chain
from specdec_lite.drafters.early_exit import EarlyExitDrafter
from specdec_lite.drafters.grow import grow
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.medusa import MedusaDrafter
from specdec_lite.drafters.model import ModelDrafter
from specdec_lite.drafters.sparse_cache import SparseCacheDrafter
from specdec_lite.speculation import Context, Drafter, Session, Shape

__all__ = [
    "BlockwiseDrafter",
    "CascadeDrafter",
    "Context",
    "Drafter",
    "EarlyExitDrafter",
    "Length",
    "MedusaDrafter",
    "ModelDrafter",
    "Session",
    "Shape",
    "SparseCacheDrafter",
    "draft_chain",
    "grow",
]
