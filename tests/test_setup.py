"""The set-up of `make` on bad machines: one clear line each, and the next run continues.

Python, pip, npm and the disk are scripts here, so that every failure takes no time.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT
from packaging.utils import canonicalize_name

FILES = """Makefile requirements.txt requirements-hashes.txt pyproject.toml package.json
package-lock.json site/install_debian.sh site/stopped.sh""".split()
TOOLS = "sh awk cat chmod cp dirname env id mkdir rm test touch".split()
STAMPS = (".venv/.smollm2", "node_modules/.installed")
PYTHON = f"""#!/bin/sh
# A Python with -m venv and -m pip, which does what the file `fails` names wrong, once.
echo "$@" >> log
fails() {{ test "$(cat fails 2> /dev/null)" = "$1" && rm fails; }}
case "$*" in
  "-m venv"*)
    rm -rf .venv
    mkdir -p .venv/bin
    fails venv && {{ echo "ensurepip is not available" >&2; exit 1; }}
    fails "killed venv" && kill -9 $$
    cp "$0" .venv/bin/python ;;
  "-m pip --version") ;;
  "-m pip install"*)
    fails pip && {{ echo "ERROR: No matching distribution found" >&2; exit 1; }}
    fails "killed pip" && kill -9 $$
    true ;;
  "-c import sys; sys.exit"*)
    version=$(cat version 2> /dev/null || echo 3, 11, 4)
    exec {sys.executable} -c "import sys; sys.version_info = ($version); $2" ;;
  *load_smollm2*)
    fails smollm2 && {{ echo "SmolLM2-135M-Instruct could not be downloaded"; exit 1; }}
    true ;;
esac
"""
NPM = """#!/bin/sh
echo "npm $@" >> log
test "$(cat fails 2> /dev/null)" = npm && rm fails && { echo "npm error network" >&2; exit 1; }
mkdir -p node_modules
"""
DF = """#!/bin/sh
echo Filesystem 1024-blocks Used Available; echo disk 9 9 $(cat free 2> /dev/null || echo 99000000)
"""


class Machine:
    """A folder with the set-up's files, and a PATH that leads to its scripts only."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        for name, text in (("python3", PYTHON), ("npm", NPM), ("df", DF)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)

    def set(self, name: str, text: str) -> None:
        """Write a file that the scripts read: `fails`, `version` or `free`."""
        (self.folder / name).write_text(text)

    def make(self, *options: str) -> tuple[int, list[str]]:
        """Run the set-up; return its status and what it printed, without make's own lines."""
        command = [shutil.which("make"), "--jobs=1", "--keep-going", *STAMPS, *options]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": str(self.bin)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        lines = [line for line in done.stdout.splitlines() if not line.startswith("make")]
        return done.returncode, [line for line in lines if "Killed" not in line]

    def log(self) -> str:
        """Return the calls of the last run, and forget them."""
        path = self.folder / "log"
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return text


@pytest.fixture
def machine(tmp_path) -> Machine:
    """A machine on which everything works."""
    return Machine(tmp_path)


def test_a_good_machine_is_set_up_once(machine):
    status, lines = machine.make()
    assert status == 0 and lines == [
        "downloading and installing what requirements.txt names: PyTorch, transformers, Jupyter (some"
        " minutes the first time)"
    ]
    log = machine.log()
    installs = [line for line in log.splitlines() if "pip install" in line]
    assert len(installs) == 3 and "--require-hashes" in installs[0]
    assert installs[0].endswith("requirements-hashes.txt")
    assert "npm ci --ignore-scripts" in log
    assert machine.make() == (0, []) and machine.log() == ""


def test_no_python_and_an_old_python_are_one_line(machine):
    machine.set("version", "3, 10, 12")
    status, (line,) = machine.make()
    assert status != 0 and line.startswith("Python 3.11 or newer is needed; try: make PYTHON=")
    (machine.bin / "python3").unlink()
    status, (line,) = machine.make()
    assert status != 0 and line.startswith("Python 3.11 or newer is needed, and python3 was not")
    assert "-m venv" not in machine.log()


def test_no_npm_is_one_line_where_no_package_manager_installs_it(machine):
    (machine.bin / "npm").unlink()
    status, lines = machine.make()
    assert status != 0 and [line for line in lines if "npm" in line] == [
        "npm is needed: install Node.js 18 or newer, then run this again"
    ]


STEPS = {
    "venv": "-m venv",
    "killed venv": "-m venv",
    "pip": "-m pip install",
    "killed pip": "-m pip install",
    "npm": "npm ci",
    "smollm2": "load_smollm2",
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_or_is_killed_is_named_and_repeated(machine, step):
    machine.set("fails", step)
    status, lines = machine.make()
    assert status != 0 and [line for line in lines if "stopped" in line] == [
        "Set-up stopped: the lines above say why (no network?). Run the same command again to go on."
    ]
    assert not any("Traceback" in line for line in lines) and machine.log()
    status, lines = machine.make()
    log = machine.log()
    assert status == 0 and not any("stopped" in line for line in lines)
    assert STEPS[step] in log, "the step is repeated"
    assert machine.make() == (0, []), "and no step a third time"
    if "venv" not in step:
        assert "-m venv" not in log, "what was finished is kept"
    if step == "npm":
        assert "pip install" not in log
    if step == "smollm2":
        assert "npm" not in log and "pip install" not in log


def test_a_full_disk_is_named(machine):
    machine.set("free", "700000")
    machine.set("fails", "pip")
    status, lines = machine.make()
    assert status != 0 and [line for line in lines if "stopped" in line] == [
        "Set-up stopped: 0 GB are free on this disk, and 4 GB are needed. Run the same command again"
        " to go on."
    ]


def test_a_virtual_environment_whose_python_is_gone_is_made_anew(machine):
    """After an upgrade of the system's Python its link leads nowhere."""
    machine.make()
    (machine.folder / ".venv" / "bin" / "python").unlink()
    (machine.folder / ".venv" / "bin" / "python").symlink_to("/nowhere/python3.11")
    (machine.folder / ".venv" / ".installed").unlink()
    machine.log()
    assert machine.make()[0] == 0 and "-m venv --clear .venv" in machine.log()


# Pins with hashes -----------------------------------------------------------------------------------


LOCK = (ROOT / "requirements-hashes.txt").read_text("utf-8")
LOCKED = dict(
    re.findall(r"^(\S+)==(\S+)(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", LOCK, flags=re.M)
)


def test_every_pin_but_torchs_has_the_hashes_of_its_files():
    """torch's builds for CPUs and for each kind of GPU share one version; the reader's index decides."""
    text = (ROOT / "requirements.txt").read_text("utf-8")
    pinned = dict(re.findall(r"^([\w.-]+)==([\w.+!-]+)", text, flags=re.M))
    pinned = {canonicalize_name(name): version for name, version in pinned.items()}
    assert pinned.pop("torch") and len(LOCKED) > 100
    assert pinned == LOCKED, "run the command in the head of requirements-hashes.txt"
    assert LOCK.count("==") == len(LOCKED), "a pin without hashes"


def test_the_packages_of_the_set_up_are_checked_by_their_hashes_everywhere():
    texts = [
        path.read_text("utf-8")
        for path in (ROOT / "Makefile", *(ROOT / ".github" / "workflows").glob("*.yml"))
    ]
    for text in texts:
        lines = text.splitlines()
        installs = [
            i
            for i, line in enumerate(lines)
            if re.search(r"pip install [^&]* requirements\.txt", line)
        ]
        for at in installs:
            assert "--require-hashes" in lines[at - 1] and "--no-deps" in lines[at - 1]
        assert ("--require-hashes" in text) == bool(installs)
    assert sum("--require-hashes" in text for text in texts) == 2


def test_the_build_needs_nothing_that_is_not_locked():
    system = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]
    assert {re.match(r"[\w-]+", requirement)[0] for requirement in system["requires"]} <= {*LOCKED}
