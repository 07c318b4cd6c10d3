"""Chapter 16's last exercise: its cases tell the mistakes apart."""

from specdec_book.exercises.gpu import COSTS, best_gamma
from specdec_lite import theory


def test_some_case_needs_each_term_of_the_formula():
    assert any(best_gamma(*case) != theory.optimal_gamma(case[0], case[1], 16)[0] for case in COSTS)
    assert any(best_gamma(*case) != best_gamma(*case[:3], 0.0) for case in COSTS) and any(
        best_gamma(*case) == 0 for case in COSTS
    )
