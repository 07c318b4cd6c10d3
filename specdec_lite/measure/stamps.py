"""Write recordings with a stamp that states their origin.

A recording is a file `results/<experiment>/<machine>.json`. Its stamp states what was measured,
when, on which machine, with which versions, by which command and at which commit; a file without a
stamp is rejected.
`specdec_book.recordings` reads the files.
"""

import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from specdec_lite.loading.files import written_whole

STAMP = {"what": str, "date": str, "command": str, "machine": str, "versions": dict}
"""The five fields of the stamp, with which every recording begins, and their types."""
OPENMP = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables that set OpenMP's threads and how they wait."""
LIMITS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "SPECDEC_COMPILE")
"""Variables that withhold instructions of the processor, so that it computes as an older one."""
WIDTH = 120
"""Characters of a line of a recording that may hold several values."""
PROCESS = "process"
"""The field of the stamp that older recordings lack: threads of torch, settings of OpenMP, and the
load average before and after each part."""
COMMIT = "commit"
"""The field of the stamp with the commit at which the command runs."""


def machine_name(device: str | torch.device = "cpu") -> str:
    """Return the name of a GPU, or of this machine's processor and what it is limited to."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    limited = f", limited to {limit}" if (limit := os.environ.get(LIMITS[0])) else ""
    try:
        with open("/proc/cpuinfo") as lines:
            names = (line.split(":", 1)[1].strip() for line in lines if line[:10] == "model name")
            return next(names) + limited
    except (OSError, StopIteration):
        return (platform.processor() or platform.machine()) + limited


def query_gpu(device: str | torch.device, fields: Sequence[str]) -> dict[str, str] | None:
    """Query nvidia-smi."""
    card = str(torch.cuda.get_device_properties(device).uuid)
    command = ["nvidia-smi", f"--id=GPU-{card.removeprefix('GPU-')}", "--format=csv,noheader"]
    try:
        output = subprocess.run(
            [*command, f"--query-gpu={','.join(fields)}"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    answers = [answer.strip() for answer in output.strip().split(",")]
    return dict(zip(fields, answers)) if len(answers) == len(fields) else None


def versions_here(device: str | torch.device) -> dict[str, str]:
    """Return the versions of Python and the libraries; for a GPU also CUDA's and its driver's."""
    found = {"python": platform.python_version()}
    found |= {name: version(name) for name in ("torch", "transformers")}
    if torch.device(device).type != "cuda":
        return found
    driver = query_gpu(device, ("driver_version",))
    return found | {
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
        "driver": driver["driver_version"] if driver else "unknown",
    }


def commit(root: Path = Path(__file__).parents[2]) -> str:
    """Return the commit of a checkout, or the version of the package if it is installed.

    A "+" follows if anything but the recordings differs from the commit.
    """
    git = ["git", f"--git-dir={root / '.git'}", f"--work-tree={root}"]
    changes = [*git, "diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)results"]
    try:
        head = subprocess.check_output(
            [*git, "rev-parse", "--short", "HEAD"], stderr=subprocess.DEVNULL, text=True
        )
        return head.strip() + "+" * subprocess.run(changes, check=False).returncode
    except (OSError, subprocess.SubprocessError):
        return version("specdec-lite")


def stamp(what: str, command: str, device: str = "cpu") -> dict:
    """Return the stamp of a recording that is made now."""
    limits = (f"{name}={os.environ[name]}" for name in LIMITS if name in os.environ)
    return {
        "what": what,
        "date": date.today().isoformat(),
        "command": " ".join([*limits, command]),
        "machine": machine_name(device),
        "versions": versions_here(device),
        COMMIT: commit(),
        PROCESS: {"threads": torch.get_num_threads(), "openmp": openmp_settings()},
    }


def openmp_settings() -> dict[str, str]:
    """Return the variables of OpenMP that are set in this process."""
    return {name: os.environ[name] for name in OPENMP if name in os.environ}


def split(recording: dict) -> tuple[dict, dict]:
    """Return the stamp of a recording and its data.

    Args:
        recording: the file's content.
    """
    stamped = {name: recording[name] for name in (*STAMP, COMMIT, PROCESS) if name in recording}
    return stamped, {name: value for name, value in recording.items() if name not in stamped}


def slug(text: str) -> str:
    """Return a name in lower case with hyphens, for a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def recording_path(experiment: str, machine: str, folder: str | Path = "results") -> Path:
    """Return the file of an experiment's recording on a machine."""
    return Path(folder) / experiment / f"{slug(machine)}.json"


def laid_out(value: Any, depth: int = 0) -> str:
    """Return JSON in which whatever fits on a line of WIDTH characters is on one line."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) + depth <= WIDTH or not isinstance(value, (dict, list)):
        return line
    space = "\n" + " " * (depth + 1)
    if isinstance(value, list):
        parts, ends = [laid_out(each, depth + 1) for each in value], "[]"
    else:
        names = [json.dumps(name, ensure_ascii=False) for name in value]
        parts = [
            f"{name}: {laid_out(each, depth + 1)}" for name, each in zip(names, value.values())
        ]
        ends = "{}"
    return f"{ends[0]}{space}{f',{space}'.join(parts)}\n{' ' * depth}{ends[1]}"


def save(path: str | Path, stamped: dict, data: dict) -> Path:
    """Write a recording."""
    path, clash = Path(path), stamped.keys() & data.keys()
    if clash:
        raise ValueError(f"data contains {sorted(clash)}: these names belong to the stamp")
    validate(path.name, stamped | data)
    text = laid_out(stamped | data) + "\n"
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def validate(name: str, recording: object) -> None:
    """Check the stamp of a recording."""
    if not isinstance(recording, dict):
        raise ValueError(f"{name}: must contain one JSON object")
    for field, kind in STAMP.items():
        if not isinstance(recording.get(field), kind) or not recording[field]:
            raise ValueError(
                f"{name}: {field!r} must be a non-empty {kind.__name__}, is {recording.get(field)!r}"
            )
    try:
        date.fromisoformat(recording["date"])
    except ValueError:
        raise ValueError(
            f"{name}: date={recording['date']!r} must be a date such as 2026-01-31"
        ) from None
    if not all(isinstance(v, str) and v for v in recording["versions"].values()):
        raise ValueError(
            f"{name}: versions={recording['versions']!r} must map names to version strings"
        )
    if not split(recording)[1]:
        raise ValueError(f"{name}: contains no data beside its stamp")
