"""Requests on a virtual clock: closed forms of queues, what must be conserved, and γ under load."""

import numpy as np
import pytest

from specdec_lite import theory
from specdec_lite.serving.goodput import PassTimes, best_gamma, estimated, goodput, steady
from specdec_lite.serving.simulate import Request, by_goodput, fixed, poisson, simulate

ALONE = PassTimes((1,), (1, 5), ((1.0, 1.0),), (0.0,))
TOY = estimated(lambda batch, k: max(1.0, batch * k / 64), lambda batch: 0.05)
"""64 positions of a pass are free, a drafted token costs a twentieth."""


def run(rate, policy, times=TOY, slots=64, count=800, tokens=20, alphas=(0.8,), seed=0, **more):
    rng = np.random.default_rng(seed)
    return simulate(poisson(rate, count, tokens, alphas, rng), times, policy, slots, rng, **more)


@pytest.mark.parametrize("busy", [0.3, 0.7])
def test_alone_and_plain_it_is_the_queue_with_one_server_and_equal_services(busy):
    service = 20 * 1.0 + 2.0
    found = run(busy / service, fixed(0), ALONE, slots=1, count=20_000, prefill=2.0)
    wait = np.mean([each.wait for each in found.served])
    assert wait == pytest.approx(busy * service / (2 * (1 - busy)), rel=0.08)


def test_alone_with_drafts_it_is_the_queue_of_pollaczek_and_khinchine():
    found = run(0.1, fixed(4), ALONE, slots=1, count=20_000)
    services = np.array([each.done - each.admitted for each in found.served])
    busy = 0.1 * services.mean()
    wait = 0.1 * (services**2).mean() / (2 * (1 - busy))
    assert np.mean([each.wait for each in found.served]) == pytest.approx(wait, rel=0.08)


@pytest.mark.parametrize("policy", [fixed(0), fixed(4), by_goodput(TOY)], ids=["0", "4", "goodput"])
def test_nothing_is_lost_on_the_way(policy):
    found = run(1.5, policy, count=500, prefill=0.5)
    assert len(found.served) == 500
    assert sum(each.emitted for each in found.rounds) == 500 * 20
    assert all(a.end <= b.begin for a, b in zip(found.rounds, found.rounds[1:]))
    stays = sum(each.done - each.admitted for each in found.served)
    assert stays == pytest.approx(sum(r.batch * (r.end - r.begin) for r in found.rounds))
    assert all(each.wait >= 0 and each.latency > each.wait for each in found.served)
    order = sorted(found.served, key=lambda each: each.request.arrival)
    assert all(a.admitted <= b.admitted for a, b in zip(order, order[1:])), "first come"
    assert max(each.batch for each in found.rounds) <= 64


def test_a_first_round_reads_the_prompt_and_emits_one_token():
    rng = np.random.default_rng(0)
    requests = [Request(0.0, 5, 1.0), Request(0.5, 5, 1.0)]
    found = simulate(requests, ALONE_TWO, fixed(4), 2, rng, prefill=0.25)
    assert [each.emitted for each in found.rounds] == [1, 5, 4]
    ends = [each.end for each in found.rounds]
    assert ends == [1.25, 1.25 + 1.5 + 0.25, 3.0 + 1.0], "the second's prompt delays the first"
    assert [each.done for each in found.served] == [3.0, 4.0]


ALONE_TWO = PassTimes((1, 2), (1, 5), ((1.0, 1.0), (1.5, 1.5)), (0.0, 0.0))


def test_acceptance_is_what_was_given():
    found = run(0.5, fixed(4), tokens=400, count=200)
    share = sum(each.accepted for each in found.rounds) / sum(each.tested for each in found.rounds)
    assert share == pytest.approx(0.8, abs=0.01)
    whole = [each for each in found.rounds if each.gamma == 4]
    tau = sum(each.emitted for each in whole) / sum(each.batch for each in whole)
    assert tau == pytest.approx(theory.expected_tokens(0.8, 4), rel=0.02)


def test_goodput_drafts_until_the_pass_is_full():
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
    assert by_rate == 1, "the greatest rate always asks for one token, at any load"


def test_under_light_load_drafts_help_and_under_heavy_load_goodput_stops_them():
    light = {name: run(0.5, policy, count=600).latency_a_token for name, policy in POLICIES.items()}
    assert light["4"] < 0.5 * light["0"] and light["goodput"] < 0.5 * light["0"]
    heavy = {name: run(6.0, policy, count=1500).throughput for name, policy in POLICIES.items()}
    assert heavy["4"] < 0.8 * heavy["0"]
    assert heavy["goodput"] > 0.95 * heavy["0"]


POLICIES = {"0": fixed(0), "4": fixed(4), "goodput": by_goodput(TOY)}


@pytest.mark.parametrize("gamma, rate", [(0, 0.4), (3, 0.4), (3, 0.7)])
def test_the_steady_state_is_where_the_requests_settle(gamma, rate):
    found = run(rate, fixed(gamma), tokens=200, slots=256, times=CURVED, count=3000)
    wanted = steady(rate * 200, 0.8, gamma, CURVED, 256)
    assert not wanted.is_overloaded
    assert found.mean_batch == pytest.approx(wanted.batch, rel=0.1)
    assert found.latency_a_token == pytest.approx(wanted.latency, rel=0.1)


CURVED = estimated(lambda batch, k: 0.2 + 0.004 * batch * k, lambda batch: 0.01)


def test_the_steady_batch_emits_what_is_asked_for():
    for load in (20, 60, 100):
        found = steady(load, 0.8, 4, CURVED, 200)
        emitted = found.batch * theory.expected_tokens(0.8, 4) / CURVED.of_round(found.batch, 4)
        assert emitted == pytest.approx(load) or found.batch == 1 or found.is_overloaded
    full = steady(1e6, 0.8, 4, CURVED, 200)
    assert full.is_overloaded and full.batch == 200


def test_a_table_is_met_at_its_points_and_straight_between_them():
    table = PassTimes((1, 4), (1, 3), ((1.0, 2.0), (4.0, 8.0)), (0.5, 1.0))
    assert [table.of_pass(b, k) for b, k in [(1, 1), (1, 3), (4, 1), (4, 3)]] == [1, 2, 4, 8]
    assert table.of_pass(1, 2) == 1.5 and table.of_pass(2.5, 1) == 2.5
    assert table.of_round(4, 2) == 2 * 1.0 + 8


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda: TOY.of_pass(257, 1), "batch=257"),
        (lambda: TOY.of_pass(1, 10), "tokens=10"),
        (lambda: PassTimes((2, 1), (1,), ((1.0,), (1.0,)), (0.0, 0.0)), "batches"),
        (lambda: PassTimes((1, 2), (1,), ((1.0,),), (0.0, 0.0)), "seconds"),
        (lambda: PassTimes((1,), (1,), ((0.0,),), (0.0,)), "above 0"),
        (lambda: goodput([], 1, TOY), "alphas"),
        (lambda: goodput([0.5], 9, TOY), "gamma"),
        (lambda: steady(1.0, 0.5, 1, TOY, 300), "slots"),
        (lambda: poisson(0.0, 1, 1, [0.5], None), "rate"),
        (lambda: poisson(1.0, 1, 1, [1.5], None), "alphas"),
        (lambda: simulate([], TOY, fixed(0), 1, None), "requests"),
        (lambda: simulate([Request(0, 1, 1)], TOY, fixed(0), 0, None), "slots"),
        (lambda: simulate([Request(0, 1, 1)], TOY, fixed(0), 1, None, weight=0), "weight"),
    ],
)
def test_bad_input_names_the_argument(call, named):
    with pytest.raises(ValueError, match=named):
        call()
