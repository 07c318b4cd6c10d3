"""The workflows of .github: what they say about versions agrees with the project, and their own
little scripts do what they say.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import yaml
from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FREEZE = """numpy==2.0.2
torch @ https://example.org/whl/cu126/torch-2.8.0%2Bcu126-cp312-cp312-manylinux_2_28_x86_64.whl#sha256=12ab
torchao==0.10.0
transformers==5.1.0
tqdm==4.67.1+local
"""


def workflow(name: str) -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text("utf-8"))


def scripts(name: str) -> list[str]:
    return [
        step["run"]
        for job in workflow(name)["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]


def script(name: str, word: str) -> str:
    return next(run for run in scripts(name) if word in run)


def run(command: str, folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-ec", command.replace("python -c", f"{sys.executable} -c")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = re.search(r"^\.PHONY: (.*)$", MAKEFILE, flags=re.M)[1].split()


def test_every_target_of_make_is_declared_made_and_explained():
    assert sorted(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, flags=re.M)) == sorted(TARGETS)
    assert set(re.findall(r'@echo "make ([\w-]+) ', MAKEFILE)) == set(TARGETS) - {"help", "clean"}


def test_tests_run_in_one_process_for_each_core_with_one_thread_each():
    assert "--numprocesses $(WORKERS)" in MAKEFILE and re.findall(
        r"^\t\$\(PYTEST\).*$", MAKEFILE, flags=re.M
    ) == ["\t$(PYTEST)", "\t$(PYTEST) -m matrix --timeout 3600"]
    assert "PYTEST_XDIST_WORKER" not in os.environ or torch.get_num_threads() == 1


@pytest.mark.parametrize("name", ["book", "weekly"])
def test_scripts_are_shell_and_their_targets_exist(name: str):
    assert scripts(name)
    for text in scripts(name):
        checked = subprocess.run(
            ["bash", "-n"], input=text, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stderr
        assert set(re.findall(r"^make ([\w-]+)", text, flags=re.M)) <= set(TARGETS)


def test_the_ordinary_one_tests_every_supported_python_and_publishes_what_it_tested():
    jobs = workflow("book")["jobs"]
    pythons = jobs["test"]["strategy"]["matrix"]["python"]
    assert pythons == ["3.11", "3.12", "3.13"] and PROJECT["requires-python"] == f">={pythons[0]}"
    assert any("make test" in step.get("run", "") for step in jobs["test"]["steps"])
    assert jobs["publish"]["needs"] == "test" and "main" in jobs["publish"]["if"]


def test_the_newest_versions_are_not_pinned(tmp_path: Path):
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    run(script("weekly", "What those bring"), tmp_path)
    wanted = [
        line
        for line in (tmp_path / "requirements.txt").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert "torch" in wanted and "jupyter-book<2" in wanted and "playwright" in wanted
    assert not any("==" in line for line in wanted)


def test_the_oldest_versions_are_the_lower_bounds(tmp_path: Path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    run(script("weekly", "> oldest.txt"), tmp_path)
    pins = (tmp_path / "oldest.txt").read_text("utf-8").split()
    assert sorted(pins) == sorted(bound.replace(">=", "==") for bound in PROJECT["dependencies"])
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", pin) for pin in pins)


def test_colabs_versions_are_read_from_its_list(tmp_path: Path):
    (tmp_path / "freeze.txt").write_text(FREEZE, "utf-8")
    command = "\n".join(
        line for line in script("weekly", "freeze.txt").splitlines() if "curl" not in line
    )
    run(command, tmp_path)
    assert (tmp_path / "colab.txt").read_text("utf-8").split() == [
        "numpy==2.0.2",
        "torch==2.8.0",
        "transformers==5.1.0",
        "tqdm==4.67.1",
    ]


def test_what_tools_leave_behind_is_no_page_of_the_book():
    """pytest writes a README.md into its cache: a strict build after a run of the tests must not
    meet it.
    """
    excluded = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["exclude_patterns"]
    left_behind = [
        line.rstrip("/")
        for line in (ROOT / ".gitignore").read_text("utf-8").split()
        if line.startswith((".", "node_modules"))
    ]
    assert ".pytest_cache" in left_behind and set(left_behind) <= set(excluded)
