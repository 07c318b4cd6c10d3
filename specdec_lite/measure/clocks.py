"""Time jobs: repeat them alternately after a warm-up, and report medians and quartiles.

On a GPU the clock is a pair of CUDA events, elsewhere the processor's own.
"""

import statistics
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

import torch

from specdec_lite.speculation import elapsed, now

Job = Callable[[], object]
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of the seconds of a job.

    Attributes:
        median: seconds; half of the repetitions took less.
        low: first quartile in seconds.
        high: third quartile in seconds.
    """

    median: float
    low: float
    high: float


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all work that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def clocked(job: Job, device: torch.device) -> float:
    """Run a job once and return its seconds, including the gaps between its kernels."""
    synchronize(device)
    start = now(device)
    job()
    end = now(device)
    synchronize(device)
    return elapsed(start, end)


def samples(
    jobs: Mapping[Name, Job],
    device: torch.device,
    repeats: int = 15,
    warmup: int = 3,
    budget: float | None = None,
) -> dict[Name, list[float]]:
    """Time every job repeatedly; the jobs alternate, so that a slower machine slows all of them."""
    seconds: dict[Name, list[float]] = {name: [] for name in jobs}
    start = perf_counter()
    for turn in range(warmup + repeats):
        if turn > warmup and budget is not None and perf_counter() - start > budget:
            break
        for name, job in jobs.items():
            one = clocked(job, device)
            if turn >= warmup:
                seconds[name].append(one)
    return seconds


def interleaved(
    jobs: Mapping[Name, Job], device: torch.device, repeats: int = 15, warmup: int = 3
) -> dict[Name, float]:
    """Return the median seconds of each job, timed alternately."""
    return {
        name: statistics.median(seconds)
        for name, seconds in samples(jobs, device, repeats, warmup).items()
    }


def spreads(
    jobs: Mapping[Name, Job],
    device: torch.device,
    repeats: int = 15,
    warmup: int = 3,
    budget: float | None = None,
) -> dict[Name, Spread]:
    """Return median and quartiles of each job's seconds, timed alternately."""
    return {
        name: _spread(seconds)
        for name, seconds in samples(jobs, device, repeats, warmup, budget).items()
    }


def _spread(seconds: list[float]) -> Spread:
    if len(seconds) == 1:
        return Spread(*seconds * 3)
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Spread(median, low, high)
