"""The public drafters, loaded on first use; `python site/drafter_names.py` writes this file."""

from specdec_lite.drafters.chain import draft_chain
from specdec_lite.drafters.combined.automatic import automatic
from specdec_lite.drafters.combined.bandit import BanditDrafter
from specdec_lite.drafters.combined.cascade import CascadeDrafter
from specdec_lite.drafters.combined.coupled import CoupledDrafter, same_noise
from specdec_lite.drafters.combined.merged import MergedDrafter
from specdec_lite.drafters.combined.relay import RelayDrafter
from specdec_lite.drafters.combined.tempered import TemperedDrafter
from specdec_lite.drafters.copying.hash_pool import HashPoolDrafter
from specdec_lite.drafters.copying.ngram import NgramDrafter
from specdec_lite.drafters.copying.ngram_model import NgramModel
from specdec_lite.drafters.copying.prompt_lookup import PromptLookupDrafter
from specdec_lite.drafters.copying.recycling import TokenRecyclingDrafter
from specdec_lite.drafters.copying.reference_lookup import ReferenceLookupDrafter
from specdec_lite.drafters.copying.rest import RestDrafter
from specdec_lite.drafters.copying.suffix import SuffixDrafter
from specdec_lite.drafters.eagle.eagle import EagleDrafter
from specdec_lite.drafters.eagle.mtp import MtpDrafter
from specdec_lite.drafters.fixed_point.jacobi import JacobiDrafter
from specdec_lite.drafters.fixed_point.lookahead import LookaheadDrafter
from specdec_lite.drafters.heads.blockwise import BlockwiseDrafter
from specdec_lite.drafters.heads.hydra import HydraDrafter
from specdec_lite.drafters.heads.medusa import MedusaDrafter
from specdec_lite.drafters.heads.mlp_speculator import MlpSpeculatorDrafter
from specdec_lite.drafters.lengths import (
    Confidence,
    Constant,
    Entropy,
    Heuristic,
    Length,
    Optimal,
    Predicted,
)
from specdec_lite.drafters.models.model import ModelDrafter
from specdec_lite.drafters.models.online import OnlineDrafter
from specdec_lite.drafters.models.text_match import TextMatchDrafter
from specdec_lite.drafters.parallel.block_diffusion import BlockDiffusionDrafter
from specdec_lite.drafters.parallel.markov import MarkovDrafter
from specdec_lite.drafters.parallel.pard import PardDrafter
from specdec_lite.drafters.self_drafts.early_exit import EarlyExitDrafter
from specdec_lite.drafters.self_drafts.layer_skip import LayerSkipDrafter
from specdec_lite.drafters.self_drafts.pass_rows import PassDrafter
from specdec_lite.drafters.self_drafts.quantized import QuantizedDrafter
from specdec_lite.drafters.self_drafts.sparse_cache import SparseCacheDrafter
from specdec_lite.drafters.trees.expansion import ConfidenceTree, expand_tree
from specdec_lite.drafters.trees.fixed_tree import FixedTreeDrafter
from specdec_lite.drafters.trees.sequoia import SequoiaDrafter
from specdec_lite.drafters.trees.specexec import SpecExecDrafter
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
    "QuantizedDrafter",
    "ReferenceLookupDrafter",
    "RelayDrafter",
    "RestDrafter",
    "SequoiaDrafter",
    "Session",
    "SparseCacheDrafter",
    "SpecExecDrafter",
    "SuffixDrafter",
    "TemperedDrafter",
    "TextMatchDrafter",
    "TokenRecyclingDrafter",
    "automatic",
    "draft_chain",
    "expand_tree",
    "same_noise",
]
