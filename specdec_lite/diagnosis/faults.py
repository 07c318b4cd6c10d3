"""What may be wrong with a draft, concluded from measurements.

Verification hides all of these faults: the text stays right, and only the speed is lost. They are
in the order in which they are worth asking about.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import ArrayLike

from specdec_lite.diagnosis.measuring import Measured

PARITY = 0.97
"""The least greedy acceptance of a model that drafts for itself.

It is below 1 because two passes in half precision may resolve a near-tie differently.
"""
GAP = 0.1
"""The smallest difference of acceptance rates that is reported, if it also exceeds chance."""
FEWEST = 12
"""The number of rounds, or positions, below which nothing is concluded."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One finding.

    Attributes:
        name: a word for the fault.
        description: what is wrong, in a sentence.
        evidence: the numbers.
        page: the chapter that explains it.
    """

    name: str
    description: str
    evidence: str
    page: str


def beyond_chance(first: ArrayLike, second: ArrayLike) -> tuple[float, bool]:
    """Return mean(first) − mean(second), and whether it exceeds three standard errors."""
    a = np.asarray(first, dtype=float)
    b = np.asarray(second, dtype=float)
    error = np.sqrt(a.var() / len(a) + b.var() / len(b))
    gap = float(a.mean() - b.mean())
    return gap, abs(gap) > 3 * error


def of_the_target(found: Measured) -> Iterator[Fault]:
    """Yield a fault if the target rejects its own drafts, or if a control, which must fail, passes."""
    if found.parity < PARITY:
        yield Fault(
            "target",
            "the target does not accept its own drafts: its cache, positions or mask are off after a"
            " block or a cut",
            f"target as its own draft, greedily: {found.parity:.2f} accepted, must be 1",
            "notebooks/05_draft_then_verify",
        )
    elif found.in_batch < PARITY:
        yield Fault(
            "batch",
            "a row in a batch differs from the same row alone: it reads the padding, the mask or the"
            " positions of other rows",
            f"target as its own draft: {found.parity:.2f} accepted alone, {found.in_batch:.2f} in a"
            " batch of three lengths",
            "notebooks/16b_batches",
        )
    rates = [float(row.mean()) for rows in found.drawn.values() for row in rows]
    best = max(rates, default=0.0)
    for name, rate in found.controls.items():
        if rate > 0.7 * best > 0.1:
            yield Fault(
                "comparison",
                "acceptance does not depend on the right context: the text is too predictable to test"
                " this draft, or the compared rows belong to different positions",
                f"{name}: {rate:.2f}, against {best:.2f} for the text as it is",
                "notebooks/05_draft_then_verify",
            )
            break


def of_the_loop(found: Measured) -> Iterator[Fault]:
    """Yield a fault if rounds accept less than the rows, the first token, or draws from q would."""
    if len(found.openings) >= FEWEST:
        online, offline, chosen = np.array(found.openings).T
        gap, is_certain = beyond_chance(offline, online)
        is_explained = found.is_chosen and not beyond_chance(chosen, online)[1]
        if is_certain and gap >= GAP / 2 and not is_explained:
            yield Fault(
                "stale",
                "the draft is worse in the loop than when it reads the same text in one pass: entries"
                " of rejected tokens stay in its cache, a token was never fed, or its input is shifted"
                " by one",
                f"first token of a round: {online.mean():.2f} accepted in the loop,"
                f" {offline.mean():.2f} computed from the rows at the same positions",
                "notebooks/05_draft_then_verify",
            )
    tested = [
        (level, level < step.accepted)
        for step in found.loop.steps
        for level, tests in enumerate(step.tests)
        if tests
    ]
    first = [is_accepted for level, is_accepted in tested if not level]
    deep = [is_accepted for level, is_accepted in tested if level]
    if min(len(first), len(deep)) >= FEWEST:
        gap, is_certain = beyond_chance(first, deep)
        if is_certain and gap >= 2 * GAP:
            yield Fault(
                "depth",
                "only the first drafted token is good: the draft's later input (its own token, its own"
                " state, the position) differs from its input in training",
                f"accepted ÷ tested: {np.mean(first):.2f} at the first position, {np.mean(deep):.2f}"
                " at later ones",
                "notebooks/07_how_fast",
            )
    if found.is_chosen and len(found.sampled) >= FEWEST:
        _, drawn, chosen = np.mean(found.sampled, axis=0)
        if drawn - chosen >= GAP / 2:
            yield Fault(
                "chosen",
                "at temperature 1 the draft proposes its likeliest token, while draws from q would be"
                " accepted more often",
                f"first token at temperature 1: {chosen:.2f} for q's likeliest token, {drawn:.2f} for a"
                " draw from q",
                "notebooks/15_when_to_stop",
            )


def of_the_texts(found: Measured) -> Iterator[Fault]:
    """Yield a fault if acceptance is low in one domain, or falls in the second half of long texts."""
    domains = found.drawn
    if len(domains) > 1:
        rates = {name: float(np.mean([r.mean() for r in rows])) for name, rows in domains.items()}
        worst = min(rates, key=lambda name: rates[name])
        others = median(rate for name, rate in rates.items() if name != worst)
        rest = np.concatenate([r for name, rows in domains.items() if name != worst for r in rows])
        if rates[worst] <= 0.6 * others and beyond_chance(rest, np.concatenate(domains[worst]))[1]:
            yield Fault(
                "domain",
                f"the draft is bad at {worst!r}: check the chat template, and whether the target was"
                " fine-tuned on data that the draft never saw",
                f"{rates[worst]:.2f} on {worst!r}, {others:.2f} on the others",
                "notebooks/07_how_fast",
            )
    long = [row for rows in domains.values() for row in rows if len(row) >= 8 * FEWEST]
    if long:
        early = np.concatenate([row[len(row) // 8 : len(row) // 2] for row in long])
        late = np.concatenate([row[len(row) // 2 :] for row in long])
        gap, is_certain = beyond_chance(early, late)
        if is_certain and gap >= 2 * GAP:
            yield Fault(
                "context",
                "the draft gets worse in the second half of a long text: its window is too short, the"
                " positions exceed those of its training, or the attention sink was dropped",
                f"{early.mean():.2f} in the first half, {late.mean():.2f} in the second",
                "notebooks/02_memory_wall",
            )


def faults(found: Measured) -> tuple[Fault, ...]:
    """Return the faults that the measurements show, the most fundamental first."""
    return (*of_the_target(found), *of_the_loop(found), *of_the_texts(found))
