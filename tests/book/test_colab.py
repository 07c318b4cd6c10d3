"""A chapter runs as on Colab: other package versions, no checkout, an empty folder; weekly, every one.

torch is linked from the environment that runs the tests, because it is too large to download for a
test; everything else is installed from scratch. The set-up cell is not changed: a setting of git
redirects its address to the last commit of this repository.
"""

import json
import os
import subprocess
import sys
from importlib.metadata import distribution, version
from pathlib import Path

import nbformat
import pytest
import yaml
from chapters import CHAPTERS
from chosen import one_of
from conftest import ROOT
from packaging.requirements import Requirement
from test_wheel import link

ADDRESS = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]["url"]
OLDEST = "transformers==5.0.0"
OTHERS = [OLDEST, "nbclient", "ipykernel", "ipywidgets", "numpy<2.4"]
RUN = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3").execute()
nbformat.write(notebook, "executed.ipynb")
"""


def packages(python: Path) -> dict[str, str]:
    """Return the name and version of each package of an environment."""
    process = subprocess.run(
        [python, "-m", "pip", "list", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {item["name"].lower(): item["version"] for item in json.loads(process.stdout)}


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """The Python of a new environment: pip, Jupyter's kernel, torch, the oldest transformers."""
    folder = tmp_path_factory.mktemp("colab")
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    link(["torch"], next((folder / "env").glob("lib/python*/site-packages")))
    subprocess.run([python, "-m", "pip", "install", "--quiet", *OTHERS], check=True)
    return python


@pytest.fixture(scope="module")
def offered(environment: Path) -> dict[str, str]:
    """The packages of the new environment before any chapter runs."""
    names = packages(environment)
    assert "specdec-lite" not in names and names["torch"] == version("torch")
    assert names["transformers"] != version("transformers")
    return names


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", one_of("colab", CHAPTERS, pytest.mark.weekly), ids=lambda path: path.stem
)
def test_a_chapter_runs_where_the_library_is_not_installed(
    environment: Path, offered: dict[str, str], tmp_path: Path, path: Path
):
    """The first chapter to run installs the library; none changes a package that was there."""
    redirect = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{ROOT}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
    }
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    search = os.pathsep.join([str(environment.parent), os.environ["PATH"]])
    process = subprocess.run(
        [environment, "-c", RUN, str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=clean | redirect | {"PATH": search, "HF_HUB_OFFLINE": "1"},
    )
    assert process.returncode == 0, process.stderr[-3000:]
    executed = nbformat.read(tmp_path / "executed.ipynb", as_version=4)
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    after = packages(environment)
    assert {"specdec-lite", "gguf", "plotly", "scipy"} <= after.keys()
    assert {name: after.get(name) for name in offered} == offered
    assert sorted(item.name for item in tmp_path.iterdir()) == ["executed.ipynb"]


def test_the_oldest_transformers_is_the_declared_lower_bound():
    requirement = next(
        Requirement(text)
        for text in distribution("specdec-lite").requires
        if text.startswith("transformers")
    )
    assert Requirement(OLDEST).specifier.__str__() == "==5.0.0"
    assert str(requirement.specifier) == ">=5"
