"""`make serve` builds the book again exactly when a source has changed."""

import importlib.util
import os
import re
from types import ModuleType

import pytest
from conftest import ROOT

# times of the files, and of one changed file, in seconds since 1970
PAGE = 1_000
NEW = 2_000
SOURCES = (
    "book/preface.md",
    "book/figures/tree.svg",
    "notebooks/01_a.ipynb",
    "site/static/page.css",
    "site/live/worker.js",
    "specdec_lite/theory.py",
    "specdec_book/viz/panel.py",
    "specdec_book/viz/static/bench.js",
    "results/page-sizes/amd-epyc.json",
    "_config.yml",
    "_toc.yml",
)
OTHER_FILES = (
    "_build/html/index.html",
    "site/specdec_site/__pycache__/live.pyc",
    "specdec_lite/__pycache__/theory.pyc",
    "tests/test_tree.py",
)


@pytest.fixture
def serve() -> ModuleType:
    spec = importlib.util.spec_from_file_location("serve", ROOT / "site" / "serve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_change_builds_the_book_once(serve, monkeypatch):
    """Each second: no change, a change, no change, two more changes, the reader's Ctrl+C."""
    times, builds, waits = iter([1, 1, 5, 5, 6, 7]), [], []

    def newest() -> float:
        if (latest := next(times, None)) is None:
            raise KeyboardInterrupt
        return latest

    monkeypatch.setattr(serve, "newest", newest)
    monkeypatch.setattr(serve.time, "sleep", waits.append)
    monkeypatch.setattr(
        serve.subprocess,
        "run",
        lambda command, cwd: builds.append(([str(part) for part in command], cwd, len(waits))),
    )
    with pytest.raises(KeyboardInterrupt):
        serve.rebuild_on_change()
    assert [second for *_, second in builds] == [2, 4, 5] and set(waits) == {1}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for (program, *options), folder, _ in builds:
        assert (
            program.endswith("/jupyter-book")
            and re.search(re.escape(f"/jupyter-book {' '.join(options)}") + "[;\n]", makefile)
            and folder == ROOT
        )


@pytest.mark.parametrize("changed", SOURCES + OTHER_FILES)
def test_only_sources_are_watched_and_not_what_a_build_writes(
    serve, monkeypatch, tmp_path, changed: str
):
    for name in SOURCES + OTHER_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, times=(0, NEW if name == changed else PAGE))
    monkeypatch.setattr(serve, "ROOT", tmp_path)
    assert serve.newest() == (NEW if changed in SOURCES else PAGE)
