"""Chapter 16's exercises: a stub fails and is told why, known mistakes are recognised, the solution passes."""
import pytest

from specdec_lite import theory
from specdec_lite.exercises_gpu import COSTS, best_gamma, check_best_gamma, check_pair_bytes, check_pass_seconds


def my_best_gamma(alpha, c, step, overhead):
    """The chapter's own solution."""
    best, fastest = 0, 1.0
    for gamma in range(1, 17):
        speedup = theory.corrected_improvement(theory.expected_tokens(alpha, gamma), gamma, c, 1 + step * gamma, overhead)
        if speedup > fastest:
            best, fastest = gamma, speedup
    return best


SOLUTIONS = {
    check_pass_seconds: lambda operations, launch, work: max(operations * launch, work),
    check_pair_bytes: lambda target, draft, width, target_cache, draft_cache, context: width * (target + draft + context * (target_cache + draft_cache)),
    check_best_gamma: my_best_gamma,
}
WRONG = [
    (check_pass_seconds, lambda n, launch, work: n * launch + work, "overlap"),
    (check_pass_seconds, lambda n, launch, work: n * launch, "work is missing"),
    (check_pass_seconds, lambda n, launch, work: work, "launches are missing"),
    (check_pair_bytes, lambda t, d, w, tc, dc, n: w * (t + d), "caches are missing"),
    (check_pair_bytes, lambda t, d, w, tc, dc, n: w * (t + d + n * tc), "draft has a cache"),
    (check_pair_bytes, lambda t, d, w, tc, dc, n: t + d + n * (tc + dc), "those are numbers"),
    (check_best_gamma, lambda a, c, s, o: theory.optimal_gamma(a, c, 16)[0], "plain formula"),
    (check_best_gamma, lambda a, c, s, o: best_gamma(a, c, s, 0.0), "overhead"),
    (check_best_gamma, lambda a, c, s, o: best_gamma(a, c, s, o) or 1, "the answer is 0"),
]


@pytest.mark.parametrize("check", SOLUTIONS, ids=lambda check: check.__name__)
def test_the_solution_passes(check):
    assert check(SOLUTIONS[check])


@pytest.mark.parametrize("check", SOLUTIONS, ids=lambda check: check.__name__)
def test_a_stub_fails_with_a_message(check):
    outcome = check(lambda *case: ...)
    assert not outcome and "write the missing line" in outcome.message


@pytest.mark.parametrize("check, answer, hint", WRONG)
def test_mistakes_are_told_apart(check, answer, hint):
    outcome = check(answer)
    assert not outcome and hint in outcome.message


def test_the_cases_tell_the_mistakes_apart():
    assert any(best_gamma(*case) != theory.optimal_gamma(case[0], case[1], 16)[0] for case in COSTS)
    assert any(best_gamma(*case) != best_gamma(*case[:3], 0.0) for case in COSTS) and any(best_gamma(*case) == 0 for case in COSTS)
