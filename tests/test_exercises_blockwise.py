"""Every check accepts the solution, refuses the stub, and names the mistakes that it knows."""
import re

import pytest

from specdec_lite import exercises_blockwise as ex


def block(predicted, greedy):
    count = 1
    while count < len(predicted) and predicted[count] == greedy[count - 1]:
        count += 1
    return count


def passes(m, k):
    blocks = -(-m // k)
    return 2 * blocks, blocks + 1


def expected(chances):
    size, alive = 1.0, 1.0
    for chance in chances:
        alive *= chance
        size += alive
    return size


CHECKS = {ex.check_accepted_block: block, ex.check_passes: passes, ex.check_expected_block: expected}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_solution_passes(check):
    assert check(CHECKS[check]), check(CHECKS[check])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("stub", [lambda *case: None, lambda *case: ..., lambda *case: 1 / 0])
def test_stub_is_told_what_is_missing(check, stub):
    outcome = check(stub)
    assert not outcome and ("write the missing line" in outcome.message or "ZeroDivisionError" in outcome.message)


@pytest.mark.parametrize("check, wrong, told", [
    (ex.check_accepted_block, lambda p, g: block(p, g) - 1, "never has fewer than one"),
    (ex.check_accepted_block, lambda p, g: 1 + sum(a == b for a, b in zip(p[1:], g)), "stop at the first"),
    (ex.check_accepted_block, lambda p, g: next((i for i in range(len(p)) if p[i] != g[i]), len(p)), r"predicted\[i \+ 1\]"),
    (ex.check_accepted_block, lambda p, g: block(p, g) + 1, "begins the next block"),
    (ex.check_passes, lambda m, k: (2 * -(-m // k), -(-m // k)), "a pass of its own"),
    (ex.check_passes, lambda m, k: (2 * m / k, m / k + 1), "round m/k up"),
    (ex.check_passes, lambda m, k: (2 * (m // k), m // k + 1), "not down"),
    (ex.check_passes, lambda m, k: (-(-m // k), -(-m // k) + 1), "two passes a block"),
    (ex.check_expected_block, lambda chances: 1 + sum(chances), "multiply, then add"),
    (ex.check_expected_block, lambda chances: expected(chances) - 1, "add 1"),
    (ex.check_expected_block, lambda chances: 1 + (expected(chances) - expected(chances[:-1])), "one term for every length"),
])
def test_mistakes_are_recognised(check, wrong, told):
    outcome = check(wrong)
    assert not outcome
    assert re.search(told, outcome.message), outcome.message
