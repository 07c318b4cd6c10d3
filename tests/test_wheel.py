"""The library without the extra `book`: a wheel, in an environment that has nothing else."""

import re
import shlex
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def needed(names: Iterable[str]) -> dict[str, Distribution]:
    """Return the installed distributions of these requirements and of what they require in turn."""
    reached: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name in reached or requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        reached[name] = distribution(name)
        waiting += reached[name].requires or ()
    return reached


def link(names: Iterable[str], packages: Path) -> None:
    """Link installed distributions and what they require into another environment's packages."""
    for found in needed(names).values():
        for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            source = Path(str(found.locate_file(name)))
            if source.exists() and not (packages / name).exists():
                (packages / name).symlink_to(source)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The distribution, built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, cwd=folder)
    return next(folder.glob("specdec_lite-*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory) -> Path:
    """The interpreter of an environment with the wheel and its core dependencies only.

    The dependencies are links to those of the running environment.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    link(project["dependencies"], site)
    return folder / "bin" / "python"


def run(python: Path, code: str, folder: Path) -> str:
    """Return what a script prints, run where the checkout is not on Python's path."""
    done = subprocess.run([python, "-I", "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_both_packages_and_the_recordings(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "specdec_lite/__init__.pyi",
        "specdec_lite/py.typed",
        "specdec_book/viz/__init__.py",
        "specdec_book/recorded/losslessness/amd-epyc.json",
    } <= names
    assert not any(name.startswith(("tests/", "benchmarks/", "site/")) for name in names)


def test_the_readmes_examples_run_without_the_extra(python: Path, tmp_path: Path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(examples) == 2
    where = "import specdec_lite; print(specdec_lite.__file__)"
    code = "\nprint(chr(0))\n".join([*examples, where])
    text, report, path = run(python, code, tmp_path).split("\0")
    assert 1 < float(text.split()[-1]) <= 5 and "is lossless" in report
    assert not path.strip().startswith(str(ROOT))


VLLM = (
    "SpecDecoding metrics: Mean acceptance length: 2.37, Accepted: 89 tokens, Drafted: 325 tokens,"
    " Per-position acceptance rate: 0.600, 0.385, 0.215, 0.108, 0.062, Avg Draft acceptance rate: 27.4%"
)


def test_the_readmes_commands_run_without_the_extra(python: Path, tmp_path: Path):
    """What the reader fills in is filled in here; a measurement is kept short."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"`python (-m specdec_lite [^`]+)`", readme)
    assert [command.split()[2] for command in commands] == ["diagnose", "explain"]
    (tmp_path / "mine.txt").write_text("def main():\n    print('hello')\n" * 20)
    for given, filled in (("TARGET DRAFT", "shipped shipped"), ("SpecDecoding metrics: …", VLLM)):
        assert sum(given in command for command in commands) == 1
        commands = [command.replace(given, filled) for command in commands]
    outputs = []
    for command in commands:
        short = ["--new-tokens", "16"] if "diagnose" in command else []
        arguments = [python, "-I", *shlex.split(command), *short]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    # Beside other programs the verdict may be "disturbed"; the texts are equal all the same.
    assert re.search(r"texts equal to plain greedy +100 %", outputs[0])
    assert "α, accepted ÷ tested" in outputs[0]
    assert "vLLM, log line" in outputs[1] and "2.37" in outputs[1]


def test_the_readmes_installs_name_this_project_and_an_extra_that_exists():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    commands = re.findall(r"^pip install (\"[^\"]*\"|\S+)", readme, flags=re.M)
    assert len(commands) == 2
    for command in commands:
        requirement = command.strip('"')
        assert requirement.endswith(f"git+{project['urls']['Source']}")
        for name, extra in re.findall(r"([\w-]+)\[(\w+)\]", requirement):
            assert name == project["name"] and extra in project["optional-dependencies"]


def test_what_needs_another_package_names_an_install_that_exists(python: Path, tmp_path: Path):
    code = """
from specdec_lite import _extras
try:
    _extras.load("gguf.constants")
except ImportError as error:
    print(error)
"""
    assert run(python, code, tmp_path).strip() == "gguf is needed here: pip install gguf"
