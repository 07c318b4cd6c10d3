"""The public drafters and where each is defined; `drafters.__init__` loads them on first use."""

from specdec_lite.drafters.bandit import BanditDrafter
from specdec_lite.drafters.block_diffusion import BlockDiffusionDrafter
from specdec_lite.drafters.blockwise import BlockwiseDrafter
from specdec_lite.drafters.cascade import CascadeDrafter
from specdec_lite.drafters.coupled import CoupledDrafter, same_noise
from specdec_lite.drafters.eagle import EagleDrafter
from specdec_lite.drafters.early_exit import EarlyExitDrafter
from specdec_lite.drafters.fixed_tree import FixedTreeDrafter
from specdec_lite.drafters.hash_pool import HashPoolDrafter
from specdec_lite.drafters.hydra import HydraDrafter
from specdec_lite.drafters.jacobi import JacobiDrafter
from specdec_lite.drafters.layer_skip import LayerSkipDrafter
from specdec_lite.drafters.lookahead import LookaheadDrafter
from specdec_lite.drafters.markov import MarkovDrafter
from specdec_lite.drafters.medusa import MedusaDrafter
from specdec_lite.drafters.merged import MergedDrafter
from specdec_lite.drafters.mlp_speculator import MlpSpeculatorDrafter
from specdec_lite.drafters.model import ModelDrafter
from specdec_lite.drafters.mtp import MtpDrafter
from specdec_lite.drafters.ngram import NgramDrafter
from specdec_lite.drafters.online import OnlineDrafter
from specdec_lite.drafters.pard import PardDrafter
from specdec_lite.drafters.parts.chain import draft_chain
from specdec_lite.drafters.parts.expansion import ConfidenceTree, expand_tree
from specdec_lite.drafters.parts.lengths import (
    Confidence,
    Constant,
    Entropy,
    Heuristic,
    Length,
    Optimal,
    Predicted,
)
from specdec_lite.drafters.parts.ngram_model import NgramModel
from specdec_lite.drafters.pass_rows import PassDrafter
from specdec_lite.drafters.prompt_lookup import PromptLookupDrafter
from specdec_lite.drafters.quantised import QuantisedDrafter
from specdec_lite.drafters.recycling import TokenRecyclingDrafter
from specdec_lite.drafters.reference_lookup import ReferenceLookupDrafter
from specdec_lite.drafters.relay import RelayDrafter
from specdec_lite.drafters.rest import RestDrafter
from specdec_lite.drafters.sequoia import SequoiaDrafter
from specdec_lite.drafters.sparse_cache import SparseCacheDrafter
from specdec_lite.drafters.specexec import SpecExecDrafter
from specdec_lite.drafters.suffix import SuffixDrafter
from specdec_lite.drafters.tempered import TemperedDrafter
from specdec_lite.speculation import Context, Drafter, Limits, Session

__all__ = [
    "BanditDrafter",
    "BlockDiffusionDrafter",
    "BlockwiseDrafter",
    "CascadeDrafter",
    "Confidence",
    "ConfidenceTree",
    "Constant",
    "Context",
    "CoupledDrafter",
    "Drafter",
    "EagleDrafter",
    "EarlyExitDrafter",
    "Entropy",
    "FixedTreeDrafter",
    "HashPoolDrafter",
    "Heuristic",
    "HydraDrafter",
    "JacobiDrafter",
    "LayerSkipDrafter",
    "Length",
    "Limits",
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
    "Optimal",
    "PardDrafter",
    "PassDrafter",
    "Predicted",
    "PromptLookupDrafter",
    "QuantisedDrafter",
    "ReferenceLookupDrafter",
    "RelayDrafter",
    "RestDrafter",
    "SequoiaDrafter",
    "Session",
    "SparseCacheDrafter",
    "SpecExecDrafter",
    "SuffixDrafter",
    "TemperedDrafter",
    "TokenRecyclingDrafter",
    "draft_chain",
    "expand_tree",
    "same_noise",
]
