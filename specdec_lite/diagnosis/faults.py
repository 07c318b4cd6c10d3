"""What may be wrong with a draft: one question per fault, each answered from measurements.

The questions are in the order in which they are worth asking. Verification hides all of these
faults: the text stays right, and only the speed is lost. `measuring` makes the measurements.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from specdec_lite.proposal import Step

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


@dataclass(frozen=True, slots=True)
class Opening:
    """The first drafted token of one round.

    Attributes:
        online: 1 if it was accepted, else 0.
        offline: probability of that, computed from the two models' rows at the same position.
        chosen: the same probability if q's likeliest token were drafted.
    """

    online: float
    offline: float
    chosen: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """The measurements that the questions use.

    Attributes:
        temperature: of the loop.
        parity: acceptance of the target as its own draft; NaN if not measured.
        in_batch: the same for rows of different lengths that share their passes.
        openings: first drafted tokens of all rounds of the loop; empty if no model drafts.
        sampled: first drafted tokens of a short loop at temperature 1.
        is_chosen: whether drafts above temperature 0 are chosen, not drawn.
        steps: the loop's rounds.
        offline: {domain: acceptance [n] at every position, for every text}.
        controls: {control: acceptance}, which must be low.
    """

    temperature: float
    parity: float = float("nan")
    in_batch: float = float("nan")
    openings: Sequence[Opening] = ()
    sampled: Sequence[Opening] = ()
    is_chosen: bool = False
    steps: Sequence[Step] = ()
    offline: dict[str, list[Tensor]] = field(default_factory=dict)
    controls: dict[str, float] = field(default_factory=dict)


def beyond_chance(first: ArrayLike, second: ArrayLike) -> tuple[float, bool]:
    """Return mean(first) − mean(second), and whether it exceeds three standard errors."""
    a = np.asarray(first, dtype=float)
    b = np.asarray(second, dtype=float)
    error = np.sqrt(a.var() / len(a) + b.var() / len(b))
    gap = float(a.mean() - b.mean())
    return gap, abs(gap) > 3 * error


def target_is_broken(evidence: Evidence) -> Fault | None:
    """Return a fault if the target does not accept its own drafts."""
    if not evidence.parity < PARITY:
        return None
    return Fault(
        "target",
        "the target does not accept its own drafts: its cache, positions or mask are off after a"
        " block or a cut",
        f"target as its own draft, greedily: {evidence.parity:.2f} accepted, must be 1",
        "notebooks/05_draft_then_verify",
    )


def batch_is_broken(evidence: Evidence) -> Fault | None:
    """Return a fault if the target accepts its own drafts alone but not in a batch."""
    if not evidence.in_batch < PARITY or target_is_broken(evidence):
        return None
    return Fault(
        "batch",
        "a row in a batch differs from the same row alone: it reads the padding, the mask or the"
        " positions of other rows",
        f"target as its own draft: {evidence.parity:.2f} accepted alone, {evidence.in_batch:.2f} in a batch"
        " of three lengths",
        "notebooks/16b_batches",
    )


def comparison_is_broken(evidence: Evidence) -> Fault | None:
    """Return a fault if a control, which must fail, passes."""
    best = max(
        (rate for domain in evidence.offline.values() for rate in means(domain)), default=0.0
    )
    passing = {name: rate for name, rate in evidence.controls.items() if rate > 0.7 * best > 0.1}
    if not passing:
        return None
    name, rate = next(iter(passing.items()))
    return Fault(
        "comparison",
        "acceptance does not depend on the right context: the text is too predictable to test this"
        " draft, or the compared rows belong to different positions",
        f"{name}: {rate:.2f}, against {best:.2f} for the text as it is",
        "notebooks/05_draft_then_verify",
    )


def session_is_stale(evidence: Evidence) -> Fault | None:
    """Return a fault if first tokens are accepted less often in the loop than offline."""
    if len(evidence.openings) < FEWEST:
        return None
    online = [opening.online for opening in evidence.openings]
    offline = [opening.offline for opening in evidence.openings]
    chosen = [opening.chosen for opening in evidence.openings]
    gap, is_certain = beyond_chance(offline, online)
    if evidence.is_chosen and not beyond_chance(chosen, online)[1]:
        return None
    if not is_certain or gap < GAP / 2:
        return None
    return Fault(
        "stale",
        "the draft is worse in the loop than when it reads the same text in one pass: entries of"
        " rejected tokens stay in its cache, a token was never fed, or its input is shifted by one",
        f"first token of a round: {np.mean(online):.2f} accepted in the loop, {np.mean(offline):.2f}"
        " computed from the rows at the same positions",
        "notebooks/05_draft_then_verify",
    )


def depth_is_broken(evidence: Evidence) -> Fault | None:
    """Return a fault if only the first drafted token is accepted well."""
    outcomes: dict[int, list[int]] = {}
    for step in evidence.steps:
        for level, tests in enumerate(step.tests):
            if tests:
                outcomes.setdefault(level, []).append(int(level < step.accepted))
    deep = [value for level, values in outcomes.items() if level for value in values]
    first = outcomes.get(0, [])
    if min(len(first), len(deep)) < FEWEST:
        return None
    gap, is_certain = beyond_chance(first, deep)
    if not is_certain or gap < 2 * GAP:
        return None
    return Fault(
        "depth",
        "only the first drafted token is good: the draft's later input (its own token, its own"
        " state, the position) differs from its input in training",
        f"accepted ÷ tested: {np.mean(first):.2f} at the first position, {np.mean(deep):.2f} at"
        " later ones",
        "notebooks/07_how_fast",
    )


def drafts_are_chosen(evidence: Evidence) -> Fault | None:
    """Return a fault if drafts are q's likeliest token where draws from q would do better."""
    if not evidence.is_chosen or len(evidence.sampled) < FEWEST:
        return None
    drawn = np.mean([opening.offline for opening in evidence.sampled])
    chosen = np.mean([opening.chosen for opening in evidence.sampled])
    if drawn - chosen < GAP / 2:
        return None
    return Fault(
        "chosen",
        "at temperature 1 the draft proposes its likeliest token, while draws from q would be"
        " accepted more often",
        f"first token at temperature 1: {chosen:.2f} for q's likeliest token, {drawn:.2f} for a"
        " draw from q",
        "notebooks/15_when_to_stop",
    )


def one_domain_is_bad(evidence: Evidence) -> Fault | None:
    """Return a fault if acceptance in one domain is far below that in the others."""
    rates = {name: float(np.mean(means(rows))) for name, rows in evidence.offline.items()}
    if len(rates) < 2:
        return None
    worst = min(rates, key=lambda name: rates[name])
    others = median(rate for name, rate in rates.items() if name != worst)
    values = [np.concatenate([row.numpy() for row in rows]) for rows in evidence.offline.values()]
    low = values[list(rates).index(worst)]
    rest = np.concatenate([row for name, row in zip(rates, values) if name != worst])
    if rates[worst] > 0.6 * others or not beyond_chance(rest, low)[1]:
        return None
    return Fault(
        "domain",
        f"the draft is bad at {worst!r}: check the chat template, and whether the target was"
        " fine-tuned on data that the draft never saw",
        f"{rates[worst]:.2f} on {worst!r}, {others:.2f} on the others",
        "notebooks/07_how_fast",
    )


def context_is_too_long(evidence: Evidence) -> Fault | None:
    """Return a fault if acceptance falls in the second half of long texts."""
    long = [row for rows in evidence.offline.values() for row in rows if len(row) >= 8 * FEWEST]
    if not long:
        return None
    early = np.concatenate([row[len(row) // 8 : len(row) // 2].numpy() for row in long])
    late = np.concatenate([row[len(row) // 2 :].numpy() for row in long])
    gap, is_certain = beyond_chance(early, late)
    if not is_certain or gap < 2 * GAP:
        return None
    return Fault(
        "context",
        "the draft gets worse in the second half of a long text: its window is too short, the"
        " positions exceed those of its training, or the attention sink was dropped",
        f"{early.mean():.2f} in the first half, {late.mean():.2f} in the second",
        "notebooks/02_memory_wall",
    )


def means(rows: Sequence[Tensor]) -> list[float]:
    """Return the mean of each row."""
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


def faults(evidence: Evidence) -> tuple[Fault, ...]:
    """Return the faults that the evidence shows, the most fundamental first."""
    return tuple(fault for question in QUESTIONS if (fault := question(evidence)))
