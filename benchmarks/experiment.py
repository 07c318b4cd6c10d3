"""Define what an experiment is, and run one: parts, resuming, the stamp, the file.

An experiment measures its parts one after the other. Each finished part is stored immediately, so
an interrupted run resumes. When all parts are finished, their rows become one recording,
results/<experiment>/<machine>.json.
"""

import argparse
import json
import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from tqdm import tqdm

from specdec_book import recordings
from specdec_lite.measure import stamps
from specdec_lite.measure.machine import machine_state

WORK = Path(".work/experiments")
PROGRAM = "python -m benchmarks run"


class Experiment:
    """One measurement: subclass it with a name, its parts, `run` and `summarise`.

    Attributes:
        name: Name of the experiment and of its folder in results/.
        what: What is measured, in one phrase, for the stamp.
        time: Duration on two cores, for `list`.
        quick: Arguments of a run that takes less than a minute, to see that everything works.
        unrelated: Options that may differ when a run resumes, such as the time for all parts.
        threads: Threads of PyTorch, unless the user sets OMP_NUM_THREADS; None for PyTorch's own
            choice. The shipped pair gains nothing from a second thread.
        timed: Whether it measures times, so that the load of the machine matters.
        variants: {name of another experiment: the attributes in which it differs from this one}.
        options: Options of this run.
        rows: Results of the finished parts, by part.
        path: File of the recording.
        command: Command of this run.
        open: Resources that close when the run ends, such as a browser.
    """

    name: ClassVar[str]
    what: ClassVar[str]
    time: ClassVar[str] = "minutes"
    quick: ClassVar[Sequence[str]] = ()
    unrelated: ClassVar[Sequence[str]] = ()
    threads: ClassVar[int | None] = None
    timed: ClassVar[bool] = True
    variants: ClassVar[dict[str, dict[str, Any]]] = {}

    @classmethod
    def variant(cls, name: str) -> "type[Experiment]":
        """Return the class of the experiment of this name: this one, or one of its variants."""
        if name not in cls.variants:
            return cls
        return type(cls.__name__, (cls,), {"name": name} | cls.variants[name])

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.rows: dict[str, Any] = {}
        self.path = Path()
        self.command = ""
        self.open = ExitStack()

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the experiment to a parser."""

    def check(self) -> None:
        """Check the options before anything is measured."""

    def check_least(self, **least: int) -> None:
        """Check options that have a smallest value."""
        for name, smallest in least.items():
            if getattr(self.options, name) < smallest:
                raise ValueError(f"--{name.replace('_', '-')}: must be at least {smallest}")

    @cached_property
    def state(self) -> dict:
        """The state of the machine when this is first read, which `run` does before it measures."""
        return machine_state()

    def parts(self) -> list[str]:
        """Return the names of the parts in the order of measurement."""
        raise NotImplementedError

    def run(self, part: str) -> Any:
        """Measure one part; `self.rows` has the results of the parts before it."""
        raise NotImplementedError

    def summarise(self, rows: dict[str, Any]) -> dict:
        """Return the data of the recording."""
        return dict(rows)

    def restore(self, data: dict) -> dict[str, Any]:
        """Return the results of the parts in a recording, so that `--only` can retain the others.

        The result is empty if the recording does not contain them in this form.
        """
        return {part: data[part] for part in self.parts() if part in data}

    def merge(self, stamp: dict, data: dict) -> tuple[dict, dict]:
        """Return the stamp and the data to write, where a run adds to an existing recording."""
        return stamp, data

    def device(self) -> str:
        """Return the device whose name the stamp gives."""
        return getattr(self.options, "device", "cpu")

    def versions(self) -> dict[str, str] | None:
        """Return the versions for the stamp; None for those of Python and the libraries."""
        return None


class Store:
    """The finished parts of a run: one JSON line each, after a line with the settings of the run.

    Args:
        path: File of the store.
        header: Command and parts of the run, and the settings that identify it: its options, the
            machine and the versions.

    Raises:
        ValueError: If the file has parts that were measured with other settings.
    """

    def __init__(self, path: Path, header: dict):
        self.path = path
        self.loads = [machine_state()["load_average"]]  # before and after each part of this run
        self.rows: dict[str, Any] = {}
        found, rows = read_store(path)
        if rows and found["settings"] != header["settings"]:
            before, now = found["settings"], header["settings"]
            differing = [name for name in {**before, **now} if before.get(name) != now.get(name)]
            raise ValueError(
                f"{path} has {len(rows)} finished parts of a run with other"
                f" {', '.join(differing)} ({', '.join(str(before.get(n)) for n in differing)}):"
                " repeat that run to resume it, or pass --fresh to set it aside"
            )
        self.rows = rows
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [header, *({"part": part, "rows": each} for part, each in rows.items())]
        path.write_text("".join(map(json_line, lines)), encoding="utf-8")

    def add(self, part: str, rows: Any) -> Any:
        """Store a finished part, and return it as JSON returns it."""
        self.loads.append(machine_state()["load_average"])
        line = json_line({"part": part, "rows": rows})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
        self.rows[part] = json.loads(line)["rows"]
        return self.rows[part]


def packed_run(seconds: float, tokens: float, rounds: float) -> str:
    """Return a timed run as "microseconds,tokens,rounds", from which a speedup can be recomputed."""
    return f"{1e6 * seconds:.0f},{tokens:.0f},{rounds:.0f}"


def json_line(record: dict) -> str:
    """Return a record as one line of JSON."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def read_store(path: Path) -> tuple[dict | None, dict[str, Any]]:
    """Return the settings and the finished parts of a store; a line that was cut short is ignored."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    if not records or "settings" not in records[0]:
        return None, {}
    return records[0], {record["part"]: record["rows"] for record in records[1:]}


def set_aside(path: Path, folder: Path) -> Path | None:
    """Move a file out of the way, under a name with the time, and return its new path."""
    if not path.exists():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{path.stem}-{datetime.now():%Y%m%d-%H%M%S-%f}{path.suffix}"
    kept.write_bytes(path.read_bytes())
    path.unlink()
    return kept


def parser_of(kind: type[Experiment]) -> argparse.ArgumentParser:
    """Return the parser of `python -m benchmarks run <name>`."""
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} {kind.name}", description=kind.what)
    common = parser.add_argument_group("options of every experiment")
    common.add_argument("--quick", action="store_true", help="measure little, in under a minute")
    common.add_argument(
        "--only", nargs="+", metavar="PART", help="measure these parts; retain the recorded others"
    )
    common.add_argument("--fresh", action="store_true", help="set an unfinished run aside")
    common.add_argument("--out", type=Path, help="default: results/<experiment>/<machine>.json")
    common.add_argument("--work", type=Path, default=WORK, help="folder of the unfinished runs")
    kind.add_options(parser)
    return parser


COMMON = ("quick", "only", "fresh", "out", "work")


def recorded_parts(experiment: Experiment, path: Path) -> dict[str, Any]:
    """Return the results of the parts that a recording already has."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        stamps.validate(path.name, content)
        data = stamps.split(content)[1]
    except ValueError as error:
        raise ValueError(f"{path} is not a recording of {experiment.name}: {error}") from None
    return experiment.restore(data)


def retain_stamp(path: Path, stamp: dict, data: dict, parts: Sequence[str]) -> tuple[dict, dict]:
    """Return the stamp of an existing recording, and data that states which parts are newer."""
    old = json.loads(path.read_text(encoding="utf-8"))
    names = ("date", "command", "versions", stamps.COMMIT, stamps.PROCESS)
    newer = {name: stamp[name] for name in names} | {"parts": [*parts]}
    again = [*old.get("measured_again", []), newer]
    return stamps.split(old)[0], data | {"measured_again": again}


def execute(kind: type[Experiment], arguments: Sequence[str]) -> Path | None:
    """Run an experiment."""
    parser = parser_of(kind)
    options = parser.parse_args(arguments)
    if options.quick:  # what is typed takes precedence
        options = parser.parse_args([*kind.quick, *arguments])
    if kind.threads and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(kind.threads)
    experiment = kind(options)
    with experiment.open:
        return measure(experiment, parser, arguments)


def measure(
    experiment: Experiment, parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> Path | None:
    """Measure the parts of an experiment that are not finished, and write the recording."""
    kind, options = type(experiment), experiment.options
    experiment.command = shlex.join([*PROGRAM.split(), kind.name, *arguments])
    stamp = stamps.stamp(kind.what, experiment.command, experiment.device(), experiment.versions())
    machine = stamps.machine_name(experiment.device())
    work, only = options.work / kind.name, options.only or ()
    folder = work / "quick" if options.quick else recordings.FOLDER
    path = options.out or stamps.recording_path(kind.name, machine, folder)
    experiment.path = path
    ignored = {*COMMON, *kind.unrelated}
    settings = {k: str(v) for k, v in vars(options).items() if k not in ignored}
    file = work / f"{stamps.slug(machine)}{'-quick' * options.quick}.jsonl"
    try:
        if path.is_dir():
            raise ValueError(f"--out {path}: must be a file")
        experiment.check()
        parts = experiment.parts()
        versions = experiment.versions()
        stamp = stamps.stamp(kind.what, experiment.command, experiment.device(), versions)
        settings |= {name: str(stamp[name]) for name in ("machine", "versions", stamps.PROCESS)}
        if unknown := [part for part in only if part not in parts]:
            raise ValueError(f"--only {unknown[0]!r}: must be among {', '.join(parts)}")
        recorded = recorded_parts(experiment, path) if only else {}
        if options.fresh:
            set_aside(file, work / "old")
        header = {"command": experiment.command, "parts": parts, "settings": settings}
        store = Store(file, header)
    except ValueError as error:
        parser.error(str(error))
    retained = {part: rows for part, rows in recorded.items() if part not in only}
    experiment.rows = {
        part: (retained | store.rows)[part] for part in parts if part in retained | store.rows
    }
    left = [part for part in parts if part not in experiment.rows and (not only or part in only)]
    with tqdm(left, unit="part", disable=not left) as bar:
        for part in bar:
            bar.set_description(part[:40])
            experiment.rows[part] = store.add(part, experiment.run(part))
    if missing := [part for part in parts if part not in experiment.rows]:
        print(f"{file} has the finished parts; {', '.join(missing)} were never measured")
        return None
    try:
        data = experiment.summarise({part: experiment.rows[part] for part in parts})
        if kind.timed:
            stamp[stamps.PROCESS] |= {"load_average": store.loads}
        stamp, data = experiment.merge(stamp, data)
        if retained:
            stamp, data = retain_stamp(path, stamp, data, [p for p in parts if p not in retained])
        previous = set_aside(path, work / "old")
        stamps.save(path, stamp, data)
    except ValueError as error:
        parser.exit(1, f"{error}; the finished parts are in {file}\n")
    file.unlink()
    if previous:
        print(f"the recording that it replaces is {previous}")
    print(f"written to {path}")
    return path
