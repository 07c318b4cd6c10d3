"""The build of a toy book: a good chapter, one that fails and one that takes too long."""

import os
import subprocess
import sys
import threading
import time
from ast import literal_eval
from pathlib import Path

import forks
import nbformat
import pytest
from bs4 import BeautifulSoup
from specdec_site import execution, kernels

SITE = Path(execution.__file__).resolve().parents[1]
CONF = """
extensions = ["myst_nb", "toy"]
nb_execution_mode = "off"
exclude_patterns = ["_build"]
nb_execution_timeout = 20
"""
# Plain kernels, which import less than the server of forked kernels.
TOY = """
from specdec_site import execution, execution_times, kernels
kernels.CAN_FORK = False
def setup(app):
    execution.register(app)
"""
COUNTED = "print('sum', 20 + 3)\nprint('ran', file=open('good.txt', 'a'))"
CHAPTERS = {
    "good": (COUNTED, "print('second', 2)"),
    "fails": ("print('before')", "1 / 0", "print('after')"),
    "slow": ("print('before')", "while True: pass"),
}
BROKEN = "<<<<<<< ours"


def write(folder: Path, name: str, *cells: str) -> Path:
    """Write a chapter."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell(f"# {name}"), *map(nbformat.v4.new_code_cell, cells)]
    )
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """The folder of the toy book."""
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "index.md").write_text(
        "# Book\n\n```{toctree}\n" + "\n".join([*CHAPTERS, "merged"]) + "\n```\n", encoding="utf-8"
    )
    (tmp_path / "merged.ipynb").write_text(BROKEN)
    for name, cells in CHAPTERS.items():
        write(tmp_path, name, *cells)
    return tmp_path


def build(toy: Path, *options: str, **variables: str) -> tuple[int, str]:
    """Build the toy book; return the exit status and what the build printed."""
    path = os.pathsep.join([str(toy), str(SITE), str(SITE.parent)])
    process = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ".", "_build/html"],
        cwd=toy,
        env=os.environ | {"PYTHONPATH": path} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout


def article(toy: Path, name: str) -> BeautifulSoup:
    """Return the body of a built page."""
    html = (toy / "_build" / "html" / f"{name}.html").read_text("utf-8")
    return BeautifulSoup(html, "html.parser").select_one("[role=main]")


def runs(toy: Path) -> int:
    """Return how often the good chapter was executed."""
    return (toy / "good.txt").read_text().count("ran")


@pytest.mark.slow
def test_a_failed_or_slow_chapter_costs_no_other_page(toy: Path):
    status, output = build(toy)
    assert status == 1, output
    assert "chapters to execute: 4," in output and "chapters left: 0" in output
    assert "sum 23" in article(toy, "good").text and not article(toy, "good").select(".error")
    for name, reason in (("fails", "ZeroDivisionError"), ("slow", "longer than the 20 s")):
        page = article(toy, name)
        (note,) = page.select(".admonition.error")
        assert note.find_previous("h1") and not note.find_previous(class_="cell")
        assert reason in note.text and "code cell 2" in note.text
        assert "before" in page.text and f"{name}: WARNING" in output.replace(".ipynb", "")
    assert "not a notebook" in article(toy, "merged").select_one(".admonition.error").text
    assert article(toy, "fails").select(".output.traceback, .highlight-ipythontb")

    status, output = build(toy)
    assert status == 1 and runs(toy) == 1 and "chapters to execute: 3," in output

    write(toy, "fails", "print('repaired')\n!echo from a shell")
    write(toy, "slow", "print('quick')")
    write(toy, "merged", "1")
    status, output = build(toy)
    assert status == 0 and runs(toy) == 1, output
    assert "repaired" in article(toy, "fails").text and not article(toy, "fails").select(".error")

    status, output = build(toy)
    assert status == 0 and "executing" not in output

    (toy / "results" / "speed").mkdir(parents=True)
    (toy / "results" / "speed" / "machine.json").write_text("{}")
    status, output = build(toy)
    assert status == 0 and runs(toy) == 2 and "chapters to execute: 4," in output


@pytest.mark.slow
def test_only_the_named_chapters_are_executed_in_a_strict_build(toy: Path):
    write(toy, "fails", "!echo from a shell")
    write(toy, "merged", "1")
    status, output = build(toy, "-W", "--keep-going", SPECDEC_CHAPTERS="good")
    assert status == 0 and "chapters to execute: 1," in output and runs(toy) == 1, output
    assert "sum 23" in article(toy, "good").text and not article(toy, "slow").select(".output")


def test_the_chapters_that_begin_a_first_build_exist():
    assert all((SITE.parent / "notebooks" / f"{name}.ipynb").exists() for name in execution.LONGEST)


def test_an_interruption_ends_the_kernel(tmp_path: Path, monkeypatch):
    """The kernel is started by its command, which imports less than the server of forked kernels."""
    monkeypatch.setattr(kernels, "CAN_FORK", False)
    clients = []

    def interrupt():
        while not (tmp_path / "began").exists():
            time.sleep(0.1)
        execution.kill(clients[0])

    threading.Thread(target=interrupt, daemon=True).start()
    path = write(tmp_path, "waits", "import time; open('began', 'w'); time.sleep(1000)")
    run = execution.execute(path, 600, clients)
    assert "died" in run.failure and "code cell 1" in run.failure and run.seconds < 500


@pytest.mark.slow
@pytest.mark.skipif(not kernels.CAN_FORK, reason="kernels are forked on Linux alone")
def test_a_forked_kernel_begins_with_the_common_modules_and_without_the_builds_own(tmp_path: Path):
    cell = f"import sys; print({{'specdec_site', *{forks.IMPORTED}}} & {{*sys.modules}})"
    # Some libraries choose how to show a result when they are imported: only a kernel may do it.
    path = write(tmp_path, "looks", cell, "import plotly.graph_objects as go; go.Figure()")
    run = execution.execute(path, 600, [])
    assert not run.failure
    assert "application/vnd.plotly.v1+json" in run.notebook.cells[2].outputs[0].data
    assert set(literal_eval(run.notebook.cells[1].outputs[0].text)) == {*forks.IMPORTED}
