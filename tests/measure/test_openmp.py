"""OpenMP's spin is bounded before torch is imported, and a user's own settings are kept."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

from specdec_lite.measure import stamps

ROOT = Path(__file__).resolve().parents[2]
SPIN = {"GOMP_SPINCOUNT": "5000", "KMP_BLOCKTIME": "1"}
REPORT = """
import json, os, sys
import specdec_lite
assert "torch" not in sys.modules
print(json.dumps({name: os.environ[name] for name in sys.argv[1:] if name in os.environ}))
"""


def settings_after_import(**variables: str) -> dict[str, str]:
    """Return the settings of a new process that imports the library, given a user's variables."""
    clean = {name: value for name, value in os.environ.items() if name not in stamps.OPENMP}
    output = subprocess.run(
        [sys.executable, "-c", REPORT, *stamps.OPENMP],
        env=clean | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return json.loads(output)


def test_importing_the_library_bounds_the_spin_and_leaves_the_threads():
    assert settings_after_import() == SPIN
    assert settings_after_import(OMP_NUM_THREADS="3") == {"OMP_NUM_THREADS": "3"} | SPIN


@pytest.mark.parametrize("flags", ["sse4_2 avx", "avx avx2"])
def test_a_processor_on_which_torch_stops_is_named_before(flags):
    """Torch's builds for x86 need AVX2: without it, `import torch` is an illegal instruction."""
    code = f"""
import builtins, io
real = builtins.open
line = "processor: 0\\nflags : fpu {flags}\\n"
builtins.open = lambda path, *a, **k: io.StringIO(line) if "cpuinfo" in str(path) else real(path, *a, **k)
import specdec_lite, sys
assert "torch" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0 and ("no AVX2" in run.stderr) == ("avx2" not in flags), run.stderr


@pytest.mark.parametrize("name", stamps.OPENMP[1:])
def test_a_user_who_sets_how_threads_wait_wins(name):
    assert settings_after_import(**{name: "active"}) == {name: "active"}


def test_a_recording_states_threads_settings_and_limits(monkeypatch):
    for name, value in zip(stamps.LIMITS, ("AVX2", "avx2", "x86-64-v3")):
        monkeypatch.setenv(name, value)
    stamp = stamps.stamp("a thing", "a command")
    words = "ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 SPECDEC_COMPILE=x86-64-v3 a command"
    assert stamp["machine"].endswith(", limited to AVX2") and stamp["command"] == words
    process = stamp["process"]
    assert process == {
        "threads": int(os.environ["OMP_NUM_THREADS"]),
        "openmp": stamps.openmp_settings(),
    }
    assert {"OMP_NUM_THREADS", "GOMP_SPINCOUNT"} <= process["openmp"].keys()


@pytest.mark.parametrize("path", sorted(ROOT.glob("notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_a_chapter_imports_the_library_before_torch(path: Path):
    """OpenMP reads its settings when torch is imported."""
    cell = next(c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    tree = ast.parse(TransformerManager().transform_cell(cell.source))
    imports = re.findall(r"^ *(?:import|from) (\w+)", ast.unparse(tree), flags=re.M)
    assert imports[0] == "specdec_lite" and "torch" in imports
