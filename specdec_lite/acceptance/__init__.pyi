"""The public names and where each is defined; `acceptance.__init__` loads them on first use."""

from specdec_lite.acceptance.block import block_verification, traversal_verification
from specdec_lite.acceptance.distributions import (
    BlockDistribution,
    block_distribution,
    draw_chain,
    joint_distribution,
    output_distribution,
)
from specdec_lite.acceptance.exact import sample_and_match, speculative_sampling
from specdec_lite.acceptance.greedy import exact_match, longest_path
from specdec_lite.acceptance.lossy import (
    distance_match,
    lenient,
    lenient_argmax,
    lenient_scaled,
    rejection_sampling,
    top_k_match,
    typical,
    walk,
)
from specdec_lite.acceptance.multi import k_seq
from specdec_lite.acceptance.protocol import ratio, residual, rule
from specdec_lite.proposal import NOTHING, Proposal, Verdict, one_hot

__all__ = [
    "NOTHING",
    "BlockDistribution",
    "Proposal",
    "Verdict",
    "block_distribution",
    "block_verification",
    "distance_match",
    "draw_chain",
    "exact_match",
    "joint_distribution",
    "k_seq",
    "lenient",
    "lenient_argmax",
    "lenient_scaled",
    "longest_path",
    "one_hot",
    "output_distribution",
    "ratio",
    "rejection_sampling",
    "residual",
    "rule",
    "sample_and_match",
    "speculative_sampling",
    "top_k_match",
    "traversal_verification",
    "typical",
    "walk",
]
