"""The formulas of the interactives' modules, evaluated by node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from specdec_book.viz.interactive import source

ROOT = Path(__file__).parents[1]


def evaluate(module: str, calls: list[dict]) -> list:
    """Return the results of a module's formulas, evaluated by node."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    run = subprocess.run(
        ["node", str(ROOT / "tests" / "js" / "evaluate.mjs")],
        input=json.dumps({"source": source(module), "calls": calls}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
