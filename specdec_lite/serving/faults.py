"""What may be wrong with a draft: one question a fault, each answered from measurements.

What lives here: the questions, in the order in which they are worth asking. What does not: the
measurements (`measuring`). Verification hides all of these: the text stays right, only the speed is
lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from torch import Tensor

from specdec_lite.speculation import Step

PARITY = 0.97
"""Least acceptance of a model that drafts for itself, greedily: near-ties may part in half
precision.
"""
GAP = 0.1
"""A difference of acceptance rates worth naming, where it is beyond chance too."""
FEWEST = 12
"""Rounds, or positions, below which nothing is concluded."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One finding. name: its own. says: what is wrong, in a sentence. evidence: the numbers. page:
    the chapter that explains it.
    """

    name: str
    says: str
    evidence: str
    page: str


@dataclass(frozen=True, slots=True)
class Opening:
    """The first drafted token of one round. online: 1 where it was accepted. offline: the chance of
    that by the two models' rows at the same place. chosen: the same, were q's likeliest token
    drafted.
    """

    online: float
    offline: float
    chosen: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the questions look at.

    Attributes:
        temperature: of the loop.
        parity: acceptance of the target as its own draft; NaN where it was not tried.
        in_batch: the same in rows of different lengths that share their passes.
        openings: of all rounds of the loop; empty where no model drafts.
        sampled: of the rounds of a short loop at temperature 1.
        was_chosen: whether drafts above temperature 0 are chosen, not drawn.
        steps: the loop's rounds.
        offline: {domain: acceptance [n] at every position, of every text}.
        controls: {control: acceptance}, which must be bad.
    """

    temperature: float
    parity: float = float("nan")
    in_batch: float = float("nan")
    openings: Sequence[Opening] = ()
    sampled: Sequence[Opening] = ()
    was_chosen: bool = False
    steps: Sequence[Step] = ()
    offline: dict[str, list[Tensor]] = field(default_factory=dict)
    controls: dict[str, float] = field(default_factory=dict)


def beyond_chance(first: Sequence[float], second: Sequence[float]) -> tuple[float, bool]:
    """Mean of first − mean of second, and whether it exceeds three standard errors."""
    a = np.asarray(first, dtype=float)
    b = np.asarray(second, dtype=float)
    error = np.sqrt(a.var() / len(a) + b.var() / len(b))
    gap = float(a.mean() - b.mean())
    return gap, abs(gap) > 3 * error


def target_is_broken(seen: Evidence) -> Fault | None:
    """Does a model accept its own drafts?"""
    if not seen.parity < PARITY:
        return None
    return Fault(
        "target",
        "the target does not accept its own drafts: its cache, positions or mask are off after a"
        " block or a cut",
        f"target as its own draft, greedily: {seen.parity:.2f} accepted, must be 1",
        "notebooks/05_draft_then_verify",
    )


def batch_is_broken(seen: Evidence) -> Fault | None:
    """Does it do so in a batch?"""
    if not seen.in_batch < PARITY or target_is_broken(seen):
        return None
    return Fault(
        "batch",
        "beside other rows a row is not what it is alone: it reads their padding, their mask, or"
        " positions that are not its own",
        f"target as its own draft: {seen.parity:.2f} accepted alone, {seen.in_batch:.2f} in a batch"
        " of three lengths",
        "notebooks/17_serving",
    )


def comparison_is_broken(seen: Evidence) -> Fault | None:
    """Do the controls fail, as they must?"""
    best = max((rate for domain in seen.offline.values() for rate in means(domain)), default=0.0)
    passing = {name: rate for name, rate in seen.controls.items() if rate > 0.7 * best > 0.1}
    if not passing:
        return None
    name, rate = next(iter(passing.items()))
    return Fault(
        "comparison",
        "acceptance does not need the right context: the text is so predictable that it says"
        " nothing about this draft, or the rows compared are not of one position",
        f"{name}: {rate:.2f}, against {best:.2f} for the text as it is",
        "notebooks/05_draft_then_verify",
    )


def session_is_stale(seen: Evidence) -> Fault | None:
    """Does the first token of a round do in the loop what it does offline, at the same places?"""
    if len(seen.openings) < FEWEST:
        return None
    online = [opening.online for opening in seen.openings]
    offline = [opening.offline for opening in seen.openings]
    chosen = [opening.chosen for opening in seen.openings]
    gap, sure = beyond_chance(offline, online)
    if seen.was_chosen and not beyond_chance(chosen, online)[1]:
        return None
    if not sure or gap < GAP / 2:
        return None
    return Fault(
        "stale",
        "in the loop the draft does worse than on the same text read at once: entries of rejected"
        " tokens stay in its cache, a token was never fed, or its input is shifted by one",
        f"first token of a round: {np.mean(online):.2f} accepted in the loop, {np.mean(offline):.2f}"
        " by the rows at the same places",
        "notebooks/05_draft_then_verify",
    )


def depth_is_broken(seen: Evidence) -> Fault | None:
    """Does acceptance, given that all before was accepted, hold with depth?"""
    outcomes: dict[int, list[int]] = {}
    for step in seen.steps:
        for level, tests in enumerate(step.tests):
            if tests:
                outcomes.setdefault(level, []).append(int(level < step.accepted))
    deep = [value for level, values in outcomes.items() if level for value in values]
    first = outcomes.get(0, [])
    if min(len(first), len(deep)) < FEWEST:
        return None
    gap, sure = beyond_chance(first, deep)
    if not sure or gap < 2 * GAP:
        return None
    return Fault(
        "depth",
        "only the first drafted token is good: what the draft is fed after it (its own token, its"
        " own state, the position) is not what it was trained on",
        f"accepted of those tested: {np.mean(first):.2f} at the first position, {np.mean(deep):.2f}"
        " behind it",
        "notebooks/07_how_fast",
    )


def drafts_are_chosen(seen: Evidence) -> Fault | None:
    """Above temperature 0: are drafts drawn from q, or its likeliest token?"""
    if not seen.was_chosen or len(seen.sampled) < FEWEST:
        return None
    drawn = np.mean([opening.offline for opening in seen.sampled])
    chosen = np.mean([opening.chosen for opening in seen.sampled])
    if drawn - chosen < GAP / 2:
        return None
    return Fault(
        "chosen",
        "at temperature 1 the draft proposes its likeliest token where drawing from q would be"
        " accepted more often",
        f"first token at temperature 1: {chosen:.2f} for q's likeliest token, {drawn:.2f} for a"
        " draw from q",
        "notebooks/07_how_fast",
    )


def one_domain_is_bad(seen: Evidence) -> Fault | None:
    """Is one kind of text far worse than the others?"""
    rates = {name: float(np.mean(means(rows))) for name, rows in seen.offline.items()}
    if len(rates) < 2:
        return None
    worst = min(rates, key=rates.get)
    others = median(rate for name, rate in rates.items() if name != worst)
    values = [np.concatenate([row.numpy() for row in rows]) for rows in seen.offline.values()]
    low = values[list(rates).index(worst)]
    rest = np.concatenate([row for name, row in zip(rates, values) if name != worst])
    if rates[worst] > 0.6 * others or not beyond_chance(rest, low)[1]:
        return None
    return Fault(
        "domain",
        f"the draft does not know {worst!r}: look at the chat template and the fine-tuning that the"
        " target had and the draft had not",
        f"{rates[worst]:.2f} on {worst!r}, {others:.2f} on the others",
        "notebooks/07_how_fast",
    )


def context_is_too_long(seen: Evidence) -> Fault | None:
    """Does acceptance fall as the text grows?"""
    long = [row for rows in seen.offline.values() for row in rows if len(row) >= 8 * FEWEST]
    if not long:
        return None
    early = np.concatenate([row[len(row) // 8 : len(row) // 2].numpy() for row in long])
    late = np.concatenate([row[len(row) // 2 :].numpy() for row in long])
    gap, sure = beyond_chance(early, late)
    if not sure or gap < 2 * GAP:
        return None
    return Fault(
        "context",
        "the draft loses the thread in the second half of a long text: a window, positions beyond"
        " what it was trained on, or a sink that was cut off",
        f"{early.mean():.2f} in the first half, {late.mean():.2f} in the second",
        "notebooks/02_memory_wall",
    )


def means(rows: Sequence[Tensor]) -> list[float]:
    return [float(row.mean()) for row in rows]


QUESTIONS = (
    target_is_broken,
    batch_is_broken,
    comparison_is_broken,
    session_is_stale,
    depth_is_broken,
    drafts_are_chosen,
    one_domain_is_bad,
    context_is_too_long,
)


def faults(seen: Evidence) -> tuple[Fault, ...]:
    """The faults that the evidence shows, the most fundamental first."""
    return tuple(fault for question in QUESTIONS if (fault := question(seen)))
