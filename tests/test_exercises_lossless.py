"""Chapter 6's exercises: a stub fails and is told why, every known mistake is recognised, the solution passes."""
import numpy as np
import pytest

from specdec_lite import theory
from specdec_lite.exercises_lossless import check_lossless, check_recovered_from_p, check_shy_residual, shy_residual


def right_rule(p, q, x, rng):
    return x if rng.flip((p[x] / q[x]).item()) else rng.draw(theory.residual(p, q))


def from_p(p, q, x, rng):
    return x if rng.flip((p[x] / q[x]).item()) else rng.draw(p)


def from_q(p, q, x, rng):
    return x if rng.flip((p[x] / q[x]).item()) else rng.draw(q)


def argmax(p, q, x, rng):
    return x if rng.flip((p[x] / q[x]).item()) else int((p - q).argmax())


def mass(p, q):
    return np.minimum(p, q)


STUBS = {check_shy_residual: lambda p, q, k: ..., check_recovered_from_p: lambda p, q: None, check_lossless: lambda p, q, x, rng: None}


@pytest.mark.parametrize("check, stub", STUBS.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_a_stub_fails_with_a_message(check, stub):
    outcome = check(stub)
    assert not outcome and ("returns" in outcome.message or "emits None" in outcome.message)


def test_solutions_pass():
    assert check_shy_residual(lambda p, q, k: (p - k * mass(p, q)) / (p - k * mass(p, q)).sum() if k < 1 else theory.residual(p, q))
    assert check_recovered_from_p(lambda p, q: mass(p, q) + (1 - mass(p, q).sum()) * p)
    outcome = check_lossless(right_rule)
    assert outcome and "Exact on all" in outcome.message


def test_other_exact_rules_pass_and_keep_less():
    def match(p, q, x, rng):
        return rng.draw(p)
    def shy(p, q, x, rng):
        return x if rng.flip(0.9 * min(1, (p[x] / q[x]).item())) else rng.draw(p.new_tensor(shy_residual(p.numpy(), q.numpy(), 0.9)))
    kept = [float(check_lossless(rule).message.split("token ")[1].split(" of")[0]) for rule in (right_rule, shy, match)]
    assert check_lossless(match) and check_lossless(shy) and kept[0] > kept[1] > kept[2]


@pytest.mark.parametrize("rule, words", [(from_p, "recovering from p"), (from_q, "replacement from q"), (argmax, "should emit p"),
                                         (lambda p, q, x, rng: x, "every draft is kept"), (lambda p, q, x, rng: 7, "return a token"),
                                         (lambda p, q, x, rng: p / 0 + [], "raises")])
def test_wrong_rules_are_named(rule, words):
    outcome = check_lossless(rule)
    assert not outcome and words in outcome.message


@pytest.mark.parametrize("fn, words", [
    (lambda p, q, k: theory.residual(p, q), "k = 1"), (lambda p, q, k: p, "in proportion"), (lambda p, q, k: p - k * mass(p, q), "divide"),
    (lambda p, q, k: np.maximum(p - k * q, 0) / max(1e-12, np.maximum(p - k * q, 0).sum()), "not k·q"), (lambda p, q, k: q, "answer is")])
def test_wrong_residuals_are_named(fn, words):
    outcome = check_shy_residual(fn)
    assert not outcome and words in outcome.message


@pytest.mark.parametrize("fn, words", [
    (lambda p, q: p, "right rule"), (mass, "accepted part only"), (lambda p, q: mass(p, q) + mass(p, q).sum() * p, "*rejected*"),
    (lambda p, q: mass(p, q) + (1 - mass(p, q).sum()) * q, "not from q"), (lambda p, q: q, "answer is")])
def test_wrong_laws_are_named(fn, words):
    outcome = check_recovered_from_p(fn)
    assert not outcome and words in outcome.message
