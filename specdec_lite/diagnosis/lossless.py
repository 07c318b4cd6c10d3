"""Check a drafter on tiny models: does the text keep the target's distribution, and if not, why?

Every outcome of every draw and every coin is enumerated, so the answer is exact. Each drafted token
is also compared with the row that the drafter reports for it, because a wrong row is the usual
cause of a wrong distribution.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.acceptance.protocol import drawn_from
from specdec_lite.contract import Drafter
from specdec_lite.decoding import generate
from specdec_lite.diagnosis.enumeration import (
    CAUSES,
    PROMPT,
    Fault,
    TooManyOutcomes,
    Watch,
    distance,
    enumerate_rounds,
    enumerate_texts,
    label,
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
    found = _Findings()
    for sampling in SAMPLINGS:
        with found.at(label(sampling)):
            texts, watch = enumerate_texts(target, drafter, sampling, rule, max_outcomes)
            found.outcomes += watch.outcomes
            found.compare_rows(watch, sampling)
            apart = distance(texts, own_texts(target, sampling, len(next(iter(texts)))))
            if apart > TOLERANCE:
                found.add("text", f"{label(sampling)}: total variation {apart:.4f}")
    if not found.faults:
        with found.at(f"{label(Sampling(1.0))}, a text of {GREEDY_TOKENS} tokens"):
            settings = Sampling(1.0), rule, GREEDY_TOKENS
            found.compare_rows(enumerate_rounds(target, drafter, *settings), Sampling(1.0))
    _check_greedy(make_drafter, rule, found)
    faults = found.faults
    if "not repeatable" in faults:  # everything else is a consequence
        faults = {"not repeatable": faults["not repeatable"]}
    ordered = tuple(faults[name] for name in CAUSES if name in faults)
    return LosslessReport(type(drafter).__name__, ordered, found.outcomes, found.rows)


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


# Reported rows ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Draw:
    """All outcomes of one draw: the same text, the same earlier draws and the same reported row.

    Attributes:
        row: the reported row [V], in float64.
        older: tokens of the older siblings.
        weights: [V], probability of each token that was drawn.
        sorted: whether siblings descend by their probability in every outcome.
    """

    row: Tensor
    older: tuple[int, ...]
    weights: Tensor
    sorted: bool = True


class _Findings:
    """What was found so far.

    Attributes:
        faults: the first fault of each name.
        outcomes: number of texts that were enumerated.
        rows: number of reported rows that were compared with the drawn tokens.
    """

    def __init__(self):
        self.faults: dict[str, Fault] = {}
        self.outcomes = self.rows = 0
        self.has_wrong_row = False

    def add(self, name: str, where: str) -> None:
        """Keep a fault, unless one of its name is known."""
        self.faults.setdefault(name, Fault(name, where))

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Keep the fault or the error that ends what runs inside."""
        try:
            yield
        except TooManyOutcomes:
            raise
        except Fault as fault:
            self.add(fault.name, f"{where}, {fault.where}")
        except Exception as error:
            self.add("error", f"{where}: {type(error).__name__}: {error}")

    def compare_rows(self, watch: Watch, sampling: Sampling) -> None:
        """Compare every reported row with what was drawn; keep the first that is wrong."""
        for text, drafts in watch.drafts.items():
            draws: dict[tuple, _Draw] = {}
            reached: dict[tuple, float] = {}
            for weight, proposal in drafts.values():
                _add(proposal, weight, draws, reached)
            self.rows += len(draws)
            for (history, _), draw in draws.items():
                actual = draw.weights / draw.weights.sum()
                if self.has_wrong_row or (actual - draw.row).abs().sum() / 2 <= TOLERANCE:
                    continue
                self.has_wrong_row = True  # others follow from it
                rows = [each.weights.sum().item() for (h, _), each in draws.items() if h == history]
                is_dropped = sum(rows) < reached[history] * (1 - TOLERANCE)
                name = _cause(actual, draw, sampling, is_dropped, len(rows) == 1)
                shown = [[round(x, 4) for x in row.tolist()] for row in (draw.row, actual)]
                where = f"{label(sampling)}, after {list(text)}: reported {shown[0]}"
                self.add(name, f"{where}, drawn from {shown[1]}")


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
        siblings = [(node, tokens[node], row) for node, row in proposal.draws.get(parent, ())]
        rows = [drawn_from(proposal, r, x, torch.zeros(x + 1)).double() for _, x, r in siblings]
        values = [row[token].item() for row, (_, token, _) in zip(rows, siblings)]
        is_sorted = len(values) > 1 and values == sorted(values, reverse=True)
        older: tuple[int, ...] = ()
        for (node, token, _), row in zip(siblings, rows):
            key = tuple(row.tolist())
            draw = draws.setdefault((history, key), _Draw(row, older, torch.zeros_like(row)))
            draw.sorted &= is_sorted
            draw.weights[token] += weight
            older = (*older, token)
            history = (*history, (key, token))
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
    return "sorted siblings" if draw.sorted else "wrong row"


# Greedy text --------------------------------------------------------------------------------------


def _check_greedy(make_drafter: Callable[[CausalLM], Drafter], rule, found: _Findings) -> None:
    """Add the faults of greedy text and of one sampled text, with strict checks."""
    target = tiny_target(16, seed=1)
    prompt = [3, 7, 1, 12, 3, 7, 1, 9, 3, 7]
    plain = generate(target, prompt, max_new_tokens=GREEDY_TOKENS).tokens.tolist()
    for temperature in (0.0, 1.0):
        with found.at(f"temperature {temperature:g}"):
            watch = Watch(make_drafter(target), target, strict=True)
            out = generate(target, prompt, watch, GREEDY_TOKENS, temperature, rule=rule, seed=0)
            pairs = enumerate(zip(out.tokens.tolist(), plain, strict=True))
            differ = [i for i, (ours, theirs) in pairs if ours != theirs]
            if differ and not temperature:
                where = f"token {differ[0]} of {GREEDY_TOKENS} differs first"
                found.add("greedy text", where)
