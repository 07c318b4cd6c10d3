"""How a reader's answer is checked: the function is called on several cases, and a wrong result gets
a message that names the mistake if it is a known one.

A check returns an `Outcome` and never raises, so that a page with an unsolved exercise still runs
to its end. Texts, hints and solutions of the exercises are in the notebooks; the natural mistakes
are here, each beside its check.
"""

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from itertools import takewhile
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


def same(given: Any, right: Any) -> bool:
    """Return whether two numbers, or two rows of numbers, are equal up to rounding."""
    given, right = (np.asarray(x, dtype=float) for x in (given, right))
    return given.shape == right.shape and bool(np.allclose(given, right, rtol=1e-6, atol=1e-9))


def leading(tests: Iterable[bool]) -> int:
    """Return how many tests pass before the first that fails."""
    return len([*takewhile(bool, tests)])


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


class Check:
    """A check of an answer by its values; it is called with the reader's function.

    Args:
        asked: how the reader's function is called, and what it returns.
        right: the right function.
        cases: tuples of arguments, numbers and lists.
        mistakes: {what to tell the reader: a function with this mistake, or several; arguments of
            the right function with which it has this mistake; or a number that it adds}.
        given_as: what the reader's function gets in place of an argument, for instance an array for
            a list.
    """

    def __init__(
        self,
        asked: str,
        right: Callable,
        cases: Sequence[tuple],
        mistakes: dict[str, Any],
        given_as: Callable[[Any], Any] = lambda argument: argument,
    ):
        self.__doc__ = f"Check {asked.rstrip('.')}."
        self.right, self.cases, self.given_as = right, cases, given_as
        several = ((f if isinstance(f, tuple) else (f,), said) for said, f in mistakes.items())
        self.mistakes = [(self._formula(each), said) for every, said in several for each in every]

    def _formula(self, mistake: Any) -> Callable:
        """Return the function of a mistake."""
        if isinstance(mistake, dict):
            names = [*signature(self.right).parameters]
            return lambda *case: self.right(**dict(zip(names, case)) | mistake)
        if isinstance(mistake, int):
            return lambda *case: self.right(*case) + mistake
        return mistake

    def __call__(self, fn: Callable) -> Outcome:
        """Compare a reader's function with the right one on every case."""
        return concluded(fn, self._outcome(fn))

    def _outcome(self, fn: Callable) -> Outcome:
        """Return the outcome of a check, whatever came before it."""
        cases = [*self.cases, *more_cases(self.cases)]
        calls = [tuple(map(self.given_as, case)) for case in cases]
        unwritten = Outcome(
            False, f"{UNWRITTEN} It is called as {shown_call(fn, calls[0])}.", False
        )
        open_line, answers = has_gap(fn), []
        for call in calls:
            given, trouble = _attempt(fn, call)
            if is_unfinished(given) or (trouble and ("ellipsis" in trouble or open_line)):
                return unwritten
            if trouble:
                return Outcome(False, f"{shown_call(fn, call)} {trouble}")
            answers.append(given)
        expected = [self.right(*case) for case in cases]
        wrong = [i for i, given in enumerate(answers) if not same(given, expected[i])]
        if not wrong:
            return Outcome(True, f"Right, on all {len(cases)} cases.")
        if open_line:
            return unwritten
        for formula, said in self.mistakes:
            if all(same(given, formula(*case)) for case, given in zip(cases, answers)):
                return Outcome(False, said)
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
