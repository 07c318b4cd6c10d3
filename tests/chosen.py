"""The cases of a large table that `make test` runs: a sample that changes with the commit."""

import hashlib
import subprocess
from collections.abc import Iterable

import pytest
from conftest import ROOT

GIT = "git rev-parse HEAD"
COMMIT = subprocess.run(GIT, shell=True, cwd=ROOT, capture_output=True, text=True).stdout
"""Empty where there is no git repository."""


def draw(name: str, count: int) -> int:
    """Return a number below `count` that follows from the name of a case and the commit."""
    return hashlib.sha256(f"{COMMIT}{name}".encode()).digest()[0] % count


def one_in(
    count: int, values: Iterable, always: Iterable[str] = (), mark=pytest.mark.registry
) -> list:
    """Return values, or tuples of them, as parameters; most of them carry the mark.

    Args:
        count: the sample has about one case in `count`, and at least one.
        values: of the cases. A case is named by its values' own names.
        always: names that have no mark in any commit.
    """
    cases = [value if isinstance(value, tuple) else (value,) for value in values]
    name_of = lambda part: str(getattr(part, "name", getattr(part, "__name__", part)))
    names = [" ".join(map(name_of, case)) for case in cases]
    assert " at 0x" not in "".join(names), "an address is another name in every process"
    quick = {*always, *(name for name in names if draw(name, count) == 0)}
    quick = quick or {names[draw(names[0], len(names))]}
    return [
        pytest.param(*case, marks=() if name in quick else mark, id=name)
        for case, name in zip(cases, names)
    ]


def one_of(name: str, values: Iterable, mark=pytest.mark.registry) -> list:
    """Return values, or tuples of them, as parameters; all but one carry the mark.

    The one without it follows from the name and the commit.
    """
    cases = [value if isinstance(value, tuple) else (value,) for value in values]
    quick = draw(name, len(cases))
    return [
        pytest.param(*case, marks=() if number == quick else mark)
        for number, case in enumerate(cases)
    ]
