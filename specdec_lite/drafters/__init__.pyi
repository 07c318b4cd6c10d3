"""The public drafters, loaded on first use; `python site/drafter_names.py` writes this file."""

from specdec_lite.contract import Context, Drafter, Limits, Session
from specdec_lite.drafters.bandit import BanditDrafter, automatic
from specdec_lite.drafters.block_diffusion import BlockDiffusionDrafter
from specdec_lite.drafters.chain import draft_chain
from specdec_lite.drafters.combined import (
    CascadeDrafter,
    CoupledDrafter,
    MergedDrafter,
    RelayDrafter,
    TemperedDrafter,
    same_noise,
)
from specdec_lite.drafters.copying import PromptLookupDrafter, ReferenceLookupDrafter, SuffixDrafter
from specdec_lite.drafters.eagle import EagleDrafter, MtpDrafter
from specdec_lite.drafters.fixed_point import JacobiDrafter, LookaheadDrafter
from specdec_lite.drafters.heads import (
    BlockwiseDrafter,
    HydraDrafter,
    MedusaDrafter,
    MlpSpeculatorDrafter,
)
from specdec_lite.drafters.lengths import (
    Confidence,
    Constant,
    Entropy,
    Heuristic,
    Length,
    Optimal,
    Predicted,
)
from specdec_lite.drafters.model_trees import FixedTreeDrafter, SequoiaDrafter, SpecExecDrafter
from specdec_lite.drafters.models import ModelDrafter
from specdec_lite.drafters.ngrams import NgramDrafter, NgramModel, RestDrafter
from specdec_lite.drafters.online import OnlineDrafter
from specdec_lite.drafters.parallel import MarkovDrafter, PardDrafter
from specdec_lite.drafters.self_drafts import (
    EarlyExitDrafter,
    LayerSkipDrafter,
    PassDrafter,
    QuantizedDrafter,
    SparseCacheDrafter,
)
from specdec_lite.drafters.tables import HashPoolDrafter, TokenRecyclingDrafter
from specdec_lite.drafters.text_match import TextMatchDrafter
from specdec_lite.drafters.trees import ConfidenceTree, expand_tree

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
