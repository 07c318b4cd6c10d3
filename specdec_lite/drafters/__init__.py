"""Sources of proposals: one file, one class per method; and what they are made of."""

from specdec_lite.drafters.around import TemperedDrafter
from specdec_lite.drafters.block_diffusion import BlockDiffusionDrafter
from specdec_lite.drafters.blockwise import BlockwiseDrafter
from specdec_lite.drafters.cascade import CascadeDrafter
from specdec_lite.drafters.chain import draft_chain
from specdec_lite.drafters.coupled import CoupledDrafter, same_noise
from specdec_lite.drafters.eagle import EagleDrafter
from specdec_lite.drafters.early_exit import EarlyExitDrafter
from specdec_lite.drafters.grow import Growth, grow
from specdec_lite.drafters.hash_pool import HashPoolDrafter
from specdec_lite.drafters.hydra import HydraDrafter
from specdec_lite.drafters.jacobi import JacobiDrafter
from specdec_lite.drafters.layer_skip import LayerSkipDrafter
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.lookahead import LookaheadDrafter
from specdec_lite.drafters.markov import MarkovDrafter
from specdec_lite.drafters.medusa import MedusaDrafter
from specdec_lite.drafters.merged import MergedDrafter
from specdec_lite.drafters.mlp_speculator import MlpSpeculatorDrafter
from specdec_lite.drafters.model import ModelDrafter
from specdec_lite.drafters.mtp import MtpDrafter
from specdec_lite.drafters.ngram import NgramDrafter
from specdec_lite.drafters.ngram_model import NgramModel
from specdec_lite.drafters.online import OnlineDrafter
from specdec_lite.drafters.pard import PardDrafter
from specdec_lite.drafters.pass_rows import PassDrafter
from specdec_lite.drafters.prompt_lookup import PromptLookupDrafter
from specdec_lite.drafters.quantised import QuantisedDrafter
from specdec_lite.drafters.recycling import TokenRecyclingDrafter
from specdec_lite.drafters.relay import RelayDrafter
from specdec_lite.drafters.rest import RestDrafter
from specdec_lite.drafters.sequoia import SequoiaDrafter
from specdec_lite.drafters.shaped import ShapedDrafter
from specdec_lite.drafters.sparse_cache import SparseCacheDrafter
from specdec_lite.drafters.specexec import SpecExecDrafter
from specdec_lite.drafters.suffix import SuffixDrafter
from specdec_lite.speculation import Context, Drafter, Session, Shape

__all__ = [
    "BlockDiffusionDrafter",
    "BlockwiseDrafter",
    "CascadeDrafter",
    "Context",
    "CoupledDrafter",
    "Drafter",
    "EagleDrafter",
    "EarlyExitDrafter",
    "Growth",
    "HashPoolDrafter",
    "HydraDrafter",
    "JacobiDrafter",
    "LayerSkipDrafter",
    "Length",
    "LookaheadDrafter",
    "MarkovDrafter",
    "MedusaDrafter",
    "MergedDrafter",
    "MlpSpeculatorDrafter",
    "ModelDrafter",
    "MtpDrafter",
    "NgramDrafter",
    "NgramModel",
    "OnlineDrafter",
    "PardDrafter",
    "PassDrafter",
    "PromptLookupDrafter",
    "QuantisedDrafter",
    "RelayDrafter",
    "RestDrafter",
    "SequoiaDrafter",
    "Session",
    "Shape",
    "ShapedDrafter",
    "SparseCacheDrafter",
    "SpecExecDrafter",
    "SuffixDrafter",
    "TemperedDrafter",
    "TokenRecyclingDrafter",
    "draft_chain",
    "grow",
    "same_noise",
]
