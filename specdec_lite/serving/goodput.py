"""How many tokens to draft for a whole batch: the γ that emits most tokens a second, 0 among them.

What lives here: T(B, k) as a table, goodput, the steady state of a server under load. What does
not: requests that arrive one by one (`simulate`). Source: Liu et al. 2024, arXiv 2406.14066
(SmartSpec). γ rests on the past alone, so that any lossless rule stays lossless.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from specdec_lite import checks, theory


@dataclass(frozen=True, slots=True)
class PassTimes:
    """T(B, k) between the points where it is known: straight lines, in B and in k.

    Attributes:
        batches: B of the rows, rising from 1.
        tokens: k of the columns, rising from 1.
        seconds: of a target pass [len(batches)][len(tokens)], above 0.
        drafting: seconds of a drafted token, all rows together [len(batches)]; 0 where no model
            drafts.
    """

    batches: tuple[int, ...]
    tokens: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    drafting: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("batches", "tokens"):
            row = getattr(self, name)
            if not row or row[0] != 1 or any(a >= b for a, b in zip(row, row[1:])):
                raise ValueError(f"{name}={row!r}: must rise from 1")
        if {len(self.seconds), len(self.drafting)} != {len(self.batches)}:
            raise ValueError(
                f"seconds has {len(self.seconds)} rows and drafting {len(self.drafting)}: each must"
                f" have one for each of {len(self.batches)} batches"
            )
        if any(len(row) != len(self.tokens) for row in self.seconds):
            raise ValueError(f"seconds: each row must have one for each k of {self.tokens}")
        if min(map(min, self.seconds)) <= 0 or min(self.drafting) < 0:
            raise ValueError("seconds must be above 0, and drafting at least 0")

    def of_pass(self, batch: float, tokens: int) -> float:
        """Seconds of a target pass over `tokens` of each of `batch` sequences."""
        column, share = between("tokens", tokens, self.tokens)
        row = [mix(times, column, share) for times in self.seconds]
        return mix(row, *between("batch", batch, self.batches))

    def of_round(self, batch: float, gamma: int) -> float:
        """Seconds of a round of γ drafted tokens for each sequence; γ = 0: a plain pass."""
        one = mix(self.drafting, *between("batch", batch, self.batches))
        return gamma * one + self.of_pass(batch, gamma + 1)

    @property
    def largest_gamma(self) -> int:
        return self.tokens[-1] - 1


def between(name: str, value: float, points: Sequence[int]) -> tuple[int, float]:
    """(place, share): `value` lies so far on the way from points[place] to the next one."""
    if not points[0] <= value <= points[-1]:
        raise ValueError(f"{name}={value}: the table reaches from {points[0]} to {points[-1]}")
    place = max(0, min(bisect_right(points, value) - 1, len(points) - 2))
    width = points[place + 1] - points[place] if len(points) > 1 else 1
    return place, (value - points[place]) / width


def mix(values: Sequence[float], place: int, share: float) -> float:
    if share == 0:
        return values[place]
    return values[place] + share * (values[place + 1] - values[place])


def estimated(seconds: Callable[[int, int], float], drafting: Callable[[int], float]) -> PassTimes:
    """A table of a formula, for B = 1, 2, 4 … 256 and k = 1 … 9.

    seconds: (batch, tokens) → of a target pass, such as `Hardware.seconds`. drafting: batch → of a
    drafted token.
    """
    batches = tuple(2**i for i in range(9))
    tokens = tuple(range(1, 10))
    table = tuple(tuple(seconds(batch, k) for k in tokens) for batch in batches)
    return PassTimes(batches, tokens, table, tuple(map(drafting, batches)))


def goodput(alphas: Sequence[float], gamma: int, times: PassTimes) -> float:
    """Expected tokens a second of a batch in which γ tokens are drafted for each sequence.

    Args:
        alphas: acceptance rate of each sequence, each in [0, 1], at least one.
        gamma: 0 (plain) … the table's largest.
        times: T(B, k) and what drafting costs.
    """
    if not len(alphas):
        raise ValueError("alphas is empty: must hold one rate for each sequence")
    checks.whole("gamma", gamma, 0, times.largest_gamma)
    tokens = float(np.sum(tokens_of_round(alphas, gamma)))
    return tokens / times.of_round(len(alphas), gamma)


def tokens_of_round(alpha: ArrayLike, gamma: int) -> float | np.ndarray:
    """`theory.expected_tokens`, and 1 where nothing is drafted."""
    return theory.expected_tokens(alpha, gamma) if gamma else np.ones_like(alpha, float)


def best_gamma(alphas: Sequence[float], times: PassTimes, largest: int | None = None) -> int:
    """The γ of the greatest goodput, 0 … `largest`; the smaller one of equals.

    largest: None: as far as the table reaches.
    """
    largest = times.largest_gamma if largest is None else largest
    return max(range(largest + 1), key=lambda gamma: goodput(alphas, gamma, times))


# Under a steady load --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Steady:
    """A server in balance.

    Attributes:
        batch: sequences that are being decoded, on the average; at least 1 while any is.
        latency: seconds a token of one sequence.
        capacity: tokens a second with all slots taken.
        is_overloaded: whether more is asked than the capacity: then the queue grows for ever, and
            batch and latency are those of full slots.
    """

    batch: float
    latency: float
    capacity: float
    is_overloaded: bool


def steady(load: float, alpha: float, gamma: int, times: PassTimes, slots: int) -> Steady:
    """Where the tokens that are emitted a second are the tokens that are asked for.

    Args:
        load: tokens a second that all requests together ask for, above 0.
        alpha: acceptance rate of every sequence, [0, 1].
        gamma: draft length, 0 … the table's largest.
        times: T(B, k) and what drafting costs.
        slots: sequences that fit, 1 … the table's largest batch.

    The batch is the smallest B ≥ 1 with B · τ ÷ round(B) = load: chance is averaged away, which
    flatters a server near its capacity, and one that is mostly idle is taken to decode alone.
    """
    checks.number("load", load)
    checks.whole("gamma", gamma, 0, times.largest_gamma)
    checks.whole("slots", slots, 1, times.batches[-1])
    tau = float(tokens_of_round(alpha, gamma))
    rate = lambda batch: batch * tau / times.of_round(batch, gamma)
    points = [batch for batch in times.batches if batch < slots] + [slots]
    if rate(1) >= load:
        batch = 1.0
    else:
        reached = [i for i, point in enumerate(points) if rate(point) >= load]
        if not reached:
            batch = float(slots)
        else:
            batch = crossing(points[reached[0] - 1], points[reached[0]], load, tau, gamma, times)
    return Steady(batch, times.of_round(batch, gamma) / tau, rate(slots), rate(slots) < load)


def crossing(low: int, high: int, load: float, tau: float, gamma: int, times: PassTimes) -> float:
    """B in low … high with B · τ = load · round(B), which is a straight line there."""
    begin, end = times.of_round(low, gamma), times.of_round(high, gamma)
    slope = (end - begin) / (high - low)
    return load * (begin - slope * low) / (tau - load * slope)


def best_under_load(load: float, alpha: float, times: PassTimes, slots: int) -> int:
    """The γ whose tokens come soonest under a steady load; where all are overloaded, the one of the
    greatest capacity. The smaller one of equals.
    """

    def cost(gamma: int) -> tuple[bool, float]:
        found = steady(load, alpha, gamma, times, slots)
        return found.is_overloaded, -found.capacity if found.is_overloaded else found.latency

    return min(range(times.largest_gamma + 1), key=cost)
