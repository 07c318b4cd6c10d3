"""The numbers that an engine's text states, and what its acceptance length means."""

import math
from dataclasses import dataclass, field
from typing import TypeGuard


@dataclass(slots=True)
class Counts:
    """The numbers that a text states.

    Attributes:
        engine: the engine and the format.
        drafts: rounds that drafted.
        drafted: drafted tokens.
        accepted: accepted tokens.
        tau: tokens per target pass, with the bonus or recovered token.
        share: accepted ÷ drafted.
        gamma: drafted tokens per round.
        rates: share of all drafts in which position i was accepted, [γ].
        whole: tokens per target pass if every drafted token had been verified.
        verified: verified tokens per round, the root not counted, if fewer than γ.
        steps: all decoding steps, those that drafted nothing included.
        definition: which of the lengths that are called acceptance length tau is.
        tests_all: whether drafts after a rejection are tested too.
        notes: what a reader of these numbers may get wrong.
    """

    engine: str
    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    tau: float | None = None
    share: float | None = None
    gamma: float | None = None
    rates: tuple[float, ...] = ()
    whole: float | None = None
    verified: float | None = None
    steps: float | None = None
    definition: str = ""
    tests_all: bool = False
    notes: list[str] = field(default_factory=list)


def number(value) -> TypeGuard[float]:
    """Return whether a value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
