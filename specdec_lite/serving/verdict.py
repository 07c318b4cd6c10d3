"""What follows from a diagnosis's measurements: the verdict, its reason, what would change it.

What lives here: arithmetic. What does not: measuring (`measuring`), the questions about faults
(`faults`), how a diagnosis is shown (`report`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
import torch
from scipy.optimize import brentq

from specdec_lite import theory
from specdec_lite.engine.models import CausalLM
from specdec_lite.measure import timing
from specdec_lite.measure.intervals import ratio
from specdec_lite.serving import report
from specdec_lite.serving.faults import Fault, faults
from specdec_lite.serving.measuring import Measured
from specdec_lite.serving.offline import Offline


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was measured of a draft, and what follows.

    Attributes:
        verdict: "pays", "even" or "hurts".
        reason: the sentence behind it: the term that decides.
        speedup: {"value", "interval"} over plain decoding of the same target, in the same turns.
        predicted: τ ÷ (v + drafting + o) from the same rounds.
        tau, alpha: with intervals; alpha (accepted ÷ tested) of chains only.
        break_even: the τ at which a round costs what its tokens cost plainly.
        parts: a round's parts in units of T(1): {"draft", "verify", "other"}.
        passes: {k: T(k) ÷ T(1)} of the target. batches: {B: T(B, γ+1) ÷ T(B, 1)}. full: the least
            of these batches whose verifying pass alone costs more than a round emits, if any.
        one: seconds of T(1). c: a draft pass alone ÷ T(1), where a model drafts; c_in_loop: in the
            loop, a level.
        best_gamma, best_speedup: what the corrected formula prefers with these costs; 0 and 1
            where nothing pays.
        needed: what would change the sign: {"alpha", "c"}, each alone; None where it alone cannot.
        offline: {domain: {"drawn", "chosen", "greedy"}}, acceptance at every position of the texts
            without decoding; empty where no model drafts.
        controls: what must be bad: {"shifted by one", "another text"}.
        same_text: the share of greedy texts that equal plain decoding; None above temperature 0.
        faults: what is wrong, the most fundamental first.
        setting: gamma or nodes, temperature, dtype, device, texts, tokens.
    """

    verdict: str
    reason: str
    speedup: dict
    predicted: float
    tau: dict
    alpha: dict | None
    break_even: float
    parts: dict[str, float]
    passes: dict[int, float]
    batches: dict[int, float]
    full: int | None
    one: float
    c: float | None
    c_in_loop: float
    best_gamma: int
    best_speedup: float
    needed: dict[str, float | None]
    offline: dict[str, dict[str, float]]
    controls: dict[str, float]
    same_text: float | None
    faults: tuple[Fault, ...]
    setting: dict

    def to_dict(self) -> dict:
        """Plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return report.plain(self)

    def _repr_html_(self) -> str:
        return report.html(self)


def conclude(found: Measured, target: CausalLM, texts: Mapping[str, int]) -> Diagnosis:
    """The verdict. texts: how many there are of each domain."""
    loop, alone = found.loop, found.alone
    one = median(step.verifying for step in loop.plain_steps)
    costs = timing.round_costs(loop.steps, one)
    plain_round = timing.round_costs(loop.plain_steps, one).total
    speedup = ratio(loop.plain, loop.seconds)
    tau = ratio(loop.count, loop.rounds)
    alpha = ratio(loop.accepted, loop.tested) if loop.is_chain and loop.tested.any() else None
    curve = Curve(
        passes={k: alone[k] / alone[1] for k in alone if isinstance(k, int)},
        scale=costs.verify / (alone[loop.nodes + 1] / alone[1]),
        c=costs.draft / max(1, loop.levels),
        other=costs.other,
        plain=plain_round,
    )
    best, gain = curve.best(alpha["value"]) if alpha else (loop.nodes, speedup["value"])
    verdict = sign(*speedup["interval"])
    return Diagnosis(
        verdict=verdict,
        reason=reason(verdict, tau["value"], costs),
        speedup=speedup,
        predicted=tau["value"] * plain_round / costs.total,
        tau=tau,
        alpha=alpha,
        break_even=costs.total / plain_round,
        parts={"draft": costs.draft, "verify": costs.verify, "other": costs.other},
        passes=curve.passes,
        batches=found.batches,
        full=full(tau["value"], found.batches),
        one=one,
        c=alone["draft"] / alone[1] if "draft" in alone else None,
        c_in_loop=curve.c,
        best_gamma=best,
        best_speedup=gain,
        needed=curve.needed(alpha["value"], loop.levels) if alpha and loop.levels else {},
        offline={name: mean_rates(rows) for name, rows in found.acceptance.items()},
        controls=found.evidence.controls,
        same_text=loop.same,
        faults=faults(found.evidence),
        setting=setting(found, target, texts),
    )


def sign(low: float, high: float) -> str:
    """The verdict of a speedup's interval."""
    return "pays" if low > 1 else "hurts" if high < 1 else "even"


def full(tau: float, batches: Mapping[int, float]) -> int | None:
    """The least batch from which verifying alone costs more than a round emits: the machine has no
    arithmetic left over, and no draft pays, be it free."""
    return next((batch for batch, cost in sorted(batches.items()) if cost > tau), None)


def mean_rates(rows: Sequence[Offline]) -> dict[str, float]:
    """Of all positions of some texts."""
    kinds = ("drawn", "chosen", "greedy")
    return {kind: float(torch.cat([getattr(row, kind) for row in rows]).mean()) for kind in kinds}


def setting(found: Measured, target: CausalLM, texts: Mapping[str, int]) -> dict:
    """What was measured on what."""
    return {
        "levels": found.loop.levels,
        "nodes": found.loop.nodes,
        "temperature": found.evidence.temperature,
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(target.device),
        "texts": dict(texts),
        "tokens": int(found.loop.count.sum()),
    }


@dataclass(frozen=True, slots=True)
class Curve:
    """What a round of γ drafted tokens costs, in units of T(1): passes {k: T(k) ÷ T(1)} alone, times
    scale in the loop; c of a drafted token; other; plain: a plain round.
    """

    passes: dict[int, float]
    scale: float
    c: float
    other: float
    plain: float

    def total(self, gamma: int, c: float | None = None) -> float:
        ks = sorted(self.passes)
        verify = float(np.interp(gamma + 1, ks, [self.passes[k] for k in ks]))
        return self.scale * verify + gamma * (self.c if c is None else c) + self.other

    def speedup(self, alpha: float, gamma: int, c: float | None = None) -> float:
        return theory.expected_tokens(alpha, gamma) * self.plain / self.total(gamma, c)

    def best(self, alpha: float) -> tuple[int, float]:
        """The γ of the greatest speedup, and that; (0, 1) where none exceeds 1."""
        gammas = range(1, max(self.passes))
        gamma = max(gammas, key=lambda each: self.speedup(alpha, each))
        gain = self.speedup(alpha, gamma)
        return (gamma, gain) if gain > 1 else (0, 1.0)

    def needed(self, alpha: float, gamma: int) -> dict[str, float | None]:
        """The α, and the c, at which this γ breaks even, all else as it is."""
        found: dict[str, float | None] = {"alpha": None, "c": None}
        if self.speedup(1.0, gamma) > 1 > self.speedup(0.0, gamma):
            found["alpha"] = float(brentq(lambda each: self.speedup(each, gamma) - 1, 0.0, 1.0))
        if self.speedup(alpha, gamma, 0.0) > 1:
            most = theory.expected_tokens(alpha, gamma) * self.plain
            found["c"] = (most - self.total(gamma, 0.0)) / gamma
        return found


def reason(verdict: str, tau: float, costs: timing.RoundCosts) -> str:
    """The term that decides, in a sentence."""
    terms = {
        "drafting": costs.draft,
        "verifying several tokens rather than one": max(0.0, costs.verify - 1),
        "what is neither drafting nor a pass": costs.other,
    }
    dearest = max(terms, key=terms.get)
    price = f"{dearest} costs {terms[dearest]:.2f} of a plain pass a round"
    if verdict == "pays":
        return f"a round emits {tau:.2f} tokens at the cost of {costs.total:.2f} passes; {price}"
    if tau <= costs.verify + costs.other:
        return (
            f"acceptance: a round emits {tau:.2f} tokens, and verifying them alone costs"
            f" {costs.verify + costs.other:.2f} plain passes; a free draft would not pay either"
        )
    return f"{price}; a round emits {tau:.2f} tokens at the cost of {costs.total:.2f} passes"
