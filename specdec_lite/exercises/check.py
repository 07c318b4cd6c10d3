"""Checks for the book's exercises: a reader's function is tried on cases, and told what is wrong
when it is.

What lives here: one `check_…` per exercise, each returning an Outcome and never raising, so that a
page with an unsolved exercise still runs to its end. What does not: the exercises' texts, hints and
solutions (they stand in the notebooks).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

UNWRITTEN = "Still to be written: fill in what is missing, and return its value."


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found. Truthy iff the exercise is solved; shown as a mark, which is neither right
    nor wrong while nothing is written, and the message.
    """

    passed: bool
    message: str

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        mark = "✓" if self.passed else "○" if self.message == UNWRITTEN else "✗"
        return f"{mark} {self.message}"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A wrong answer worth recognising: a function with that mistake, and what to say of it."""

    formula: Callable[..., Any]
    message: str


def same(given: Any, right: Any) -> bool:
    given, right = (np.asarray(x, dtype=float) for x in (given, right))
    return given.shape == right.shape and bool(np.allclose(given, right, rtol=1e-6, atol=1e-9))


def _unfinished(given: Any) -> bool:
    """Whether the stub's ... stands somewhere in an answer."""
    return given is ... or (isinstance(given, list | tuple) and any(map(_unfinished, given)))


def _shown(x: Any) -> str:
    """A value as a reader would write it: 2e+12, not 2000000000000.0."""
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(_shown, x))}]"
    return f"{x:g}" if isinstance(x, float) else repr(x)


def _call(fn: Callable, case: tuple) -> str:
    """The call of the reader's function that went wrong, as a line of Python."""
    return f"{getattr(fn, '__name__', 'your function')}({', '.join(map(_shown, case))})"


def _attempt(fn: Callable, case: tuple) -> tuple[Any, str | None]:
    """The reader's answer on one case, or what went wrong on the way to it."""
    try:
        given = fn(*case)
    except (
        Exception
    ) as error:  # whatever the reader's code raises is to be shown, not to stop the page
        if "ellipsis" in str(error):
            return None, UNWRITTEN
        return None, f"{_call(fn, case)} raises {type(error).__name__}: {error}"
    if given is None or _unfinished(given):
        return None, UNWRITTEN
    try:
        np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        return None, f"{_call(fn, case)} is {given!r}, which is not a number or a row of numbers."
    return given, None


def check(
    fn: Callable, right: Callable, cases: Sequence[tuple], mistakes: Sequence[Mistake] = ()
) -> Outcome:
    """Try fn on every case against `right`; on the first difference say which known mistake it
    looks like, if any.

    fn, right: called as fn(*case). Returns an Outcome; never raises on account of fn.
    """
    answers = []
    for case in cases:
        given, trouble = _attempt(fn, case)
        if trouble:
            return Outcome(False, trouble)
        answers.append(given)
    wrong = [(case, given) for case, given in zip(cases, answers) if not same(given, right(*case))]
    if not wrong:
        return Outcome(True, f"Right, on all {len(cases)} cases.")
    for mistake in mistakes:
        if all(same(given, mistake.formula(*case)) for case, given in zip(cases, answers)):
            return Outcome(False, mistake.message)
    case, given = wrong[0]
    return Outcome(
        False,
        f"{_call(fn, case)}: the answer is {_short(right(*case))}; your function returns {_short(given)}.",
    )


def _short(x: Any) -> str:
    rounded = np.round(np.asarray(x, dtype=float), 4)
    whole = np.isfinite(rounded).all() and (rounded == np.round(rounded)).all()
    return str((rounded.astype(int) if whole else rounded).tolist())
