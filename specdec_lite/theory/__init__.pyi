"""The public names and where each is defined; `theory.__init__` loads them on first use."""

from specdec_lite.checks import SUM_TOLERANCE
from specdec_lite.theory.rates import (
    acceptance_rate,
    lenient_acceptance_rate,
    lenient_distance,
    optimal_acceptance,
    residual,
    total_variation,
)
from specdec_lite.theory.speedup import (
    break_even_tokens,
    corrected_improvement,
    operations_factor,
    optimal_gamma,
    walltime_improvement,
)
from specdec_lite.theory.starts import round_starts
from specdec_lite.theory.tokens import (
    conditional_acceptance,
    drafted_acceptance,
    expected_tokens,
    implied_alpha,
    tokens_from_profile,
)

__all__ = [
    "SUM_TOLERANCE",
    "acceptance_rate",
    "break_even_tokens",
    "conditional_acceptance",
    "corrected_improvement",
    "drafted_acceptance",
    "expected_tokens",
    "implied_alpha",
    "lenient_acceptance_rate",
    "lenient_distance",
    "operations_factor",
    "optimal_acceptance",
    "optimal_gamma",
    "residual",
    "round_starts",
    "tokens_from_profile",
    "total_variation",
    "walltime_improvement",
]
