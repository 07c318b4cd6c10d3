"""The GPU path on a virtual GPU: nothing mixes devices, the text is the CPU's, and the host waits no
more often than results/waits/amd-epyc.json says.

Each suite of `virtual_checks` runs once, in a process of its own.
"""

import fcntl
import json
import math
import os
from pathlib import Path

import pytest
from virtual_waits import RECORDING, run_suite

from specdec_lite.gpu.plan import launch

TESTS = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(path.name for path in (TESTS.parent / "notebooks").glob("*.ipynb"))
CEILINGS = {
    f"{method}, {temperature}": waits
    for method, rows in json.loads(RECORDING.read_text(encoding="utf-8"))["methods"].items()
    for temperature, waits in rows.items()
}
"""Waits per round, as recorded: {"method, T = …": {"reads": n, "uploads": n}}."""
SERVING = ("a batch, T = 0", "a batch, T = 1", "diagnose", "the panel")
SERVING += ("a wrapped model: Llama", "a wrapped model: GPT2")
TRAINING = ("training eagle, pair", "training eagle, smollm2", "the losses of other heads")
EXISTING = ("gpu/test_graphs.py", "gpu/test_on_device.py", "measure/test_timing.py")
CHECKS = [
    pytest.param(suite, capability, check, marks=mark)
    for suite, capability, checks, mark in (
        ("existing", "9.0", EXISTING, pytest.mark.slow),
        ("serving", "9.0", SERVING, pytest.mark.slow),
        ("serving", "7.5", SERVING, pytest.mark.weekly),
        ("training", "9.0", TRAINING, pytest.mark.weekly),
        ("training", "7.5", TRAINING, pytest.mark.weekly),
        ("plan", "9.0", launch.NAMES, pytest.mark.slow),
        ("plan", "7.5", launch.NAMES, pytest.mark.slow),
    )
    for check in checks
]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """recorded(suite, capability) -> {check: what was found}; processes of tests share the runs."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def outcomes(suite: str, capability: str) -> dict:
        found, done = folder / f"{suite}-{capability}.json", folder / f"{suite}-{capability}.done"
        with (folder / f"{suite}-{capability}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                run_suite(suite, capability, found)
                done.touch()
        return json.loads(found.read_text(encoding="utf-8"))

    return outcomes


@pytest.mark.parametrize("suite, capability, check", CHECKS)
def test_a_check_passes_on_the_virtual_gpu(recorded, suite, capability, check):
    assert recorded(suite, capability)[check]["error"] is None


@pytest.mark.slow
@pytest.mark.parametrize("check", CEILINGS)
def test_a_method_decodes_the_cpus_text_and_waits_seldom(recorded, check):
    found = recorded("methods", "9.0")[check]
    assert found["error"] is None
    for kind, most in CEILINGS[check].items():
        assert found[kind] <= math.ceil(most), found["sites"]


@pytest.mark.slow
def test_every_method_has_a_ceiling(recorded):
    assert set(recorded("methods", "9.0")) == set(CEILINGS)


@pytest.mark.weekly
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_cells_of_a_notebook_run(name, recorded):
    errors = {cell: found["error"] for cell, found in recorded(name, "9.0").items()}
    assert errors and not any(errors.values()), {c: e for c, e in errors.items() if e}
