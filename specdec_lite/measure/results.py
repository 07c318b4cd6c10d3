"""Recorded measurements: figures that a chapter quotes without having just measured them.

What lives here: writing and reading `results/*.json`. What does not: measuring (`timing`,
`benchmarks`). Every recording says what was measured, when, on which machine, with which versions
and by which command; a file that does not is refused. `published.json` is the other kind: figures
of papers, each entry with its source and whether it was read there (primary) or in a copy that
quotes it (secondary).
"""

import json
import platform
import re
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

import torch

_HERE = Path(__file__).parents[1]
FOLDER = next(
    (folder for folder in (_HERE / "recorded", _HERE.parent / "results") if folder.is_dir()),
    _HERE / "recorded",
)
"""Where recordings lie: inside an installed package, or at the root of a checkout."""

STAMP = {"what": str, "date": str, "command": str, "machine": str, "versions": dict}


@dataclass(frozen=True, slots=True)
class Recording:
    """A validated file of results/. data: everything in it beside the five fields that every
    recording has.
    """

    name: str
    what: str
    date: str
    command: str
    machine: str
    versions: dict[str, str]
    data: dict

    @property
    def source(self) -> str:
        """One line for a caption: what was run where, when, and with which versions."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"recorded {self.date} on {self.machine} ({versions}) by `{self.command}`"


def machine_name(device: str | torch.device = "cpu") -> str:
    """The name of a GPU, or of this machine's processor."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo") as lines:
            return next(
                line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def smi(device: str | torch.device, fields: Sequence[str]) -> dict[str, str] | None:
    """What nvidia-smi says of a GPU: {field: its answer, with the unit}; None where it is not
    there, or does not answer.
    """
    card = str(torch.cuda.get_device_properties(device).uuid)
    command = ["nvidia-smi", f"--id=GPU-{card.removeprefix('GPU-')}", "--format=csv,noheader"]
    try:
        said = subprocess.run(
            [*command, f"--query-gpu={','.join(fields)}"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    answers = [answer.strip() for answer in said.strip().split(",")]
    return dict(zip(fields, answers)) if len(answers) == len(fields) else None


def gpu_versions(device: str | torch.device) -> dict[str, str]:
    """Versions of what stands between PyTorch and a GPU: CUDA, cuDNN and the driver; none for other
    devices.
    """
    if torch.device(device).type != "cuda":
        return {}
    driver = smi(device, ("driver_version",))
    return {
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
        "driver": driver["driver_version"] if driver else "not told",
    }


def stamp(
    what: str, command: str, device: str = "cpu", versions: dict[str, str] | None = None
) -> dict:
    """The five fields that every recording begins with, as of now. versions: of what was measured;
    default Python, torch, transformers; on a GPU CUDA, cuDNN and the driver too.
    """
    default = {"python": platform.python_version()} | {
        name: version(name) for name in ("torch", "transformers")
    }
    default |= gpu_versions(device)
    return {
        "what": what,
        "date": date.today().isoformat(),
        "command": command,
        "machine": machine_name(device),
        "versions": versions or default,
    }


def slug(text: str) -> str:
    """A machine's name as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def save(path: str | Path, stamped: dict, data: dict) -> Path:
    """Write a recording; ValueError, before anything is written, where `load` would refuse it."""
    path, both = Path(path), stamped.keys() & data.keys()
    if both:
        raise ValueError(f"data holds {sorted(both)}: these names are taken by the stamp")
    validate(path.name, stamped | data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(stamped | data, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        encoding="utf-8",
    )
    return path


def validate(name: str, found: dict) -> None:
    """ValueError that names what is missing or malformed in a recording."""
    if not isinstance(found, dict):
        raise ValueError(f"{name}: must hold one JSON object")
    for field, kind in STAMP.items():
        if not isinstance(found.get(field), kind) or not found[field]:
            raise ValueError(
                f"{name}: {field!r} must be a non-empty {kind.__name__}, is {found.get(field)!r}"
            )
    try:
        date.fromisoformat(found["date"])
    except ValueError:
        raise ValueError(
            f"{name}: date={found['date']!r} must be a date such as 2026-01-31"
        ) from None
    if not all(isinstance(v, str) and v for v in found["versions"].values()):
        raise ValueError(
            f"{name}: versions={found['versions']!r} must map names to version strings"
        )
    if not found.keys() - STAMP.keys():
        raise ValueError(f"{name}: holds no data beside its stamp")


def names(kind: str = "") -> list[str]:
    """The recordings there are whose name begins with `kind`, such as "memory" or "speed"."""
    return sorted(path.stem for path in FOLDER.glob(f"{kind}*.json") if path.stem != "published")


def load(name: str) -> Recording:
    """The recording results/<name>.json. ValueError where there is none, or where it does not say
    where it comes from.
    """
    path = FOLDER / f"{name}.json"
    if name == "published" or not path.is_file():
        raise ValueError(
            f"name={name!r}: no such recording; there are {', '.join(names()) or 'none'}"
        )
    found = json.loads(path.read_text(encoding="utf-8"))
    validate(path.name, found)
    return Recording(name, *(found.pop(field) for field in STAMP), data=found)


def drafters(row: dict) -> dict[str, dict]:
    """Every drafter of a setting in a recording of speed, the leading one first; the names are
    those of `benchmarks.speed`, such as "speculative γ=2".
    """
    return {row["drafter"]: row} | row["drafters"]


def spread(estimate: dict | None) -> str:
    """A figure with its 95 % interval, as in 1.52 [1.42, 1.61]; a dash where there is none."""
    if estimate is None or estimate["value"] is None:
        return "–"
    return "{:.2f} [{:.2f}, {:.2f}]".format(estimate["value"], *estimate["interval"])


def plain_cost(row: dict) -> float:
    """What a plainly decoded token costs in a setting, in units of T(1), with what plain decoding
    does beside its pass. A ceiling is this times τ ÷ v; the median over the setting's drafters, as
    a disturbed one is off.
    """
    return statistics.median(
        entry["ceiling"]["value"] * entry["prediction"]["verify"] / entry["tau"]["value"]
        for entry in drafters(row).values()
    )


def believed(entry: dict, figure: str = "speedup") -> str:
    """A drafter's figure with its interval or, where the recording flags it, the reasons in its
    place. A speedup above its ceiling by less than its interval has the ceiling beside it.
    """
    if entry["flags"]:
        return "flagged: " + "; ".join(entry["flags"])
    said = spread(entry[figure])
    ceiling = entry["ceiling"]["value"]
    if figure == "speedup" and entry[figure]["value"] > ceiling:
        said += f", above its ceiling of {ceiling:.2f} within the noise"
    return said


def speeds() -> list[Recording]:
    """The recordings of speed whose rows say what is not to be believed, and over which γ."""
    recordings = map(load, names("speed"))
    return [found for found in recordings if "gammas" in found.data]


def published(key: str) -> dict:
    """Figures of a paper by their key in results/published.json: {"status": "primary" or
    "secondary", "source", ...}.
    """
    found = json.loads((FOLDER / "published.json").read_text(encoding="utf-8"))
    if not isinstance(found.get(key), dict):
        raise ValueError(
            f"key={key!r}: must be one of"
            f" {', '.join(k for k, v in found.items() if isinstance(v, dict))}"
        )
    return found[key]
