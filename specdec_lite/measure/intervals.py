"""How far a measured number can be trusted: intervals by drawing prompts and runs anew."""

import math
from collections.abc import Callable

import numpy as np

RESAMPLES = 2000


def estimate(statistic: Callable, *samples, resamples: int = RESAMPLES, seed: int = 0) -> dict:
    """A statistic of sums with its 95 % bootstrap interval, clustered by prompt.

    Args:
        statistic: of as many sums as there are samples; takes arrays.
        samples: [prompts, sweeps] each, paired: what is drawn of one is drawn of all.
        resamples, seed: of the bootstrap.

    Prompts are drawn with replacement, then sweeps within every drawn prompt; the interval runs
    between the 2.5 and 97.5 percentiles. {"value": None, "interval": None} where it is not defined.
    """
    arrays = [np.asarray(sample, dtype=float) for sample in samples]
    prompts, sweeps = arrays[0].shape
    rng = np.random.default_rng(seed)
    drawn = rng.integers(prompts, size=(resamples, prompts, 1))
    within = rng.integers(sweeps, size=(resamples, prompts, sweeps))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(*(array.sum() for array in arrays)))
        spread = statistic(*(array[drawn, within].sum((1, 2)) for array in arrays))
    if not math.isfinite(value):
        return {"value": None, "interval": None}
    spread = spread[np.isfinite(spread)]
    return {"value": value, "interval": np.quantile(spread, (0.025, 0.975)).tolist()}


def ratio(over, under) -> dict:
    """Σ over ÷ Σ under with its interval; both [prompts, sweeps]."""
    return estimate(lambda a, b: a / b, over, under)
