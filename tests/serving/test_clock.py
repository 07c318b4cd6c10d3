"""The virtual clock: schedules against what they cost by hand, their bounds, and the bias of a token
that is tested twice.
"""

import numpy as np
import pytest
import torch

from specdec_lite import theory
from specdec_lite.acceptance import output_law, residual
from specdec_lite.proposal import Verdict
from specdec_lite.serving.clock import Clock, Record, amusd, one_after_another, pearl, saguaro

FLAT = lambda tokens: 1.0


def record(ranks, c=0.1, verify=FLAT):
    return Record(ranks, c, verify)


def coin(alpha, count=4000, seed=0, others=9):
    """Ranks of a text whose places are accepted with probability alpha."""
    random = np.random.default_rng(seed)
    missed = random.integers(1, others, count)
    return np.where(random.random(count) < alpha, 0, missed).tolist()


def test_lanes_run_beside_one_another_and_jobs_wait_for_their_lane():
    clock = Clock()
    assert clock.now == 0 and clock.run("a", 2.0) == 2.0 and clock.run("b", 1.0, after=0.5) == 1.5
    assert clock.run("b", 1.0) == 2.5 and clock.run("a", 1.0, after=5.0) == 6.0
    assert clock.now == 6.0 and clock.idle("a") == 3.0 and clock.idle("b") == 4.0


def test_one_after_another_is_the_formula():
    ranks = coin(0.8)
    found = one_after_another(record(ranks), 6)
    assert found.clock.now == pytest.approx(found.rounds * 1.6)
    tokens = theory.expected_tokens(0.8, 6)
    assert found.tokens / found.rounds == pytest.approx(tokens, rel=0.1)
    assert found.speed == pytest.approx(theory.walltime_improvement(0.8, 6, 0.1), rel=0.1)


@pytest.mark.parametrize("fan, hits", [(0, 0.0), (100, 1.0)])
def test_saguaro_drafts_for_nothing_on_a_hit_and_anew_on_a_miss(fan, hits):
    ranks = coin(0.8)
    found = saguaro(record(ranks), 6, fan)
    rounds = found.rounds
    assert found.clock.now == pytest.approx(
        rounds + 0.6 * (1 if hits else rounds) - 0.0 * hits, rel=0.01
    )
    plain = one_after_another(record(ranks), 6)
    assert found.tokens == plain.tokens and found.rounds == rounds
    assert plain.speed <= found.speed * 1.0001 <= plain.speed * 1.6 * 1.0002


def test_saguaro_hits_by_hand():
    """γ = 2. One kept, then a token of rank 2; then a whole block, whose bonus the draft would say
    itself; then a token of rank 5, which is not foreseen.
    """
    found = saguaro(record([0, 2, 0, 0, 0, 5, 0]), 2, fan=3)
    prepared = [span.use for span in found.clock.spans if span.what == "prepare"]
    assert prepared[:3] == [1.0, 1.0, 0.0]
    drafts = [span for span in found.clock.spans if span.what == "draft"]
    assert len(drafts) == 2 and drafts[1].start == 3.2


def test_pearl_by_hand():
    """γ = 2, a draft token half a pass. Rejected at once; then the first kept, its block verified
    while the next is drafted, and so on; a rejection in the second block.
    """
    found = pearl(record([1, 0, 0, 0, 3, 0, 0], c=0.5), 2)
    what = [span.what for span in found.clock.spans if span.lane == "target"]
    assert what == ["verify the first", "verify the first", "verify", "verify", *what[4:]]
    assert found.clock.now == found.rounds and found.tokens >= 7
    assert what[4] == "verify the first"
    with_nothing_kept = pearl(record([1] * 5, c=0.5), 2)
    assert with_nothing_kept.tokens == with_nothing_kept.rounds == 5


def test_amusd_by_hand():
    """Half a pass a token: one, then what came meanwhile, two at a time; a rejection sends both
    back.
    """
    found = amusd(record([0, 0, 0, 0, 2, 0, 0], c=0.5))
    ends = [(span.start, span.end) for span in found.clock.spans if span.lane == "target"]
    assert ends[:3] == [(0.5, 1.5), (1.5, 2.5), (2.5, 3.5)]
    assert ends[3][0] == 4.0


@pytest.mark.parametrize("schedule", [pearl, saguaro, lambda found, gamma: amusd(found)])
def test_no_schedule_beats_a_draft_that_costs_nothing_and_is_always_right(schedule):
    perfect = schedule(record([0] * 400, c=0.25), 4)
    assert perfect.speed <= 5 and perfect.clock.idle("target") >= 0
    assert schedule(record([1] * 50, c=0.25), 4).speed <= 1.0


def test_a_draft_must_cost_something():
    with pytest.raises(ValueError, match="draft=0"):
        record([0], c=0)
    with pytest.raises(ValueError, match="gamma=0"):
        pearl(record([0]), 0)


def judged_twice(fresh):
    """A pre-verified token is tested again a pass later: with the same uniform, or a fresh one."""

    def rule(proposal, target_probs, rng):
        token = int(proposal.tree.tokens[0])
        p, q = target_probs[0], proposal.probs[0]
        chance = min(1.0, (p[token] / q[token]).item())
        kept = rng.flip(chance) and (not fresh or rng.flip(chance))
        if kept:
            return Verdict((0,), rng.draw(target_probs[1]), "bonus", (1,))
        return Verdict((), rng.draw(residual(p, q)), "recovered", (1,))

    return rule


def test_a_token_is_decided_once():
    p, q = torch.tensor([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2]], dtype=torch.float64)
    apart = lambda fresh: (output_law(p, q, judged_twice(fresh)) - p).abs().sum().item() / 2
    assert apart(False) < 1e-12 and apart(True) == pytest.approx(0.12, abs=1e-9)
