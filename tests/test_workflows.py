"""The workflows of .github: their versions agree with the project, and their scripts work."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FREEZE = """numpy==2.0.2
huggingface-hub==1.3.1
torch @ https://example.org/whl/cu126/torch-2.8.0%2Bcu126-cp312-cp312-manylinux_2_28_x86_64.whl#sha256=12ab
torchao==0.10.0
transformers==5.1.0
tqdm==4.67.1+local
"""


def workflow(name: str) -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text("utf-8"))


def scripts(name: str) -> list[str]:
    """Return the shell scripts of a workflow's steps."""
    return [
        step["run"]
        for job in workflow(name)["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]


def script(name: str, word: str) -> str:
    """Return the first script of a workflow that contains `word`."""
    return next(run for run in scripts(name) if word in run)


def run(command: str, folder: Path) -> None:
    """Run a shell script in a folder, with this interpreter for `python -c`."""
    process = subprocess.run(
        ["bash", "-ec", command.replace("python -c", f"{sys.executable} -c")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr


MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = re.search(r"^\.PHONY: (.*)$", MAKEFILE, flags=re.M)[1].split()


def test_every_make_target_is_declared_defined_and_explained():
    assert {*re.findall(r"^([a-z][a-z-]*):", MAKEFILE, flags=re.M)} == {*TARGETS}
    assert set(re.findall(r'@echo "make ([\w-]+) ', MAKEFILE)) == set(TARGETS) - {"help", "clean"}


def test_every_test_is_run_by_a_target_or_every_week():
    """By one of them, whatever marks it has: no test runs twice, and none is forgotten."""
    selections = dict(re.findall(r"^(\w+) := (not weekly.*)$", MAKEFILE, flags=re.M))
    used = re.findall(r'^\t\$\(PYTEST\) -m "\$\((\w+)\)"(?! \$\(CORE)', MAKEFILE, flags=re.M)
    assert sorted(used) == sorted(selections) and len(used) == 3
    assert any("-m weekly" in text for text in scripts("weekly"))
    gate = re.findall(r"^make ([\w-]+)", (ROOT / ".ci" / "run").read_text("utf-8"), flags=re.M)
    assert gate == ["test", "test-long", "test-processors", "test-pages"]
    marks = ("slow", "registry", "matrix", "weekly", "book", "browser")
    for chosen in itertools.product([False, True], repeat=len(marks)):
        values = dict(zip(marks, chosen))
        ran = [run for run in (*selections.values(), "weekly") if eval(run, dict(values))]
        assert len(ran) == 1, chosen


def test_the_set_up_builds_with_what_is_pinned_and_runs_no_script_of_a_package():
    texts = [MAKEFILE, *scripts("weekly")]
    editable = [line for text in texts for line in text.splitlines() if "--no-deps --" in line]
    editable = [line for line in editable if "--editable" in line]
    assert len(editable) == 2 and all("--no-build-isolation" in line for line in editable)
    installs = re.findall(r"npm (?:ci|install) .*", MAKEFILE.replace("\\\n", ""))
    assert len(installs) == 1 and all("--ignore-scripts" in line for line in installs)
    requirements = (ROOT / "requirements.txt").read_text("utf-8")
    assert "\nhatchling==" in requirements, "the build's tool is pinned too"


@pytest.mark.parametrize("name", ["book", "weekly"])
def test_scripts_are_valid_shell_and_call_existing_targets(name: str):
    assert scripts(name)
    for text in scripts(name):
        process = subprocess.run(
            ["bash", "-n"], input=text, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr
        assert set(re.findall(r"^make ([\w-]+)", text, flags=re.M)) <= set(TARGETS)


@pytest.mark.parametrize("name", ["book", "weekly"])
def test_actions_are_pinned_by_commit_and_no_step_keeps_the_token(name: str):
    """A tag can be moved to other code; a commit cannot."""
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text("utf-8")
    uses = re.findall(r"uses: (.*)", text)
    assert uses and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v[\d.]+", use) for use in uses)
    for job in workflow(name)["jobs"].values():
        for step in job["steps"]:
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_each_push_tests_every_supported_python_before_publishing():
    jobs = workflow("book")["jobs"]
    pythons = jobs["test"]["strategy"]["matrix"]["python"]
    assert pythons == ["3.11", "3.12", "3.13"] and PROJECT["requires-python"] == f">={pythons[0]}"
    for target in ("test", "test-long", "test-pages"):
        assert any(f"make {target} " in step.get("run", "") for step in jobs[target]["steps"])
        assert "needs" not in jobs[target], "the three run beside each other"
    assert jobs["publish"]["needs"] == ["test", "test-long", "test-pages"]
    assert "main" in jobs["publish"]["if"]


def test_the_job_for_the_newest_versions_removes_every_pin(tmp_path: Path):
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    run(script("weekly", "What those bring"), tmp_path)
    requirements = [
        line
        for line in (tmp_path / "requirements.txt").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert {"torch", "jupyter-book<2", "playwright"} <= set(requirements)
    assert not any("==" in line for line in requirements)


def test_the_job_for_the_oldest_versions_pins_the_lower_bounds(tmp_path: Path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    run(script("weekly", "> oldest.txt"), tmp_path)
    pins = (tmp_path / "oldest.txt").read_text("utf-8").split()
    bounds = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["book"]
    assert sorted(pins) == sorted(bound.replace(">=", "==") for bound in bounds)
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", pin) for pin in pins)
    assert '--requirement oldest.txt --editable ".[book]"' in script("weekly", "--editable")


def test_versions_of_colab_are_read_from_its_published_list(tmp_path: Path):
    (tmp_path / "freeze.txt").write_text(FREEZE, "utf-8")
    command = "\n".join(
        line for line in script("weekly", "freeze.txt").splitlines() if "curl" not in line
    )
    run(command, tmp_path)
    assert (tmp_path / "colab.txt").read_text("utf-8").split() == [
        "numpy==2.0.2",
        "huggingface-hub==1.3.1",
        "torch==2.8.0",
        "transformers==5.1.0",
        "tqdm==4.67.1",
    ]


def test_files_of_tools_are_not_pages_of_the_book():
    """pytest writes a README.md into its cache; a strict build after the tests must skip it."""
    excluded = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["exclude_patterns"]
    ignored = [
        line.rstrip("/")
        for line in (ROOT / ".gitignore").read_text("utf-8").split()
        if line.startswith((".", "node_modules"))
    ]
    assert ".pytest_cache" in ignored and set(ignored) <= set(excluded)


def test_the_core_tests_exist_and_a_missing_book_fails_only_under_make_test_pages():
    core = (
        re.search(r"^CORE := ((?:.*\\\n)*.*)$", MAKEFILE, flags=re.M)[1].replace("\\", "").split()
    )
    assert len(core) > 5 and all((ROOT / path).exists() for path in core)
    assert "test-pages: export SPECDEC_REQUIRE_BOOK := 1" in MAKEFILE
    code = "import conftest; conftest.find_book()"
    for required, outcome in (("1", "Failed"), ("", "Skipped")):
        missing = {"SPECDEC_BOOK": "no/such/folder", "SPECDEC_REQUIRE_BOOK": required}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT / "tests",
            env=os.environ | missing,
            capture_output=True,
            text=True,
            check=False,
        )
        assert outcome in done.stderr and "run `make book` first" in done.stderr


def test_the_published_book_has_the_address_of_the_repositorys_pages():
    address = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]["url"]
    owner, name = address.split("/")[-2:]
    book = f"https://{owner}.github.io/{name}/"
    assert PROJECT["urls"]["Homepage"] == book and PROJECT["urls"]["Source"] == address
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"]({book})" in readme and len(readme.splitlines()) <= 120


def test_the_subject_of_the_last_commit_is_short():
    command = "git log -1 --no-merges --format=%s"
    log = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    if log.returncode:
        pytest.skip("no git repository")
    assert len(log.stdout.strip()) <= 72, log.stdout


def test_every_mark_is_documented():
    marks = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]
    names = {re.match(r"\w+", mark)[0] for mark in marks["ini_options"]["markers"]}
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert {name for name in names if f"`{name}`" not in guide} == set()
