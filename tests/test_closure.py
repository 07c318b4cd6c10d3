"""What `generate` with a `ModelDrafter` imports is small: few modules, few lines, torch and numpy."""

import json
import subprocess
import sys
from functools import cache

import reading_order
from conftest import ROOT

MOST_MODULES = 24
MOST_LINES = 2500
IMPORTS = """
import json
import sys
from functools import cache
import numpy
import torch
before = set(sys.modules)
from specdec_lite.decoding import generate
from specdec_lite.drafters.models.model import ModelDrafter
loaded = set(sys.modules) - before - {"__main__"}
print(json.dumps({name: getattr(sys.modules[name], "__file__", None) for name in loaded}))
"""


@cache
def loaded() -> dict[str, str | None]:
    """Return the modules that the import adds to those of torch and numpy, with their files."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_decoding_imports_few_modules_and_lines():
    files = {name: file for name, file in loaded().items() if name.startswith("specdec_lite")}
    lines = {}
    for name, file in files.items():
        with open(str(file), encoding="utf-8") as source:
            lines[name] = reading_order.code_lines(source.read())
    assert "specdec_lite.speculation" in lines
    assert len(lines) <= MOST_MODULES, sorted(lines)
    assert sum(lines.values()) <= MOST_LINES, lines


def test_decoding_imports_only_torch_and_numpy_of_third_parties():
    allowed = {*sys.stdlib_module_names, "specdec_lite", "torch", "numpy"}
    assert not {name for name in loaded() if name.split(".")[0] not in allowed}
