"""Choose γ for a whole batch: the draft length with the most tokens per second, possibly 0.

The costs are a table T(B, k). `steady` computes a server's balance under a constant load;
`simulate` serves single requests. γ depends only on past rounds, so every lossless rule stays
lossless. Source: Liu et al. 2024, arXiv 2406.14066 (SmartSpec).
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from specdec_lite import theory


@dataclass(frozen=True, slots=True)
class PassTimes:
    """A table of T(B, k), interpolated linearly in B and in k.

    Attributes:
        batches: B of the rows, increasing from 1.
        tokens: k of the columns, increasing from 1.
        seconds: seconds of a target pass [len(batches)][len(tokens)], above 0.
        drafting: seconds per drafted token for the whole batch [len(batches)]; 0 for a drafter
            without a model.
    """

    batches: tuple[int, ...]
    tokens: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    drafting: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("batches", "tokens"):
            row = getattr(self, name)
            if not row or row[0] != 1 or any(a >= b for a, b in zip(row, row[1:])):
                raise ValueError(f"{name}={row!r}: must increase from 1")
        shape = len(self.batches), len(self.tokens)
        if np.shape(self.seconds) != shape or len(self.drafting) != shape[0]:
            raise ValueError(
                f"seconds has shape {np.shape(self.seconds)}, drafting {len(self.drafting)} entries:"
                f" must be {shape} and {shape[0]}, by batch and by tokens"
            )
        if min(map(min, self.seconds)) <= 0 or min(self.drafting) < 0:
            raise ValueError("seconds must be above 0, and drafting at least 0")

    def of_pass(self, batch: float, tokens: float) -> float:
        """Return the seconds of a target pass over this many tokens per row, on average."""
        column, share = between("tokens", tokens, self.tokens)
        row = [interpolate(times, column, share) for times in self.seconds]
        return interpolate(row, *between("batch", batch, self.batches))

    def of_round(self, batch: float, gamma: int) -> float:
        """Return the seconds of a round."""
        one = interpolate(self.drafting, *between("batch", batch, self.batches))
        return gamma * one + self.of_pass(batch, gamma + 1)

    def of_drafted(self, batch: int, drafted: int) -> float:
        """Return the seconds of a target pass that verifies this many drafted tokens, over all rows."""
        return self.of_pass(batch, 1 + drafted / batch)

    def covers(self, batch: float, tokens: float) -> bool:
        """Return whether a pass over this many tokens in each row is within the table."""
        points = (batch, self.batches), (tokens, self.tokens)
        return all(values[0] <= value <= values[-1] for value, values in points)

    @property
    def largest_gamma(self) -> int:
        """Largest γ whose round is in the table."""
        return self.tokens[-1] - 1


def between(name: str, value: float, points: Sequence[int]) -> tuple[int, float]:
    """Return (index, share) of a value between two points of a table."""
    if not points[0] <= value <= points[-1]:
        raise ValueError(
            f"{name}={value}: must be in {points[0]} … {points[-1]}, the range of the table"
        )
    index = max(0, min(bisect_right(points, value) - 1, len(points) - 2))
    width = points[index + 1] - points[index] if len(points) > 1 else 1
    return index, (value - points[index]) / width


def interpolate(values: Sequence[float], index: int, share: float) -> float:
    """Return the value between two entries."""
    if share == 0:
        return values[index]
    return values[index] + share * (values[index + 1] - values[index])


def estimated(seconds: Callable[[int, int], float], drafting: Callable[[int], float]) -> PassTimes:
    """Tabulate formulas for B = 1, 2, 4 … 256 and k = 1 … 9."""
    batches = tuple(2**i for i in range(9))
    tokens = tuple(range(1, 10))
    table = tuple(tuple(seconds(batch, k) for k in tokens) for batch in batches)
    return PassTimes(batches, tokens, table, tuple(map(drafting, batches)))


def goodput(alphas: Sequence[float], gamma: int, times: PassTimes) -> float:
    """Return the expected tokens per second of a batch."""
    tokens = float(np.sum(tokens_of_round(alphas, gamma)))
    return tokens / times.of_round(len(alphas), gamma)


def tokens_of_round(alpha: ArrayLike, gamma: int) -> float | np.ndarray:
    """Return the expected tokens per sequence that a round emits."""
    return theory.expected_tokens(alpha, gamma) if gamma else np.ones_like(alpha, float)


def best_gamma(alphas: Sequence[float], times: PassTimes, largest: int | None = None) -> int:
    """Return the γ with the highest goodput; the smallest one if several are equal."""
    largest = times.largest_gamma if largest is None else largest
    return max(range(largest + 1), key=lambda gamma: goodput(alphas, gamma, times))


# Under a constant load ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Steady:
    """A server in balance with its load.

    Attributes:
        batch: mean number of sequences that are decoded together, ≥ 1.
        latency: seconds per token of one sequence.
        capacity: tokens per second with all slots in use.
        is_overloaded: whether the load exceeds the capacity. The queue then grows without limit,
            and batch and latency are those of full slots.
    """

    batch: float
    latency: float
    capacity: float
    is_overloaded: bool


def steady(load: float, alpha: float, gamma: int, times: PassTimes, slots: int) -> Steady:
    """Compute the balance in which a server emits as many tokens per second as requests ask for.

    The batch is the smallest B ≥ 1 with B · τ ÷ round(B) = load. Random fluctuations are averaged
    out, which is too optimistic near the capacity. A server that is mostly idle decodes one
    sequence at a time.
    """
    tau = float(tokens_of_round(alpha, gamma))
    rate = lambda batch: batch * tau / times.of_round(batch, gamma)
    points = [batch for batch in times.batches if batch < slots] + [slots]
    first = next((i for i, point in enumerate(points) if rate(point) >= load), None)
    if first is None:
        batch = float(slots)
    elif first == 0:
        batch = 1.0
    else:
        batch = crossing(points[first - 1], points[first], load, tau, gamma, times)
    return Steady(batch, times.of_round(batch, gamma) / tau, rate(slots), rate(slots) < load)


def crossing(low: int, high: int, load: float, tau: float, gamma: int, times: PassTimes) -> float:
    """Return the B with B · τ = load · round(B) between two batch sizes of the table."""
    first, last = times.of_round(low, gamma), times.of_round(high, gamma)
    slope = (last - first) / (high - low)
    return load * (first - slope * low) / (tau - load * slope)
