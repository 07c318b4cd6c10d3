"""Schedules on the virtual clock compared with examples worked out by hand and with bounds."""

import numpy as np
import pytest

from specdec_lite import theory
from specdec_lite.simulation.clock import Clock, Record, amusd, one_after_another, pearl, saguaro

record = lambda ranks, c=0.1: Record(ranks, c, lambda tokens: 1.0)


def test_lanes_run_in_parallel_and_jobs_wait_for_their_lane():
    clock = Clock()
    assert clock.now == 0 and clock.run("a", 2.0) == 2.0 and clock.run("b", 1.0, after=0.5) == 1.5
    assert clock.run("b", 1.0) == 2.5 and clock.run("a", 1.0, after=5.0) == 6.0
    assert clock.now == 6.0 and clock.idle("a") == 3.0 and clock.idle("b") == 4.0


def test_one_after_another_follows_the_speedup_formula():
    ranks = (np.random.default_rng(0).random(4000) > 0.8).astype(int).tolist()
    replay = one_after_another(record(ranks), 6)
    assert replay.clock.now == pytest.approx(replay.rounds * 1.6)
    tokens = theory.expected_tokens(0.8, 6)
    assert replay.tokens / replay.rounds == pytest.approx(tokens, rel=0.1)
    assert replay.speed == pytest.approx(theory.walltime_improvement(0.8, 6, 0.1), rel=0.1)


def test_saguaro_hits_by_hand():
    """γ = 2. One draft is accepted, then a token of rank 2 follows; then a whole block is accepted
    and the bonus has rank 0; then a token of rank 5 follows, which was not predicted.
    """
    replay = saguaro(record([0, 2, 0, 0, 0, 5, 0]), 2, fan=3)
    prepared = [span.use for span in replay.clock.spans if span.label == "prepare"]
    assert prepared[:3] == [1.0, 1.0, 0.0]
    drafts = [span for span in replay.clock.spans if span.label == "draft"]
    assert len(drafts) == 2 and drafts[1].start == 3.2


def test_pearl_by_hand():
    """γ = 2; a drafted token takes half a pass. The first block is rejected. Then the first token is
    accepted and its block is verified while the next one is drafted. The second block contains a
    rejection.
    """
    replay = pearl(record([1, 0, 0, 0, 3, 0, 0], c=0.5), 2)
    labels = [span.label for span in replay.clock.spans if span.lane == "target"]
    assert labels == ["verify the first", "verify the first", "verify", "verify", *labels[4:]]
    assert replay.clock.now == replay.rounds and replay.tokens >= 7
    assert labels[4] == "verify the first"
    all_rejected = pearl(record([1] * 5, c=0.5), 2)
    assert all_rejected.tokens == all_rejected.rounds == 5


def test_amusd_by_hand():
    """A drafted token takes half a pass. The target verifies one token, then two tokens per pass; a
    rejection restarts both lanes.
    """
    replay = amusd(record([0, 0, 0, 0, 2, 0, 0], c=0.5))
    ends = [(span.start, span.end) for span in replay.clock.spans if span.lane == "target"]
    assert ends[:3] == [(0.5, 1.5), (1.5, 2.5), (2.5, 3.5)]
    assert ends[3][0] == 4.0
    (first, *_) = [span for span in replay.clock.spans if span.lane == "draft"]
    assert first.use == 4 * 0.5 / (first.end - first.start), "four of its drafts are in the text"


@pytest.mark.parametrize("schedule", [pearl, saguaro, lambda text, gamma: amusd(text)])
def test_no_schedule_is_faster_than_a_free_perfect_draft(schedule):
    perfect = schedule(record([0] * 400, c=0.25), 4)
    assert perfect.speed <= 5 and perfect.clock.idle("target") >= 0
    assert schedule(record([1] * 50, c=0.25), 4).speed <= 1.0
