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


def sample(count: int, values: Iterable) -> list:
    """Return values, or tuples of them, as parameters; about one in `count` is in `make test`."""
    cases = [value if isinstance(value, tuple) else (value,) for value in values]
    named = [" ".join(str(getattr(part, "name", part)) for part in case) for case in cases]
    return [
        pytest.param(*case, marks=pytest.mark.registry if draw(name, count) else (), id=name)
        for case, name in zip(cases, named)
    ]


def one_in(count: int, names: Iterable[str], always: Iterable[str] = ()) -> list:
    """Return the names as parameters; most of them carry the mark `registry`.

    Args:
        count: the sample has about one name in `count`.
        names: names of the cases.
        always: names that have no mark in any commit.
    """
    quick = {*always, *(name for name in names if draw(name, count) == 0)}
    return [
        pytest.param(name, marks=() if name in quick else pytest.mark.registry) for name in names
    ]
