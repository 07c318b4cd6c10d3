"""The recorded measurements that a page quotes without having just made them.

A recording is a file `results/<experiment>/<machine>.json`, written by
`specdec_lite.measure.stamps`, which states what was measured, when, on which machine, with which
versions, by which command and at which commit. `results/README.md` lists all recordings.
`published.json` is the other kind: figures of papers, each entry with its source and whether it was
read there (primary) or in a copy that quotes it (secondary).
"""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path

from specdec_lite.measure.stamps import split, validate

_PACKAGE = Path(__file__).parents[1]
FOLDER = next(
    (folder for folder in (_PACKAGE / "recorded", _PACKAGE.parent / "results") if folder.is_dir()),
    _PACKAGE / "recorded",
)
"""The folder of the recordings: inside an installed package, or at the root of a checkout."""
QUIET = 1.5
"""The largest load average of other programs beside a measurement that counts as quiet."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A validated file of results/.

    Attributes:
        name: Experiment and machine, such as "speed/amd-epyc".
        what: What was measured.
        date: Day of the measurement.
        command: Command that measured it.
        machine: Name of the machine.
        versions: Versions of the software that ran.
        data: Everything in the file except the stamp.
        process: Threads of PyTorch and settings of OpenMP; None if the recording lacks them.
        commit: Commit of this repository at which the command runs.
    """

    name: str
    what: str
    date: str
    command: str
    machine: str
    versions: dict[str, str]
    data: dict
    process: dict | None = None
    commit: str = ""

    @property
    def source(self) -> str:
        """One line for a caption: what was run where, when, and with which versions."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        line = f"recorded {self.date} on {self.machine} ({versions}) by `{self.command}`"
        line += f" at commit {self.commit}" if self.commit else ""
        if not self.is_disturbed:
            return line
        loads = " to ".join(f"{load:.1f}" for load in (min(self.loads), max(self.loads)))
        return f"{line}, under load: other programs ran (load average {loads})"

    @property
    def loads(self) -> list[float]:
        """Load averages over one minute, before and after each part; empty if none is stored."""
        if stored := (self.process or {}).get("load_average"):
            return [each[0] for each in stored if each]
        state = self.data.get("state", {})
        runs = [state] if "start" in state else [*state.values()]
        ends = [run[end]["load_average"] for run in runs for end in ("start", "end") if end in run]
        return [each[0] for each in ends if each]

    @property
    def threads(self) -> int:
        """Threads of PyTorch; 1 if the recording does not state them."""
        state = self.data.get("state", {})
        stated = (self.process or state.get("start") or self.data).get("threads", 1)
        return stated if isinstance(stated, int) else 1

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs ran: a load above 1.5 before, or beside the measurement's threads."""
        loads = self.loads
        if "programs" in self.data or "browser" in self.data:  # started by itself
            loads = loads[:1]
        return bool(loads) and (
            loads[0] > QUIET or max(loads[1:], default=0) - self.threads > QUIET
        )


def files() -> dict[str, Path]:
    """Return the file of every recording by its name, such as "speed/amd-epyc"."""
    paths = [path for path in FOLDER.glob("*.json") if path.stem != "published"]
    paths += FOLDER.glob("*/*.json")
    return {
        path.relative_to(FOLDER).with_suffix("").as_posix(): path
        for path in sorted(paths, key=lambda path: path.as_posix())
    }


def names(experiment: str = "") -> list[str]:
    """Return the names of the recordings of one experiment, or of all."""
    return [name for name in files() if not experiment or name.partition("/")[0] == experiment]


def find(name: str) -> Path | None:
    """Return the file of a recording, or None if there is none.

    An experiment's name alone means its newest recording, on a processor that was not limited if
    there is one.
    """
    known = files()
    if name in known:
        return known[name]
    every = names(name) if name else []
    whole = [each for each in every if "-limited-to-" not in each]
    paths = [known[each] for each in whole or every]
    if len(paths) < 2:
        return paths[0] if paths else None
    return max(paths, key=lambda path: json.loads(path.read_text(encoding="utf-8"))["date"])


def load(name: str) -> Recording:
    """Return a recording."""
    path = find(name)
    if path is None:
        raise ValueError(
            f"name={name!r}: no such recording; there are {', '.join(names()) or 'none'}"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: is not complete JSON ({error}); record it again") from None
    validate(path.name, content)
    full_name = path.relative_to(FOLDER).with_suffix("").as_posix()
    stamp, data = split(content)
    return Recording(full_name, **stamp, data=data)


def drafters(row: dict) -> dict[str, dict]:
    """Every drafter of a setting in a recording of speed, the leading one first; names are
    such as "speculative γ=2".
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


def speeds() -> list[Recording]:
    """The recordings of speed whose rows say what is not to be believed, and over which γ."""
    recordings = map(load, names("speed"))
    return [found for found in recordings if "gammas" in found.data]


def waits() -> list[tuple[str, ...]]:
    """A row for each drafter under its default rule: its name, and how often per round the host
    reads from the device at T = 0 and at T = 1; a dash where the recording has no such run.
    """
    rows = load("waits").data["methods"].items()
    return [
        (name, *(f"{at[t]['reads']:.1f}" if t in at else "–" for t in ("T = 0", "T = 1")))
        for name, at in rows
        if " × " not in name
    ]


def published(key: str) -> dict:
    """Figures of a paper by their key in results/published.json: {"status": "primary" or
    "secondary", "source", ...}.
    """
    return json.loads((FOLDER / "published.json").read_text(encoding="utf-8"))[key]
