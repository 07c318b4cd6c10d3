"""Check a drafter on tiny models: does the text keep the target's distribution, and if not, why?

Every outcome of every draw and every coin is enumerated, so the answer is exact. Each drafted token
is also compared with the row that the drafter reports for it, because a wrong row is the usual
cause of a wrong distribution.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.acceptance.protocol import drawn_from
from specdec_lite.contract import Drafter
from specdec_lite.decoding import generate
from specdec_lite.diagnosis.enumeration import (
    PROMPT,
    FaultFound,
    TooManyOutcomes,
    Watch,
    distance,
    enumerate_rounds,
    enumerate_texts,
    own_texts,
    tiny_draft,
    tiny_target,
)
from specdec_lite.engine.models import CausalLM
from specdec_lite.options import prepare
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Sampling

__all__ = ["Fault", "LosslessReport", "check_lossless", "tiny_draft", "tiny_target"]

TOLERANCE = 1e-6
"""The largest total variation that rounding explains: rows may be reported in float32."""
SAMPLINGS = (
    Sampling(1.0),
    Sampling(0.5),
    Sampling(1.5, top_k=2),
    Sampling(1.0, top_p=0.7),
    Sampling(2.0, top_k=2, top_p=0.9),
)
GREEDY_TOKENS = 24
MOST_OUTCOMES = 20_000
"""Outcomes to enumerate at each setting; a drafter that has more is not checked."""

CAUSES = {
    "invalid proposal": "a token or a row of probs is not valid",
    "limits": "a proposal is larger than limits() states",
    "target's cache": "drafting changes entries of the target's cache",
    "states": "Proposal.states differ from the hidden states of the target's own pass",
    "not repeatable": "equal choices of context.rng give different drafts: chance comes from"
    " elsewhere, or a memory changes during a generation",
    "argmax row": "a token is chosen, but a row with several possible tokens is reported: report"
    " probs=None or a one-hot row",
    "row before sampling": "the reported row is the one before temperature, top-k or top-p",
    "row before exclusion": "a sibling is drawn without the tokens of its older siblings, but the"
    " row that still contains them is reported",
    "sorted siblings": "drawn siblings are sorted; they must keep the order in which they were"
    " drawn",
    "dropped draw": "a drawn token is discarded after its value was looked at",
    "wrong row": "a token is not drawn from the row that is reported for it",
    "error": "decoding with this drafter raises an error",
    "greedy text": "at temperature 0 the text differs from the target's own",
    "text": "the text does not have the target's distribution",
}
"""What can be wrong, the causes before their consequences."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a drafter.

    Attributes:
        name: a key of `CAUSES`.
        where: the setting and the round in which it was seen, with numbers.
    """

    name: str
    where: str

    def __str__(self) -> str:
        return f"{self.name}: {CAUSES[self.name]}\n    {self.where}"


@dataclass(frozen=True, slots=True, repr=False)
class LosslessReport:
    """The result of `check_lossless`; true if nothing is wrong.

    Attributes:
        drafter: name of the drafter's class.
        faults: what is wrong, causes before consequences; each name occurs once.
        outcomes: number of texts that were enumerated.
        drafted: number of reported rows that were compared with the drawn tokens.
    """

    drafter: str
    faults: tuple[Fault, ...]
    outcomes: int
    drafted: int

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name of every fault."""
        return tuple(fault.name for fault in self.faults)

    def __bool__(self) -> bool:
        return not self.faults

    def __repr__(self) -> str:
        counts = f"{self.outcomes} enumerated texts, {self.drafted} reported rows"
        if self.faults:
            return "\n".join([f"{self.drafter} is not lossless ({counts})", *map(str, self.faults)])
        note = "" if self.drafted else "; it drafted nothing on this text"
        return f"{self.drafter} is lossless on what was enumerated ({counts}{note})"


def check_lossless(
    make_drafter: Callable[[CausalLM], Drafter], rule=None, max_outcomes: int = MOST_OUTCOMES
) -> LosslessReport:
    """Check whether a drafter leaves the target's distribution unchanged, and name what is wrong.

    Texts of three tokens over a vocabulary of three are enumerated at five settings of temperature,
    top-k and top-p. Along one sampled text of 24 tokens, all drafts of every third round are
    enumerated and compared with their rows. Greedy text, the target's cache and the drafter's states are
    checked on a vocabulary of sixteen. Use a small drafter: a chain of 2 or 3 tokens, a tree of few
    draws.

    Example:
        check_lossless(lambda target: ModelDrafter(tiny_draft(target), gamma=2))

    Args:
        make_drafter: a function from a native target to a new drafter for it. `tiny_draft(target)`
            is a draft model for drafters that need one.
        rule: the lossless rule to verify with; None for the default rule. A rule of your own is
            checked too.
        max_outcomes: the largest number of texts to enumerate per setting.

    Raises:
        TypeError: make_drafter is not a function, or does not return a drafter.
        ValueError: the drafter has more outcomes than `max_outcomes`, even for two tokens; or
            `generate` refuses the drafter or the rule.
    """
    checks.whole("max_outcomes", max_outcomes, 1)
    target = tiny_target()
    drafter = _made(make_drafter, target, rule)
    faults: dict[str, Fault] = {}
    count = rows = 0
    has_wrong_row = False
    for sampling in SAMPLINGS:
        settings = target, drafter, sampling, rule, max_outcomes
        try:
            result = _outcome(_label(sampling), partial(enumerate_texts, *settings))
        except TooManyOutcomes:
            raise ValueError(
                f"the drafter has more than max_outcomes={max_outcomes} outcomes at"
                f" {_label(sampling)}: make_drafter must return a smaller one, such as a chain of 2"
                " tokens"
            ) from None
        if isinstance(result, Fault):
            faults.setdefault(result.name, result)
            continue
        texts, watch = result
        count += watch.outcomes
        fault, compared = _compare_rows(watch, sampling)
        rows += compared
        if fault is not None and not has_wrong_row:  # the first one; others follow from it
            has_wrong_row = True
            faults[fault.name] = fault
        apart = distance(texts, own_texts(target, sampling, len(next(iter(texts)))))
        if apart > TOLERANCE:
            where = f"{_label(sampling)}: total variation {apart:.4f}"
            faults.setdefault("text", Fault("text", where))
    if not faults:
        late, compared = _check_later_rounds(target, drafter, rule)
        rows += compared
        faults |= {late.name: late} if late else {}
    for fault in _check_greedy(make_drafter, rule):
        faults.setdefault(fault.name, fault)
    if "not repeatable" in faults:  # everything else is a consequence
        faults = {"not repeatable": faults["not repeatable"]}
    ordered = tuple(faults[name] for name in CAUSES if name in faults)
    return LosslessReport(type(drafter).__name__, ordered, count, rows)


def _made(make_drafter: Callable[[CausalLM], Drafter], target: CausalLM, rule) -> Drafter:
    """Return the drafter for a target; raise what is no fault of the drafter, such as the rule."""
    if isinstance(make_drafter, Drafter) or not callable(make_drafter):
        raise TypeError(
            f"make_drafter is a {type(make_drafter).__name__}: must be a function from a target to a"
            " drafter, such as lambda target: PromptLookupDrafter(2)"
        )
    drafter = checks.drafter("make_drafter's result", make_drafter(target))
    for sampling in SAMPLINGS if rule is not None else ():
        settings = (sampling.temperature, sampling.top_k, sampling.top_p, rule)
        prepare(target, PROMPT, drafter, GREEDY_TOKENS, *settings)
    return drafter


def _outcome(where: str, run: Callable[[], Any]) -> Any:
    """Return what a run returns, or the fault that ended it."""
    try:
        return run()
    except TooManyOutcomes:
        raise
    except FaultFound as found:
        return Fault(found.name, f"{where}, {found.where}")
    except Exception as error:
        return Fault("error", f"{where}: {type(error).__name__}: {error}")


def _label(sampling: Sampling) -> str:
    """Return the settings in words."""
    parts = [f"temperature {sampling.temperature:g}"]
    parts += [] if sampling.top_k is None else [f"top-k {sampling.top_k}"]
    parts += [] if sampling.top_p is None else [f"top-p {sampling.top_p:g}"]
    return ", ".join(parts)


# Reported rows ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Draw:
    """All outcomes of one draw: the same text, the same earlier draws and the same reported row.

    Attributes:
        row: the reported row [V], in float64.
        older: tokens of the older siblings.
        sorted: whether siblings descend by their probability in every outcome.
        weights: [V], probability of each token that was drawn.
    """

    row: Tensor
    older: tuple[int, ...]
    sorted: bool = True
    weights: Tensor = field(init=False)

    def __post_init__(self):
        self.weights = torch.zeros_like(self.row)


def _compare_rows(watch: Watch, sampling: Sampling) -> tuple[Fault | None, int]:
    """Return the fault of the first wrong row, and the number of rows that were compared."""
    fault = None
    compared = 0
    for text, drafts in watch.drafts.items():
        draws: dict[tuple, _Draw] = {}
        reached: dict[tuple, float] = {}
        for weight, proposal in drafts.values():
            _add(proposal, weight, draws, reached)
        for (history, _), draw in draws.items():
            compared += 1
            mass = draw.weights.sum()
            actual = draw.weights / mass
            apart = (actual - draw.row).abs().sum().item() / 2
            if apart > TOLERANCE and fault is None:
                rows = [each.weights.sum().item() for (h, _), each in draws.items() if h == history]
                is_dropped = sum(rows) < reached[history] * (1 - TOLERANCE)
                name = _cause(actual, draw, sampling, is_dropped, len(rows) == 1)
                shown = [[round(x, 4) for x in row.tolist()] for row in (draw.row, actual)]
                where = f"{_label(sampling)}, after {list(text)}: reported {shown[0]}"
                fault = Fault(name, f"{where}, drawn from {shown[1]}")
    return fault, compared


def _add(
    proposal: Proposal, weight: float, draws: dict[tuple, _Draw], reached: dict[tuple, float]
) -> None:
    """Add one outcome of a round to its draws."""
    tokens = proposal.tree.tokens.tolist()
    after: dict[int, tuple] = {-1: ()}
    for parent in range(-1, len(tokens)):
        if parent not in after:
            continue
        history = after[parent]
        reached[history] = reached.get(history, 0.0) + weight
        siblings = proposal.draws.get(parent, ())
        pairs = [(row, tokens[node]) for node, row in siblings]
        rows = [drawn_from(proposal, row, x, torch.zeros(x + 1)).double() for row, x in pairs]
        values = [row[tokens[node]].item() for row, (node, _) in zip(rows, siblings)]
        falls = all(a >= b for a, b in zip(values, values[1:]))
        descends = falls and len(set(values)) > 1
        older: tuple[int, ...] = ()
        for (node, _), row in zip(siblings, rows):
            key = tuple(row.tolist())
            draw = draws.setdefault((history, key), _Draw(row, older))
            draw.sorted &= descends or len(set(values)) == 1 and len(values) > 1
            draw.weights[tokens[node]] += weight
            older = (*older, tokens[node])
            history = (*history, (key, tokens[node]))
            after.setdefault(node, (*history, "children"))
            reached[history] = reached.get(history, 0.0) + weight


def _cause(
    actual: Tensor, draw: _Draw, sampling: Sampling, is_dropped: bool, is_only_row: bool
) -> str:
    """Return the name of the fault that explains how a token was really drawn."""

    def close(row: Tensor) -> bool:
        return bool((actual - row).abs().sum() / 2 <= TOLERANCE)

    excluded = draw.row.clone()
    excluded[list(draw.older)] = 0
    if draw.older and excluded.sum() > 0 and close(excluded / excluded.sum()):
        return "row before exclusion"
    if close(sampling(draw.row.log())):
        return "row before sampling"
    if is_dropped:
        return "dropped draw"
    if actual.max() > 1 - TOLERANCE and is_only_row:
        return "argmax row"
    if draw.sorted:
        return "sorted siblings"
    return "wrong row"


def _check_later_rounds(target: CausalLM, drafter: Drafter, rule) -> tuple[Fault | None, int]:
    """Return the fault of the first wrong row of a long text, and the number of rows compared."""
    sampling = Sampling(1.0)
    where = f"{_label(sampling)}, a text of {GREEDY_TOKENS} tokens"
    settings = target, drafter, sampling, rule, GREEDY_TOKENS
    watch = _outcome(where, partial(enumerate_rounds, *settings))
    if isinstance(watch, Fault):
        return watch, 0
    return _compare_rows(watch, sampling)


# Greedy text --------------------------------------------------------------------------------------


def _check_greedy(make_drafter: Callable[[CausalLM], Drafter], rule) -> list[Fault]:
    """Return the faults of greedy text and of one sampled text, with strict checks."""
    target = tiny_target(16, seed=1)
    prompt = [3, 7, 1, 12, 3, 7, 1, 9, 3, 7]
    plain = generate(target, prompt, max_new_tokens=GREEDY_TOKENS).tokens.tolist()
    faults = []
    for temperature in (0.0, 1.0):

        def decoded(temperature=temperature):
            drafter = Watch(make_drafter(target), target, strict=True)
            return generate(target, prompt, drafter, GREEDY_TOKENS, temperature, rule=rule, seed=0)

        out = _outcome(f"temperature {temperature:g}", decoded)
        if isinstance(out, Fault):
            faults.append(out)
            continue
        if not temperature and out.tokens.tolist() != plain:
            pairs = zip(out.tokens.tolist(), plain)
            first = next(i for i, (ours, theirs) in enumerate(pairs) if ours != theirs)
            faults.append(Fault("greedy text", f"token {first} of {GREEDY_TOKENS} differs first"))
    return faults
