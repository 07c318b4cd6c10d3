"""Chapter 6's open exercise: any exact rule passes, and learns how much of the draft it keeps."""

import random

import pytest

from specdec_book.exercises import answer
from specdec_book.exercises.lossless import check_lossless, shy_residual
from specdec_lite import theory


def speculative(p, q, x, rng):
    return x if rng.flip((p[x] / q[x]).item()) else rng.draw(theory.residual(p, q))


def shy(p, q, x, rng):
    return (
        x
        if rng.flip(0.9 * min(1, (p[x] / q[x]).item()))
        else rng.draw(p.new_tensor(shy_residual(p.numpy(), q.numpy(), 0.9)))
    )


def match(p, q, x, rng):
    return rng.draw(p)


def test_exact_rules_pass_and_differ_in_what_they_keep():
    outcomes = [check_lossless(rule) for rule in (speculative, shy, match)]
    kept = [float(outcome.message.split("token ")[1].split(" of")[0]) for outcome in outcomes]
    assert all(outcomes) and kept[0] > kept[1] > kept[2]


def exact_or(recover):
    """The right test, with a replacement of one's own."""
    return lambda p, q, x, rng: x if rng.flip((p[x] / q[x]).item()) else recover(p, q, rng)


def again(scale):
    """Draws from q until a draft is accepted with p/(scale·q); it has no last outcome."""

    def rule(p, q, x, rng):
        while not rng.flip((p[x] / q[x] / scale(p, q)).item()):
            x = rng.draw(q)
        return x

    return rule


def likeliest(p, q, x, rng):
    """Chapter 5's first rule, with the refill that is exact wherever q is at most p at its peak."""
    missing = (p - q * (p == p.max())).clamp(min=0)
    return x if x == int(p.argmax()) else rng.draw(missing / missing.sum())


WRONG = [
    (likeliest, "target's likeliest token"),
    (exact_or(lambda p, q, rng: rng.draw(p)), "recovering from p"),
    (exact_or(lambda p, q, rng: rng.draw(q)), "replacement from q"),
    (exact_or(lambda p, q, rng: int((p - q).argmax())), "should emit p"),
    (lambda p, q, x, rng: x, "every draft is kept"),
    (again(lambda p, q: 1.0), "min(p, q) divided by its sum"),
    (again(lambda p, q: (p / q).max()), "textbook rejection sampling"),
    (exact_or(lambda p, q, rng: rng.draw((p - q).clamp(min=0))), "Divide the missing mass"),
    (lambda p, q, x, rng: 7, "return a token"),
    (lambda p, q, x, rng: x if random.random() < p[x] / q[x] else 0, "all randomness from rng"),
    (lambda p, q, x, rng: 1 / 0, "ZeroDivisionError in line"),
]


@pytest.mark.parametrize("rule, said", WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_rule_is_told_what_is_wrong(rule, said):
    outcome = check_lossless(rule)
    assert not outcome and said in outcome.message, outcome


def test_a_rule_that_never_ends_is_stopped(monkeypatch):
    def endless(p, q, x, rng):
        while True:
            x += 1

    monkeypatch.setattr(answer, "SECONDS", 0.2)
    assert "was stopped after 0.2 seconds in line" in check_lossless(endless).message
