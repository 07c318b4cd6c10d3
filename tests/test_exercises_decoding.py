"""Every check accepts the solution, refuses the stub, and names the mistakes that it knows."""
import numpy as np
import pytest

from specdec_lite import exercises_decoding as ex


def top_k(probs, k):
    probs = np.array(probs)
    kept = np.where(np.argsort(np.argsort(-probs)) < k, probs, 0)
    return kept / kept.sum()


def nucleus(probs, top_p):
    probs, kept, mass = np.array(probs), np.zeros(len(probs)), 0.0
    for token in np.argsort(-probs, kind="stable"):
        if mass >= top_p - 1e-12:
            break
        kept[token], mass = probs[token], mass + probs[token]
    return kept / kept.sum()


def positions(prompt, new, cached):
    return prompt + new - 1 if cached else prompt * new + new * (new - 1) // 2


def accepted(ratios, uniforms):
    count = 0
    while count < len(ratios) and uniforms[count] < ratios[count]:
        count += 1
    return count


def lengths(committed, gamma, kept):
    return committed + kept, committed + min(kept, gamma - 1)


def emitted(tokens, p, q, uniforms, last):
    p, q = np.array(p), np.array(q)
    count = accepted([p[i, x] / q[i, x] for i, x in enumerate(tokens)], uniforms)
    law = p[count] if count == len(tokens) else np.maximum(p[count] - q[count], 0)
    return [*tokens[:count], int(np.searchsorted(np.cumsum(law / law.sum()), last, side="right"))]


CHECKS = {ex.check_top_k: top_k, ex.check_nucleus: nucleus, ex.check_positions_scored: positions, ex.check_accepted: accepted,
          ex.check_cache_lengths: lengths, ex.check_round: emitted}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_solution_passes(check):
    assert check(CHECKS[check]), check(CHECKS[check])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("stub", [lambda *case: None, lambda *case: ..., lambda *case: 1 / 0])
def test_stub_is_told_what_is_missing(check, stub):
    outcome = check(stub)
    assert not outcome and ("write the missing line" in outcome.message or "ZeroDivisionError" in outcome.message)


WRONG = [
    (ex.check_top_k, lambda probs, k: top_k(probs, k) * sum(sorted(probs)[-k:]), "sum to 1 again"),
    (ex.check_top_k, lambda probs, k: np.array([*probs[:k], *[0] * (len(probs) - k)]) / sum(probs[:k]), "not the k likeliest"),
    (ex.check_nucleus, lambda probs, p: ex._nucleus(probs, p, crossing=False), "belongs to the nucleus"),
    (ex.check_nucleus, lambda probs, p: np.where(nucleus(probs, p) > 0, probs, 0), "sum to 1 again"),
    (ex.check_positions_scored, lambda n, m, cached: n + m if cached else positions(n, m, False), "never fed"),
    (ex.check_positions_scored, lambda n, m, cached: positions(n, m, True) if cached else n * m, "grows by one"),
    (ex.check_positions_scored, lambda n, m, cached: m if cached else positions(n, m, False), "computed once"),
    (ex.check_accepted, lambda r, u: sum(b < a for a, b in zip(r, u)), "first failure"),
    (ex.check_accepted, lambda r, u: min(accepted(r, u) + 1, len(r)), "not accepted"),
    (ex.check_cache_lengths, lambda m, g, a: (m + a, m + a), "one shorter"),
    (ex.check_cache_lengths, lambda m, g, a: (m + g, m + g - 1), "cut away"),
    (ex.check_cache_lengths, lambda m, g, a: (m + a + 1, min(m + g - 1, m + a + 1)), "in neither cache"),
    (ex.check_round, lambda *case: ex._round(*case, recover=lambda p, q: p), "not from p"),
    (ex.check_round, lambda *case: emitted(*case)[:-1], "one token more"),
    (ex.check_round, lambda *case: ex._round(*case, bonus=False), "bonus token"),
]


@pytest.mark.parametrize("check, wrong, said", WRONG, ids=[f"{check.__name__}-{said}" for check, _, said in WRONG])
def test_known_mistake_is_named(check, wrong, said):
    outcome = check(wrong)
    assert not outcome and said in outcome.message, outcome
