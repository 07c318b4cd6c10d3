"""Chapter 2's exercises: a stub fails and is told why, every known mistake is recognised, the solution passes."""
import pytest

from specdec_lite import roofline
from specdec_lite.exercises_memory import check_crossover_context, check_free_tokens, check_intensity

SOLUTIONS = {
    check_intensity: lambda bytes_per_weight, tokens, batch: 2 * tokens * batch / bytes_per_weight,
    check_free_tokens: lambda width, bandwidth, throughput, batch: int(throughput / bandwidth * width / 2 // batch),
    check_crossover_context: lambda parameters, width, cache: parameters * width / cache,
}
STUBS = {check_intensity: lambda width, tokens, batch: ..., check_free_tokens: lambda *case: None, check_crossover_context: lambda *case: ...}
WRONG = [
    (check_intensity, lambda width, tokens, batch: tokens * batch / width, "two operations"),
    (check_intensity, lambda width, tokens, batch: 2 / width, "every position"),
    (check_intensity, lambda width, tokens, batch: width / (2 * tokens * batch), "inverse"),
    (check_free_tokens, lambda width, bandwidth, throughput, batch: int(throughput / bandwidth * width / 2), "divide by it"),
    (check_free_tokens, lambda width, bandwidth, throughput, batch: roofline.ridge_tokens(width, bandwidth, throughput) / batch, "round down"),
    (check_free_tokens, lambda *case: max(1, SOLUTIONS[check_free_tokens](*case)), "answer 0"),
    (check_crossover_context, lambda parameters, width, cache: parameters / cache, "bytes_per_weight"),
    (check_crossover_context, lambda parameters, width, cache: 7.0, "the answer is"),
]


@pytest.mark.parametrize("check", SOLUTIONS, ids=lambda check: check.__name__)
def test_the_solution_passes(check):
    assert check(SOLUTIONS[check])


@pytest.mark.parametrize("check", STUBS, ids=lambda check: check.__name__)
def test_a_stub_fails_with_a_message(check):
    outcome = check(STUBS[check])
    assert not outcome and "write the missing line" in outcome.message


@pytest.mark.parametrize("check, answer, hint", WRONG)
def test_mistakes_are_told_apart(check, answer, hint):
    outcome = check(answer)
    assert not outcome and hint in outcome.message
