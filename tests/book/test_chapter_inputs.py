"""Chapters run again exactly when something that they read has changed."""

import json
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT
from specdec_site.chapter_inputs import Inputs, Library, code_cells

FILES = {
    "specdec_lite/__init__.py": "from specdec_lite.core import run\n"
    "from specdec_lite.measure import clock as timing\nfrom specdec_lite import theory\n"
    "__version__ = '1'\n",
    "specdec_lite/core.py": "import math\nfrom specdec_lite.deep import depth\n",
    "specdec_lite/deep.py": "def depth(): ...\n",
    "specdec_lite/theory.py": "",
    "specdec_lite/measure/__init__.py": "",
    "specdec_lite/measure/clock.py": "",
    "specdec_lite/drafters/__init__.py": "from specdec_lite.drafters.one import One\n"
    "from specdec_lite.drafters.two import Two\nLIMIT: int = 3\n",
    "specdec_lite/drafters/one.py": "class One: ...\n",
    "specdec_lite/drafters/two.py": "class Two: ...\n",
    "specdec_lite/weights/pair/model.safetensors": "",
    "results/speed/machine.json": "{}",
    "specdec_lite/texts/prompts.json": "[]",
    "specdec_book/viz/static/drawings/cache.svg": "<svg/>",
    "specdec_book/viz/static/bench.js": "",
    "results/notes.txt": "",
}
SETUP = "try:\n    import specdec_lite\nexcept ImportError:\n    %pip install specdec-lite\n"
CHAPTERS = {
    "run": "from specdec_lite import run",
    "clock": "from specdec_lite import (\n    timing)\n!ls\ntiming",
    "one": "def f():\n    from specdec_lite.drafters import One",
    "limit": "from specdec_lite.drafters import LIMIT",
    "dotted": "specdec_lite.theory.residual",
    "unknown": "from specdec_lite.drafters import Three",
    "star": "from specdec_lite.theory import *",
    "broken": "for",
    "bare": "print(specdec_lite.__version__)",
}
EVERY = set(CHAPTERS)
UNRESOLVED = {"unknown", "broken"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The folder of a book."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name, text in CHAPTERS.items():
        cells = [dict(cell_type="markdown", source=["import specdec_lite.drafters.two"])]
        cells += [dict(cell_type="code", source=[part]) for part in (SETUP, text)]
        (tmp_path / f"{name}.ipynb").write_text(json.dumps(dict(cells=cells)), encoding="utf-8")
    return tmp_path


def fingerprints(tree: Path) -> dict[str, str]:
    """Return the fingerprint of every chapter of a book."""
    return {name: Inputs(tree).fingerprint(tree / f"{name}.ipynb") for name in CHAPTERS}


def outdated_by(tree: Path, changed: str) -> set[str]:
    """Return the chapters whose fingerprint changes with a file."""
    before = fingerprints(tree)
    path = tree / changed
    path.write_text(path.read_text("utf-8") + "\n", encoding="utf-8")
    return {name for name, value in fingerprints(tree).items() if value != before[name]}


@pytest.mark.parametrize(
    "changed, expected",
    {
        "specdec_lite/core.py": {"run"},
        "specdec_lite/deep.py": {"run"},  # through core
        "specdec_lite/measure/clock.py": {"clock"},  # under another name
        "specdec_lite/drafters/one.py": {"one", "limit"},
        "specdec_lite/drafters/two.py": {"limit"},  # the package itself defines the name
        "specdec_lite/theory.py": {"dotted", "star"},
        "specdec_lite/__init__.py": EVERY,
        "specdec_lite/weights/pair/model.safetensors": EVERY,
        "results/speed/machine.json": EVERY,
        "specdec_lite/texts/prompts.json": EVERY,
        "specdec_book/viz/static/drawings/cache.svg": EVERY,
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_chapter_runs_again_if_something_it_reads_changed(tree, changed, expected):
    in_the_library = changed.startswith("specdec_lite")
    assert outdated_by(tree, changed) == expected | (UNRESOLVED if in_the_library else set())


@pytest.mark.parametrize("changed", ["results/notes.txt", "specdec_book/viz/static/bench.js"])
def test_a_file_that_no_chapter_reads_makes_none_run(tree, changed):
    assert outdated_by(tree, changed) == set()


@cache
def library() -> Library:
    return Library(ROOT)


@pytest.mark.parametrize("notebook", sorted(ROOT.glob("notebooks/*.ipynb")), ids=lambda x: x.stem)
def test_every_name_in_a_chapter_is_resolved(notebook):
    files = library().needed(code_cells(notebook))
    needed = {file.relative_to(ROOT).as_posix() for file in files}
    # The board only shows recordings, and chapter 17 only computes costs.
    decodes = notebook.stem not in ("17_serving", "a3_scoreboard")
    expected = {"specdec_lite/__init__.py"} | ({"specdec_lite/sampling.py"} if decodes else set())
    assert expected <= needed and "specdec_lite/training/pair.py" not in needed
