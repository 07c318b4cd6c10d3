"""The formulas of the interactives' modules, evaluated by one node for all tests of a process."""

import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pytest

from specdec_book.viz.interactive import source

ROOT = Path(__file__).parents[1]


@cache
def node() -> subprocess.Popen:
    """Return the process that evaluates; it ends with its input, when this process does."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    command = ["node", str(ROOT / "tests" / "js" / "evaluate.mjs")]
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    return subprocess.Popen(command, encoding="utf-8", **pipes)


def formula(module: str, name: str, *arguments):
    """Return the result of a module's formula for these arguments."""
    return evaluate(module, name, [arguments])[0]


def evaluate(module: str, name: str, cases: Iterable[Sequence]) -> list:
    """Return the results of a module's formula for cases of arguments, evaluated by node."""
    calls = [{"name": name, "args": [*case]} for case in cases]
    request = json.dumps({"source": source(module), "calls": calls})
    print(request, file=node().stdin, flush=True)
    answer = json.loads(node().stdout.readline())
    assert "error" not in answer, answer["error"]
    return answer["results"]
