"""Chapters run again exactly when something that they read is newer."""

import json
import os
from pathlib import Path

import pytest
from specdec_site.outdated_chapters import Library, code_cells, outdated

ROOT = Path(__file__).resolve().parents[2]

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
    """A book whose pages are all newer than the files that they read."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name, text in CHAPTERS.items():
        cells = [dict(cell_type="markdown", source=["import specdec_lite.drafters.two"])]
        cells += [dict(cell_type="code", source=[part]) for part in (SETUP, text)]
        for path, content in (
            (f"{name}.ipynb", json.dumps(dict(cells=cells))),
            (f"{name}.doctree", ""),
        ):
            (tmp_path / path).write_text(content, encoding="utf-8")
    for path in tmp_path.rglob("*"):
        os.utime(path, (1000, 2000 if path.suffix == ".doctree" else 1000))
    return tmp_path


def outdated_in(tree: Path) -> set[str]:
    """Return the outdated chapters of a book."""
    return set(outdated(tree, {name: tree / f"{name}.doctree" for name in CHAPTERS}))


def test_unchanged_and_unbuilt_chapters_are_not_outdated(tree):
    assert not outdated_in(tree)
    os.utime(tree / "specdec_lite/core.py", (3000, 3000))
    (tree / "run.doctree").unlink()
    assert outdated_in(tree) == UNRESOLVED


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
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_chapter_runs_again_if_something_it_reads_changed(tree, changed, expected):
    os.utime(tree / changed, (3000, 3000))
    assert outdated_in(tree) == expected | UNRESOLVED


def test_a_file_that_no_chapter_reads_makes_none_run(tree):
    os.utime(tree / "results/notes.txt", (3000, 3000))
    assert not outdated_in(tree)


@pytest.mark.parametrize("notebook", sorted(ROOT.glob("notebooks/*.ipynb")), ids=lambda x: x.stem)
def test_every_name_in_a_chapter_is_resolved(notebook):
    library = Library(ROOT)
    needed = {file.relative_to(ROOT).as_posix() for file in library.needed(code_cells(notebook))}
    decodes = notebook.stem != "a3_scoreboard"  # which only shows recordings
    expected = {"specdec_lite/__init__.py"} | ({"specdec_lite/sampling.py"} if decodes else set())
    assert expected <= needed and "specdec_lite/training/pair.py" not in needed
