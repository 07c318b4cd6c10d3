"""Chapters run again when something that they read is newer, and only then."""

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "site"))
from specdec_site.fresh import Library, code, stale  # noqa: E402

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
    "results/speed.json": "{}",
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
LOST = {"unknown", "broken"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A book whose pages are all newer than what they read."""
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


def again(tree: Path) -> set[str]:
    return set(stale(tree, {name: tree / f"{name}.doctree" for name in CHAPTERS}))


def test_nothing_new_runs_nothing_and_what_was_never_built_is_left_to_sphinx(tree):
    assert not again(tree)
    os.utime(tree / "specdec_lite/core.py", (3000, 3000))
    (tree / "run.doctree").unlink()
    assert again(tree) == LOST


@pytest.mark.parametrize(
    "changed, expected",
    {
        "specdec_lite/core.py": {"run"},
        "specdec_lite/deep.py": {"run"},  # by way of core
        "specdec_lite/measure/clock.py": {"clock"},  # under another name
        "specdec_lite/drafters/one.py": {"one", "limit"},
        "specdec_lite/drafters/two.py": {"limit"},  # the package's own name needs the package
        "specdec_lite/theory.py": {"dotted", "star"},
        "specdec_lite/__init__.py": EVERY,
        "specdec_lite/weights/pair/model.safetensors": EVERY,
        "results/speed.json": EVERY,
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_chapter_runs_again_for_what_it_reads(tree, changed, expected):
    os.utime(tree / changed, (3000, 3000))
    assert again(tree) == expected | LOST


def test_what_no_chapter_reads_runs_none(tree):
    os.utime(tree / "results/notes.txt", (3000, 3000))
    assert not again(tree)


@pytest.mark.parametrize("notebook", sorted(ROOT.glob("notebooks/*.ipynb")), ids=lambda x: x.stem)
def test_every_name_of_the_books_chapters_is_followed(notebook):
    library = Library(ROOT)
    needed = {
        str(file.relative_to(ROOT / "specdec_lite")) for file in library.needed(code(notebook))
    }
    decodes = notebook.stem != "a3_scoreboard"  # which shows what was recorded
    assert {"__init__.py"} | ({"sampling.py"} if decodes else set()) <= needed
    assert "training/pair.py" not in needed
