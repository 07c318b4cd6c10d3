"""Every check accepts the solution, refuses the stub, and names the mistakes that it knows."""
import numpy as np
import pytest

from specdec_lite import exercises_medusa as ex


def mask(parents):
    seen = [[0] * len(parents) for _ in parents]
    for node in range(len(parents)):
        above = node
        while above >= 0:
            seen[node][above] = 1
            above = parents[above]
    return np.array(seen).reshape(len(parents), len(parents))


def expected(paths, accuracies):
    tokens = 1.0
    for path in paths:
        chance = 1.0
        for level, rank in enumerate(path):
            chance *= accuracies[level][rank]
        tokens += chance
    return tokens


def best_size(worths, times):
    best, fastest, tokens = 0, 1 / times[0], 1.0
    for size, worth in enumerate(worths, start=1):
        tokens += worth
        if tokens / times[size] > fastest:
            best, fastest = size, tokens / times[size]
    return best


CHECKS = {ex.check_mask: mask, ex.check_expected_tokens: expected, ex.check_best_size: best_size}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_solution_passes(check):
    assert check(CHECKS[check]), check(CHECKS[check])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("stub", [lambda *case: None, lambda *case: ..., lambda *case: 1 / 0])
def test_stub_is_told_what_is_missing(check, stub):
    outcome = check(stub)
    assert not outcome and ("write the missing line" in outcome.message or "ZeroDivisionError" in outcome.message)


WRONG = [
    (ex.check_mask, lambda parents: np.tril(np.ones((len(parents), len(parents)))), "plain causal mask"),
    (ex.check_mask, lambda parents: ex._without_ancestors(parents), "grandparents"),
    (ex.check_mask, lambda parents: mask(parents) - np.eye(len(parents)), "sees itself"),
    (ex.check_mask, lambda parents: mask(parents).T, "exchanged"),
    (ex.check_expected_tokens, lambda paths, a: expected(paths, a) - 1, "begins at 1"),
    (ex.check_expected_tokens, lambda paths, a: 1 + sum(a[len(p) - 1][p[-1]] for p in paths), "multiply along its path"),
    (ex.check_expected_tokens, lambda paths, a: 1 + sum(len(p) * (expected([p], a) - 1) for p in paths), "by its depth"),
    (ex.check_expected_tokens, lambda paths, a: expected([p for p in paths if all(q[:len(p)] != p or q == p for q in paths)], a), "not only the leaves"),
    (ex.check_best_size, lambda worths, times: len(worths), "divide by the time"),
    (ex.check_best_size, lambda worths, times: max(1, best_size(worths, times)), "no tree at all"),
    (ex.check_best_size, lambda worths, times: min(best_size(worths, times) + 1, len(worths)), "off-by-one"),
    (ex.check_best_size, lambda worths, times: int(np.argmax([sum(worths[:m]) / times[m] for m in range(len(times))])), "1 + the worth"),
]


@pytest.mark.parametrize("check, wrong, said", WRONG, ids=[f"{check.__name__}-{said}" for check, _, said in WRONG])
def test_known_mistake_is_named(check, wrong, said):
    outcome = check(wrong)
    assert not outcome and said in outcome.message, outcome
