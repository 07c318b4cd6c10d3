"""Intervals of measured ratios cover at the rate that they state, and pair what was paired."""

import numpy as np
import pytest
from scipy import stats

from specdec_lite.measure.intervals import estimate, ratio

PROMPTS, SWEEPS, SETS = 12, 8, 300
LEAST_COVERED = 243
"""Of 300 intervals that cover with probability .9, fewer than this with probability 1e-6."""


def covered(interval):
    """Count the intervals, out of SETS, that contain the true ratio 2.

    Seconds vary by prompt and by turn; the ratio varies by prompt.
    """
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(SETS):
        length = rng.lognormal(0, 0.3, (PROMPTS, 1))
        gain = rng.lognormal(-0.5 * 0.25**2, 0.25, (PROMPTS, 1))
        noise = rng.lognormal(-0.5 * 0.05**2, 0.05, (2, PROMPTS, SWEEPS))
        low, high = interval(2 * length * gain * noise[0], length * noise[1])
        hits += low <= 2 <= high
    return hits


@pytest.mark.statistical(rate=1e-6)
def test_intervals_cover_at_the_rate_they_state():
    def clustered(over, under):
        return estimate(lambda a, b: a / b, over, under, resamples=400)["interval"]

    def by_turn(over, under):  # treats turns of one prompt as independent
        return clustered(over.reshape(-1, 1), under.reshape(-1, 1))

    assert stats.binom.cdf(LEAST_COVERED - 1, SETS, 0.9) < 1e-6
    assert covered(clustered) >= LEAST_COVERED > covered(by_turn)


def test_an_estimate_is_paired_and_of_sums():
    over = np.array([[1.0, 3.0], [20.0, 40.0], [5.0, 7.0]])
    result = ratio(2 * over, over)
    assert result["value"] == 2 and result["interval"] == pytest.approx([2, 2])
    assert ratio([[1.0], [8.0]], [[1.0], [2.0]])["value"] == 3
    assert ratio([[0.0]] * 3, [[0.0]] * 3) == {"value": None, "interval": None}
    assert ratio([[1.0], [2.0]], [[0.0], [1.0]])["interval"][0] == 2
    assert result == ratio(2 * over, over)
