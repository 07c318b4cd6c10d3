"""The public names and where each is defined; `theory.__init__` loads them on first use."""

from specdec_lite.checks import SUM_TOLERANCE
from specdec_lite.theory.rates import (
    acceptance_rate,
    lenient_acceptance_rate,
    lenient_distance,
    optimal_acceptance,
    rejection_sampling_acceptance_rate,
    residual,
    sample_and_match_acceptance_rate,
    total_variation,
)
from specdec_lite.theory.speedup import (
    break_even_tokens,
    corrected_improvement,
    drafting_share,
    guaranteed_improvement,
    operations_factor,
    optimal_gamma,
    walltime_improvement,
)
from specdec_lite.theory.starts import round_starts, starts_in_text
from specdec_lite.theory.tokens import (
    conditional_acceptance,
    drafted_acceptance,
    expected_tokens,
    implied_alpha,
    token_count_distribution,
    tokens_from_profile,
)

__all__ = [
    "SUM_TOLERANCE",
    "acceptance_rate",
    "break_even_tokens",
    "conditional_acceptance",
    "corrected_improvement",
    "drafted_acceptance",
    "drafting_share",
    "expected_tokens",
    "guaranteed_improvement",
    "implied_alpha",
    "lenient_acceptance_rate",
    "lenient_distance",
    "operations_factor",
    "optimal_acceptance",
    "optimal_gamma",
    "rejection_sampling_acceptance_rate",
    "residual",
    "round_starts",
    "sample_and_match_acceptance_rate",
    "starts_in_text",
    "token_count_distribution",
    "tokens_from_profile",
    "total_variation",
    "walltime_improvement",
]
