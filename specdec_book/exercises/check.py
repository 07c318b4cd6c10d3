"""How a reader's answer is checked: the function is called on several cases, and a wrong result gets
a message that names the mistake if it is a known one.

A check returns an `Outcome` and never raises, so that a page with an unsolved exercise still runs
to its end. Texts, hints and solutions of the exercises are in the notebooks; the natural mistakes
are here, each beside its check.
"""

import copy
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specdec_book.exercises.answer import has_gap, is_unfinished, run, shown_call

UNWRITTEN = "Still to be written: fill in what is missing, and return its value."
HINT = "The fold “Hint” of this exercise has the next step."
FIRST_WORD = re.compile(r"^(?:a|[a-z]{2,})(?= )")  # not the variable q
more_cases: Callable = lambda cases: []  # further cases, which `specdec_book.classroom` draws
TRIES = 2
"""The number of wrong answers after which a hint is offered."""
_wrong: Counter[str] = Counter()
"""Wrong answers so far, by the name of the reader's function."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check, which is true if the exercise is solved.

    Attributes:
        passed: whether the answer is right.
        message: what to tell the reader.
        begun: whether the reader has changed the exercise; until then the mark is neutral.
    """

    passed: bool
    message: str
    begun: bool = True

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        mark = "✓" if self.passed else "✗" if self.begun else "○"
        return f"{mark} {FIRST_WORD.sub(lambda word: word[0].capitalize(), self.message)}"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A wrong answer that a check recognizes.

    Attributes:
        formula: a function with this mistake, called with the arguments of a case.
        message: what to tell the reader.
    """

    formula: Callable[..., Any]
    message: str


def same(given: Any, right: Any) -> bool:
    """Return whether two numbers, or two rows of numbers, are equal up to rounding."""
    given, right = (np.asarray(x, dtype=float) for x in (given, right))
    return given.shape == right.shape and bool(np.allclose(given, right, rtol=1e-6, atol=1e-9))


def check(
    fn: Callable,
    right: Callable,
    cases: Sequence[tuple],
    mistakes: Sequence[Mistake] = (),
    given_as: Callable[[Any], Any] = lambda argument: argument,
) -> Outcome:
    """Compare a reader's function with the right one on every case.

    Args:
        fn: the reader's function.
        right: the right function.
        cases: tuples of arguments, numbers and lists.
        mistakes: wrong answers to recognize.
        given_as: what `fn` gets in place of an argument, for instance an array for a list.
    """
    return concluded(fn, _outcome(fn, right, cases, mistakes, given_as))


def concluded(fn: Callable, outcome: Outcome) -> Outcome:
    """Count a wrong answer, and offer the hint after the second one in a row."""
    name = f"{getattr(fn, '__module__', '')}.{getattr(fn, '__name__', '')}"
    if outcome.passed or not outcome.begun:
        _wrong.pop(name, None)
        return outcome
    _wrong[name] += 1
    if _wrong[name] < TRIES:
        return outcome
    return replace(outcome, message=f"{outcome.message} {HINT}")


def _outcome(fn, right, cases, mistakes, given_as) -> Outcome:
    """Return the outcome of a check, whatever came before it."""
    cases = [*cases, *more_cases(cases)]
    calls = [tuple(map(given_as, case)) for case in cases]
    unwritten = Outcome(False, f"{UNWRITTEN} It is called as {shown_call(fn, calls[0])}.", False)
    open_line, answers = has_gap(fn), []
    for call in calls:
        given, trouble = _attempt(fn, call)
        if is_unfinished(given) or (trouble and ("ellipsis" in trouble or open_line)):
            return unwritten
        if trouble:
            return Outcome(False, f"{shown_call(fn, call)} {trouble}")
        answers.append(given)
    expected = [right(*case) for case in cases]
    wrong = [i for i, given in enumerate(answers) if not same(given, expected[i])]
    if not wrong:
        return Outcome(True, f"Right, on all {len(cases)} cases.")
    if open_line:
        return unwritten
    for mistake in mistakes:
        if all(same(given, mistake.formula(*case)) for case, given in zip(cases, answers)):
            return Outcome(False, mistake.message)
    i = wrong[0]
    return Outcome(
        False,
        f"{shown_call(fn, calls[i])}: the answer is {_short(expected[i])}; your function returns"
        f" {_short(answers[i])}.",
    )


def _attempt(fn: Callable, call: tuple) -> tuple[Any, str | None]:
    """Return (the reader's answer to one call, None), or (what it returned, what is wrong)."""
    given, trouble = run(fn, lambda: fn(*copy.deepcopy(call)))  # an answer may change its lists
    if trouble or is_unfinished(given):
        return given, trouble
    if given is None:
        return None, "returns nothing (None): is its `return` missing?"
    try:
        np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        return given, f"is {_clipped(given)}, which is not a number or a row of numbers."
    return given, None


def _clipped(x: Any) -> str:
    """Return the value's own text, shortened."""
    text = repr(x)
    return text if len(text) <= 200 else f"{text[:200]} …"


def _short(x: Any) -> str:
    """Return numbers rounded to four digits, as text."""
    rounded = np.round(np.asarray(x, dtype=float), 4)
    whole = np.isfinite(rounded).all() and (rounded == np.round(rounded)).all()
    return str((rounded.astype(int) if whole else rounded).tolist())
