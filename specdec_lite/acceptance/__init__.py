"""Acceptance rules: which drafted tokens stay, and which token the target adds.

A rule is a pure function (proposal, target_probs, rng) → Verdict, marked by `@rule(lossless=…)`.
Read `exact` first, then `greedy`, `block`, `multi`, `lossy`; `rule` holds what they share, `laws` computes
exactly what any of them emits. Proposals and laws are passed on from here.
"""

from specdec_lite.acceptance.block import block_verification, traversal_verification
from specdec_lite.acceptance.exact import sample_and_match, speculative_sampling
from specdec_lite.acceptance.greedy import exact_match, longest_path
from specdec_lite.acceptance.laws import (
    BlockLaw,
    block_law,
    draw_chain,
    draw_tree,
    joint_law,
    output_law,
)
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
from specdec_lite.acceptance.rule import ratio, residual, rule
from specdec_lite.proposal import NOTHING, Proposal, Verdict, one_hot

__all__ = [
    "NOTHING",
    "BlockLaw",
    "Proposal",
    "Verdict",
    "block_law",
    "block_verification",
    "distance_match",
    "draw_chain",
    "draw_tree",
    "exact_match",
    "joint_law",
    "k_seq",
    "lenient",
    "lenient_argmax",
    "lenient_scaled",
    "longest_path",
    "one_hot",
    "output_law",
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
