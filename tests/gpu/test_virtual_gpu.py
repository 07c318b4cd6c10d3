"""The GPU path on a virtual GPU: nothing mixes devices, the text is the CPU's, and the host waits no
more often than results/waits/amd-epyc.json says.

Each suite of `virtual_checks` runs once, in a process of its own.
"""

import json
import math
from pathlib import Path

import pytest
from virtual_waits import RECORDING, run_suite

TESTS = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(path.name for path in (TESTS.parent / "notebooks").glob("*.ipynb"))
CEILINGS = {
    f"{method}, {temperature}": waits
    for method, rows in json.loads(RECORDING.read_text(encoding="utf-8"))["methods"].items()
    for temperature, waits in rows.items()
}
"""Waits per round, as recorded: {"method, T = …": {"reads": n, "uploads": n}}."""
SUITES = [
    *((suite, "9.0", pytest.mark.slow) for suite in ("existing", "serving", "plan")),
    ("plan", "7.5", pytest.mark.slow),
    ("serving", "7.5", pytest.mark.weekly),
    *(("training", capability, pytest.mark.weekly) for capability in ("9.0", "7.5")),
    *((notebook, "9.0", pytest.mark.weekly) for notebook in NOTEBOOKS),
]


@pytest.fixture
def outcomes(tmp_path):
    """outcomes(suite, capability) -> {check: what was found}."""

    def of(suite: str, capability: str) -> dict:
        run_suite(suite, capability, found := tmp_path / "found.json")
        return json.loads(found.read_text(encoding="utf-8"))

    return of


@pytest.mark.parametrize(
    "suite, capability", [pytest.param(*where, marks=mark) for *where, mark in SUITES]
)
def test_a_suite_passes_on_the_virtual_gpu(outcomes, suite, capability):
    errors = {check: found["error"] for check, found in outcomes(suite, capability).items()}
    assert errors and not any(errors.values()), {c: e for c, e in errors.items() if e}


@pytest.mark.slow
def test_every_method_decodes_the_cpus_text_and_waits_seldom(outcomes):
    found = outcomes("methods", "9.0")
    assert found.keys() == CEILINGS.keys()
    wrong = {
        check: found[check]
        for check, waits in CEILINGS.items()
        if found[check]["error"] or any(found[check][n] > math.ceil(waits[n]) for n in waits)
    }
    assert not wrong, wrong
