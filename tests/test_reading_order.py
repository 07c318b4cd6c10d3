"""The table of files to read is what an import loads, and README.md shows it as it is."""

import subprocess
import sys

import reading_order
from conftest import ROOT

IMPORTED = """
import sys
import specdec_lite.decoding, specdec_lite.drafters.models.model
for name, module in sys.modules.items():
    if name.startswith("specdec"):
        print(module.__file__)
"""


def test_the_table_lists_the_files_that_decoding_imports():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    library = ROOT / "specdec_lite"
    imported = {line.removeprefix(f"{library}/") for line in done.stdout.splitlines()}
    assert {row.path for row in reading_order.rows()} == imported


def test_the_readme_shows_the_present_table():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert reading_order.updated(readme) == readme, "run: python site/reading_order.py"


def test_lines_are_counted_without_blanks_comments_and_docstrings():
    documentation = '"""A docstring\nof two lines."""\n\n'
    source = documentation + 'x = (\n    1,  # one\n)\n# a comment\ny = """text\nmore"""\n'
    assert reading_order.code_lines(source) == 5
