"""What `generate` with a `ModelDrafter` imports is small, and the table of files to read lists it."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import reading_order
from conftest import ROOT

MOST_FILES = 23
MOST_LINES = 2500
IMPORTS = """
import json
import sys
from functools import cache
import numpy
import torch
before = set(sys.modules)
from specdec_lite.decoding import generate
from specdec_lite.drafters import ModelDrafter
loaded = set(sys.modules) - before - {"__main__"}
print(json.dumps({name: getattr(sys.modules[name], "__file__", None) for name in loaded}))
"""


@cache
def loaded() -> dict[str, str | None]:
    """Return the modules that the import adds to those of torch and numpy, with their files."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_table_lists_the_files_that_decoding_imports():
    files = {str(file) for name, file in loaded().items() if name.startswith("specdec_lite")}
    with_code = {f for f in files if reading_order.code_lines(Path(f).read_text(encoding="utf-8"))}
    assert {str(reading_order.LIBRARY / row.path) for row in reading_order.rows()} == with_code
    assert len(reading_order.rows()) <= MOST_FILES
    assert sum(row.code for row in reading_order.rows()) <= MOST_LINES


def test_decoding_imports_only_torch_and_numpy_of_third_parties():
    allowed = {*sys.stdlib_module_names, "specdec_lite", "torch", "numpy"}
    assert not {name for name in loaded() if name.split(".")[0] not in allowed}


def test_the_readme_shows_the_present_table():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert reading_order.updated(readme) == readme, "run: python site/reading_order.py"


def test_lines_of_code_are_counted_without_blanks_comments_and_docstrings():
    documentation = '"""A docstring\nof two lines."""\n\n'
    source = documentation + 'x = (\n    1,  # one\n)\n# a comment\ny = """text\nmore"""\n'
    assert reading_order.code_lines(source) == 5
