"""Chapter 6's open exercise: any exact rule passes, and learns how much of the draft it keeps."""

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
