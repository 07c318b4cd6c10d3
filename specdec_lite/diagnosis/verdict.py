"""What follows from the measurements of a diagnosis: the verdict, its reason, what would change it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
import torch
from torch import Tensor

from specdec_lite import theory
from specdec_lite.diagnosis import report
from specdec_lite.diagnosis.faults import Fault, faults
from specdec_lite.diagnosis.measuring import Loop, Measured
from specdec_lite.engine.models import CausalLM
from specdec_lite.measure import timing
from specdec_lite.measure.intervals import ratio
from specdec_lite.theory import bisect


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The measurements of a draft and what follows from them.

    Attributes:
        verdict: "pays", "even", "hurts", or "disturbed" if the times contradict each other.
        reason: one sentence that names the deciding term, or the contradictions.
        speedup: {"value", "interval"} over plain decoding of the same target in the same session.
        predicted: speedup by the formula, from the costs of the same rounds.
        tau: tokens per target pass, {"value", "interval"}.
        alpha: accepted ÷ tested, {"value", "interval"}; None for trees.
        break_even: the τ at which a round is as fast as plain decoding, (v + γc + o) ÷ (1 + o₀).
        parts: costs of a round in units of T(1): {"draft", "verify", "other"}.
        plain: cost of a step of plain decoding in units of T(1), 1 + o₀.
        passes: {k: T(k) ÷ T(1)} of the target.
        batches: {B: T(B, γ+1) ÷ T(B, 1)} of the target.
        full: the smallest of these batches whose verification alone costs more than τ, or None. From
            there on the machine has no idle arithmetic, and even a free draft cannot pay.
        one: T(1) in seconds.
        c: a draft pass alone ÷ T(1); None if no model drafts.
        c_in_loop: drafting per level in the loop ÷ T(1).
        best_gamma: the γ that the formula prefers with these costs; 0 if no γ pays or "disturbed".
        best_speedup: the formula's speedup at that γ; 1 if no γ pays.
        needed: {"alpha", "c"} at which the verdict would change; None if that one alone cannot.
        offline: {domain: {"drawn", "chosen", "greedy"}}, acceptance without decoding; empty if no
            model drafts.
        controls: {control: acceptance}, which must be low.
        same_text: share of greedy texts that equal plain decoding; None above temperature 0.
        graphs: {"speedup", "c", "one"} with passes and drafts captured as CUDA graphs, as vLLM and
            SGLang decode; or the reason why they were not measured.
        faults: what is wrong, the most fundamental first.
        setting: levels, nodes, temperature, dtype, device, texts, tokens.
    """

    verdict: str
    reason: str
    speedup: dict
    predicted: float
    tau: dict
    alpha: dict | None
    break_even: float
    parts: dict[str, float]
    plain: float
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
    graphs: dict | str
    faults: tuple[Fault, ...]
    setting: dict

    def to_dict(self) -> dict:
        """Return the fields as a dict that is ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return report.plain(self)

    def _repr_html_(self) -> str:
        return report.html(self)


def conclude(measured: Measured, target: CausalLM, texts: Mapping[str, int]) -> Diagnosis:
    """Return the diagnosis that follows from the measurements."""
    loop, alone = measured.loop, measured.alone
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
    predicted = tau["value"] * plain_round / costs.total
    loses = loop.tested.any() and not loop.accepted.any()  # whatever the times are
    times = loop, curve.passes, measured.batches, speedup["value"], predicted
    disturbed = [] if loses else disturbances(*times)
    verdict = "disturbed" if disturbed else "hurts" if loses else sign(*speedup["interval"])
    best, gain = curve.best(alpha["value"]) if alpha else (loop.nodes, speedup["value"])
    best, gain = (0, 1.0) if disturbed or loses else (best, gain)
    graphs = captured(measured.graphs)
    ending = (
        "" if isinstance(graphs, str) else f"; in graphs: {sign(*graphs['speedup']['interval'])}"
    )
    return Diagnosis(
        verdict=verdict,
        reason="; ".join(disturbed) or reason(verdict, tau["value"], costs, plain_round) + ending,
        speedup=speedup,
        predicted=predicted,
        tau=tau,
        alpha=alpha,
        break_even=costs.total / plain_round,
        parts={"draft": costs.draft, "verify": costs.verify, "other": costs.other},
        plain=plain_round,
        passes=curve.passes,
        batches=measured.batches,
        full=min((b for b, cost in measured.batches.items() if cost > tau["value"]), default=None),
        one=one,
        c=alone["draft"] / alone[1] if "draft" in alone else None,
        c_in_loop=curve.c,
        best_gamma=best,
        best_speedup=gain,
        needed=curve.needed(alpha["value"], loop.levels) if alpha and loop.levels else {},
        offline={name: mean_rates(rows) for name, rows in measured.acceptance.items()},
        controls=measured.controls,
        same_text=loop.same,
        graphs=graphs,
        faults=faults(measured),
        setting={
            "levels": loop.levels,
            "nodes": loop.nodes,
            "temperature": measured.temperature,
            "dtype": str(target.dtype).removeprefix("torch."),
            "device": str(target.device),
            "texts": dict(texts),
            "tokens": int(loop.count.sum()),
        },
    )


def captured(loop: Loop | str) -> dict | str:
    """Return the speedup, c and T(1) of the loop in graphs, or why there is none."""
    if isinstance(loop, str):
        return loop
    one = median(step.verifying for step in loop.plain_steps)
    c = timing.round_costs(loop.steps, one).draft / max(1, loop.levels)
    return {"speedup": ratio(loop.plain, loop.seconds), "c": c, "one": one}


def sign(low: float, high: float) -> str:
    """Return the verdict of a speedup's interval."""
    return "pays" if low > 1 else "hurts" if high < 1 else "even"


CHEAPER = 0.85
"""A pass over several tokens that takes less than this part of T(1) was not timed correctly."""
APART = 1.5
"""The most by which two turns of a text, or a speedup and its forecast, may differ as a factor."""


def disturbances(
    loop: Loop, passes: Mapping, batches: Mapping, speedup: float, predicted: float
) -> list[str]:
    """Return how the times contradict each other, one phrase each; empty if they do not."""
    phrases = [
        f"a pass over {k} tokens took {cost:.2f} of T(1), and it cannot cost less than one token"
        for k, cost in sorted(passes.items())
        if cost < CHEAPER
    ]
    phrases += [
        f"at a batch of {batch} the draft's tokens made the pass shorter, {cost:.2f}"
        for batch, cost in sorted(batches.items())
        if cost < CHEAPER
    ]
    for name, seconds in (("plain", loop.plain), ("drafted", loop.seconds)):
        turns = np.median(seconds.max(1) / seconds.min(1))
        if turns > APART:
            phrases.append(f"the same {name} run took {turns:.2f} times as long in another turn")
    if not 1 / APART < speedup / predicted < APART:
        phrases.append(f"the speedup is {speedup:.2f}, and its own rounds forecast {predicted:.2f}")
    if phrases:
        phrases.append("no verdict: other programs ran, so repeat it on an idle machine")
    return phrases


def mean_rates(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Return the mean acceptance over all positions of several texts, by kind."""
    return {kind: float(torch.cat([row[kind] for row in rows]).mean()) for kind in rows[0]}


@dataclass(frozen=True, slots=True)
class Curve:
    """The cost of a round as a function of γ, in units of T(1).

    Attributes:
        passes: {k: T(k) ÷ T(1)}, measured alone.
        scale: cost of a pass in the loop ÷ its cost alone.
        c: cost per drafted token.
        other: cost of everything else in a round.
        plain: cost of a plain round.
    """

    passes: dict[int, float]
    scale: float
    c: float
    other: float
    plain: float

    def total(self, gamma: int, c: float | None = None) -> float:
        """Return the cost of a round."""
        ks = sorted(self.passes)
        verify = float(np.interp(gamma + 1, ks, [self.passes[k] for k in ks]))
        return self.scale * verify + gamma * (self.c if c is None else c) + self.other

    def speedup(self, alpha: float, gamma: int, c: float | None = None) -> float:
        """Return the formula's speedup over plain decoding."""
        tokens = float(theory.expected_tokens(alpha, gamma))
        return tokens * self.plain / self.total(gamma, c)

    def best(self, alpha: float) -> tuple[int, float]:
        """Return the γ of the greatest speedup and that speedup; (0, 1) if none exceeds 1."""
        gamma = max(range(1, max(self.passes)), key=lambda each: self.speedup(alpha, each))
        gain = self.speedup(alpha, gamma)
        return (gamma, gain) if gain > 1 else (0, 1.0)

    def needed(self, alpha: float, gamma: int) -> dict[str, float | None]:
        """Return the α, and the c, at which this γ breaks even if nothing else changes."""
        needed: dict[str, float | None] = {"alpha": None, "c": None}
        if self.speedup(1.0, gamma) > 1 > self.speedup(0.0, gamma):
            needed["alpha"] = bisect(lambda each: self.speedup(each, gamma), 1.0)
        if self.speedup(alpha, gamma, 0.0) > 1:
            most = float(theory.expected_tokens(alpha, gamma)) * self.plain
            needed["c"] = (most - self.total(gamma, 0.0)) / gamma
        return needed


def reason(verdict: str, tau: float, costs: timing.RoundCosts, plain: float) -> str:
    """Return a sentence that names the deciding term, in steps of plain decoding."""
    terms = {
        "drafting": costs.draft / plain,
        "verifying several tokens rather than one": max(0.0, costs.verify - 1) / plain,
        "everything except drafting and verification": costs.other / plain,
    }
    largest = max(terms, key=lambda term: terms[term])
    price = f"{largest} costs {terms[largest]:.2f} plain steps per round"
    total = f"a round emits {tau:.2f} tokens at the cost of {costs.total / plain:.2f} plain steps"
    if verdict == "pays":
        return f"{total}; {price}"
    undrafted = max(1.0, (costs.verify + costs.other) / plain)
    if tau <= undrafted:
        return (
            f"acceptance: a round emits {tau:.2f} tokens, and verifying them alone costs"
            f" {undrafted:.2f} plain steps; a free draft would not pay either"
        )
    return f"{price}; {total}"
