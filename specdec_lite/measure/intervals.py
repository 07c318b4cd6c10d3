"""Compute confidence intervals of measured numbers by the bootstrap over prompts and runs."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 2000


def estimate(statistic: Callable, *samples: ArrayLike, resamples: int = RESAMPLES) -> dict:
    """Compute a statistic of sums with its 95 % bootstrap interval, clustered by prompt.

    Each resample draws prompts with replacement, then sweeps within each drawn prompt. The interval
    reaches from the 2.5th to the 97.5th percentile.

    Shapes: *samples [prompts, sweeps].
    """
    arrays = [np.asarray(sample, dtype=float) for sample in samples]
    prompts, sweeps = arrays[0].shape
    rng = np.random.default_rng(0)
    chosen = rng.integers(prompts, size=(resamples, prompts, 1))
    within = rng.integers(sweeps, size=(resamples, prompts, sweeps))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(*(array.sum() for array in arrays)))
        values = statistic(*(array[chosen, within].sum((1, 2)) for array in arrays))
    if not math.isfinite(value):
        return {"value": None, "interval": None}
    finite = values[np.isfinite(values)]
    return {"value": value, "interval": np.quantile(finite, (0.025, 0.975)).tolist()}


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> dict:
    """Compute the ratio of two sums with its 95 % bootstrap interval.

    Shapes: numerator [prompts, sweeps], denominator [prompts, sweeps].
    """
    return estimate(lambda a, b: a / b, numerator, denominator)
