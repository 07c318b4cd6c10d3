"""How a reader's answer is checked: the function is called on several cases, and a wrong result gets
a message that names the mistake if it is a known one.

A check returns an `Outcome` and never raises, so that a page with an unsolved exercise still runs
to its end. Texts, hints and solutions of the exercises are in the notebooks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

UNWRITTEN = "Still to be written: fill in what is missing, and return its value."


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check, which is true if the exercise is solved.

    Attributes:
        passed: whether the answer is right.
        message: what to tell the reader. It is printed after a mark, which is neutral as long as
            nothing is written.
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
    """A wrong answer that a check recognizes.

    Attributes:
        formula: a function with this mistake, called as the reader's function is.
        message: what to tell the reader.
    """

    formula: Callable[..., Any]
    message: str


def same(given: Any, right: Any) -> bool:
    """Return whether two numbers, or two rows of numbers, are equal up to rounding."""
    given, right = (np.asarray(x, dtype=float) for x in (given, right))
    return given.shape == right.shape and bool(np.allclose(given, right, rtol=1e-6, atol=1e-9))


def _unfinished(given: Any) -> bool:
    """Return whether an answer still contains the stub's `...`."""
    return given is ... or (isinstance(given, list | tuple) and any(map(_unfinished, given)))


def _shown(x: Any) -> str:
    """Return a value as a reader would write it: 2e+12, not 2000000000000.0."""
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(_shown, x))}]"
    return f"{x:g}" if isinstance(x, float) else repr(x)


def _call(fn: Callable, case: tuple) -> str:
    """Return the call that went wrong, as a line of Python."""
    return f"{getattr(fn, '__name__', 'your function')}({', '.join(map(_shown, case))})"


def _attempt(fn: Callable, case: tuple) -> tuple[Any, str | None]:
    """Return (the reader's answer on one case, None), or (None, what went wrong)."""
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
    """Compare a reader's function with the right one on every case."""
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
    """Return numbers rounded to four digits, as text."""
    rounded = np.round(np.asarray(x, dtype=float), 4)
    whole = np.isfinite(rounded).all() and (rounded == np.round(rounded)).all()
    return str((rounded.astype(int) if whole else rounded).tolist())
