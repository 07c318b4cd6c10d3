"""The simulated server compared with closed forms of queues, with conservation, and under load."""

import numpy as np
import pytest

from specdec_lite import theory
from specdec_lite.simulation.goodput import PassTimes, best_gamma, estimated, goodput, steady
from specdec_lite.simulation.simulate import Request, by_goodput, fixed, poisson, simulate

ALONE = PassTimes((1,), (1, 5), ((1.0, 1.0),), (0.0,))
TOY = estimated(lambda batch, k: max(1.0, batch * k / 64), lambda batch: 0.05)
"""A pass over up to 64 positions takes 1, a drafted token 0.05."""


def run(rate, policy, times=TOY, slots=64, count=800, tokens=20, alphas=(0.8,), seed=0, **more):
    rng = np.random.default_rng(seed)
    return simulate(poisson(rate, count, tokens, alphas, rng), times, policy, slots, rng, **more)


@pytest.mark.slow
@pytest.mark.parametrize("busy", [0.3, 0.7])
def test_plain_decoding_in_one_slot_is_a_queue_with_fixed_service(busy):
    service = 20 * 1.0
    result = run(busy / service, fixed(0), ALONE, slots=1, count=20_000)
    wait = np.mean([each.admitted - each.request.arrival for each in result.served])
    assert wait == pytest.approx(busy * service / (2 * (1 - busy)), rel=0.08)


def test_drafting_in_one_slot_follows_pollaczek_and_khinchine():
    result = run(0.1, fixed(4), ALONE, slots=1, count=20_000)
    services = np.array([each.done - each.admitted for each in result.served])
    busy = 0.1 * services.mean()
    wait = 0.1 * (services**2).mean() / (2 * (1 - busy))
    waits = [each.admitted - each.request.arrival for each in result.served]
    assert np.mean(waits) == pytest.approx(wait, rel=0.08)


@pytest.mark.parametrize("policy", [fixed(0), fixed(4), by_goodput(TOY)], ids=["0", "4", "goodput"])
def test_every_token_and_every_second_is_accounted_for(policy):
    result = run(1.5, policy, count=500)
    assert len(result.served) == 500
    assert sum(each.emitted for each in result.rounds) == 500 * 20
    assert all(a.end <= b.begin for a, b in zip(result.rounds, result.rounds[1:]))
    stays = sum(each.done - each.admitted for each in result.served)
    assert stays == pytest.approx(sum(r.batch * (r.end - r.begin) for r in result.rounds))
    assert all(each.request.arrival <= each.admitted < each.done for each in result.served)
    order = sorted(result.served, key=lambda each: each.request.arrival)
    assert all(a.admitted <= b.admitted for a, b in zip(order, order[1:])), (
        "first come, first served"
    )
    assert max(each.batch for each in result.rounds) <= 64


def test_the_first_round_of_a_request_emits_one_token():
    rng = np.random.default_rng(0)
    requests = [Request(0.0, 5, 1.0), Request(0.5, 5, 1.0)]
    result = simulate(requests, ALONE_TWO, fixed(4), 2, rng)
    assert [each.emitted for each in result.rounds] == [1, 5, 4]
    ends = [each.end for each in result.rounds]
    assert ends == [1.0, 2.5, 3.5] and [each.done for each in result.served] == ends[1:]


ALONE_TWO = PassTimes((1, 2), (1, 5), ((1.0, 1.0), (1.5, 1.5)), (0.0, 0.0))


def test_acceptance_equals_the_given_rate():
    result = run(0.5, fixed(4), tokens=400, count=200)
    whole = [each for each in result.rounds if each.gamma == 4]
    tau = sum(each.emitted for each in whole) / sum(each.batch for each in whole)
    assert tau == pytest.approx(theory.expected_tokens(0.8, 4), rel=0.02)


def test_goodput_drafts_less_in_larger_batches():
    gains = {}
    for batch in (4, 16, 64, 128):
        alphas = [0.8] * batch
        gamma = best_gamma(alphas, TOY)
        gains[batch] = (gamma, goodput(alphas, gamma, TOY) / goodput(alphas, 0, TOY))
    assert gains[4][1] == pytest.approx(3.1, abs=0.05)
    assert gains[16] == (3, pytest.approx(2.57, abs=0.05))
    assert gains[64] == gains[128] == (0, 1.0)
    assert best_gamma([0.0] * 4, TOY) == 0
    by_rate = max(range(1, 9), key=lambda gamma: theory.drafted_acceptance(0.8, gamma))
    assert by_rate == 1, "maximizing the acceptance rate always drafts one token"


@pytest.mark.slow
@pytest.mark.parametrize("gamma, rate", [(0, 0.4), (3, 0.4), (3, 0.7)])
def test_the_steady_state_equals_the_simulated_mean(gamma, rate):
    result = run(rate, fixed(gamma), tokens=200, slots=256, times=CURVED, count=3000)
    expected = steady(rate * 200, 0.8, gamma, CURVED, 256)
    assert not expected.is_overloaded
    seconds = [each.end - each.begin for each in result.rounds]
    batch = np.average([each.batch for each in result.rounds], weights=seconds)
    assert batch == pytest.approx(expected.batch, rel=0.1)
    assert result.latency_per_token == pytest.approx(expected.latency, rel=0.1)


CURVED = estimated(lambda batch, k: 0.2 + 0.004 * batch * k, lambda batch: 0.01)


def test_a_table_is_interpolated_linearly():
    table = PassTimes((1, 2, 4), (1, 3), ((1.0, 2.0), (2.0, 4.0), (4.0, 8.0)), (0.5, 0.7, 1.0))
    assert table.covers(4, 3) and not table.covers(5, 1) and not table.covers(1, 4)
    assert [table.of_pass(b, k) for b, k in [(1, 1), (1, 3), (4, 1), (4, 3)]] == [1, 2, 4, 8]
    assert table.of_pass(1, 2) == 1.5 and table.of_pass(2.5, 1) == 2.5
    assert table.of_round(4, 2) == 2 * 1.0 + 8
