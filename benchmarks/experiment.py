"""Run an experiment: a function that measures, and whose keyword parameters are its options.

    @experiment("squares", "squares of numbers", time="a second", quick={"numbers": (2,)})
    def squares(run: Run, *, numbers: Sequence[int] = (2, 3, 4)) -> dict:
        '''Return the data of the recording.

        Args:
            numbers: what is squared
        '''
        return run({f"of {number}": partial(square, number) for number in numbers})

`run(parts)` measures the parts and returns their results by name. Each finished part is stored
immediately, so an interrupted run resumes. What the function returns becomes the recording,
results/<experiment>/<machine>.json. Wrong options are a ValueError before the first part.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import types
import typing
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from importlib import import_module
from inspect import Parameter, getdoc, signature
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import torch
from tqdm import tqdm

from specdec_book import recordings
from specdec_lite.measure import stamps
from specdec_lite.measure.machine import machine_state

WORK = Path(".work/experiments")
PROGRAM = "python -m benchmarks run"
MODULES = {
    "scoreboard-counts": "scoreboard_counts",
    "scoreboard-counts-smollm2": "scoreboard_counts",
    "humaneval-counts": "scoreboard_counts",
    "humaneval-counts-smollm2": "scoreboard_counts",
    "scoreboard-clocks": "scoreboard_clocks",
    "scoreboard-clocks-smollm2": "scoreboard_clocks",
    "formats-smollm2": "formats_smollm2",
    "version-speed": "versions",
    "estimator": "estimator",
}
"""Experiment → the module that defines it, those with times first; it is imported when needed."""
KNOWN: dict[str, "Experiment"] = {}
"""The experiments of the modules that were imported."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is known of an experiment before it runs.

    Attributes:
        name: Name of the experiment and of its folder in results/.
        what: What is measured, in one phrase, for the stamp.
        time: Duration on two cores, for `list`.
        measure: Function of a `Run` and the options that returns the data of the recording.
        quick: Options of a run that takes less than a minute, to see that everything works.
        least: Smallest values of options, where it is not 1 for a whole number and 0 for another.
        unrelated: Options that may differ when a run resumes, such as the time for all parts.
        threads: Threads of PyTorch, unless the user sets OMP_NUM_THREADS; None for PyTorch's own
            choice. The shipped pair gains nothing from a second thread.
        timed: Whether it measures times, so that the load of the machine matters.
        given: Arguments of `measure` that are no options, and other defaults of its options.
    """

    name: str
    what: str
    time: str
    measure: Callable[..., dict]
    quick: dict[str, Any] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    unrelated: Sequence[str] = ()
    threads: int | None = None
    timed: bool = True
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Parameter]:
        """The options by name: the keyword parameters of the function."""
        parameters = signature(self.measure).parameters.values()
        return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}


def experiment(name: str, what: str, *, time: str, **about) -> Callable:
    """Register a function as an experiment; one function can have several names.

    Args:
        name: as in `Experiment`, like the next two.
        what: ...
        time: ...
        about: other attributes of `Experiment`.
    """

    def register(measure: Callable[..., dict]) -> Callable[..., dict]:
        KNOWN[name] = Experiment(name, what, time, measure, **about)
        return measure

    return register


def find(name: str) -> Experiment:
    """Return an experiment."""
    import_module(f"benchmarks.{MODULES[name]}")
    return KNOWN[name]


class Unfinished(Exception):
    """Parts are missing that `--only` did not name."""


class Run:
    """One run of an experiment.

    Attributes:
        name: Name of the experiment.
        path: File of the recording.
        work: Folder of the unfinished runs.
        quick: Whether `--quick` was given.
        named: Whether the file was named on the command line.
        device: PyTorch's name of the device whose name the stamp gives.
        versions: The versions for the stamp; None for those of Python and the libraries.
        open: Resources that close when the run ends, such as a browser.
        stamp: The stamp of the recording.
        options: The options by name.
    """

    def __init__(self, kind: Experiment, options: dict, common: argparse.Namespace, command: str):
        self.kind, self.options, self.only = kind, options, common.only or ()
        self.name, self.quick, self.fresh = kind.name, common.quick, common.fresh
        self.device = options.get("device", "cpu")
        self.versions: dict[str, str] | None = None
        self.work, self.named, self.command = common.work, bool(common.out), command
        column = options.get("machine") or stamps.machine_name(self.device)
        folder = self.work / kind.name / "quick" if self.quick else recordings.FOLDER
        self.path = common.out or stamps.recording_path(kind.name, column, folder)
        if self.path.is_dir():
            raise ValueError(f"--out {self.path}: must be a file")
        self.open = ExitStack()
        self.state = machine_state()
        self.seen: list[str] = []

    @cached_property
    def stamp(self) -> dict:
        return stamps.stamp(self.kind.what, self.command, self.device, self.versions)

    @cached_property
    def store(self) -> "Store":
        """The finished parts; a run with other options keeps its own."""
        ignored = self.kind.unrelated
        settings = {n: str(v) for n, v in self.options.items() if n not in ignored}
        settings |= {n: str(self.stamp[n]) for n in ("machine", "versions", stamps.PROCESS)}
        machine = stamps.slug(stamps.machine_name(self.device))
        path = self.work / self.name / f"{machine}{'-quick' * self.quick}.jsonl"
        if self.fresh:
            set_aside(path, self.work / self.name / "old")
        return Store(path, {"stamp": self.stamp, "settings": settings}, self.only)

    def __call__(self, parts: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        """Measure those of these parts that are not finished; return the results of all."""
        left = [part for part in parts if part not in self.store.rows]
        self.seen += parts
        todo = [part for part in left if not self.only or part in self.only]
        with tqdm(todo, unit="part", disable=not todo) as bar:
            for part in bar:
                bar.set_description(part[:40])
                self.store.add(part, parts[part]())
        if missing := [part for part in parts if part not in self.store.rows]:
            raise Unfinished(f"{', '.join(missing)} were never measured")
        return {part: self.store.rows[part] for part in parts}

    def states(self) -> dict[str, dict]:
        """Return the state of the machine when the run began, and now."""
        return {"start": self.state, "end": machine_state()}

    def save(self, data: dict) -> None:
        """Write the recording."""
        stamp, again = self.stamp, self.store.header.get("measured_again", [])
        if self.kind.timed:
            stamp[stamps.PROCESS] |= {"load_average": self.store.loads}
        if self.only and self.store.header["stamp"] != stamp:
            names = ("date", "command", "versions", stamps.COMMIT, stamps.PROCESS)
            again = [*again, {name: stamp[name] for name in names} | {"parts": [*self.only]}]
            stamp = self.store.header["stamp"]
        previous = set_aside(self.path, self.work / self.name / "old")
        stamps.save(self.path, stamp, data | ({"measured_again": again} if again else {}))
        self.store.finish(stamp, again)
        if previous:
            print(f"the recording that it replaces is {previous}")
        print(f"written to {self.path}")


class Store:
    """The finished parts of a run: one JSON line each, after a line about the run.

    The file of a finished run stays, so that `--only` can measure some of its parts again.

    Args:
        path: File of the store.
        header: The stamp, and the settings that identify a run: options, machine and versions.
        only: Parts of a finished run that are measured again; without any, all are.

    Raises:
        ValueError: If the file has parts that were measured with other settings.
    """

    def __init__(self, path: Path, header: dict, only: Sequence[str] = ()):
        self.path, self.header = path, header
        self.loads = [machine_state()["load_average"]]  # before and after each part of this run
        self.rows: dict[str, Any] = {}
        before, rows = read_store(path)
        if before and "finished" in before:
            rows = {part: row for part, row in rows.items() if only and part not in only}
        if before and rows and before["settings"] != header["settings"]:
            then, now = before["settings"], header["settings"]
            differing = [name for name in {**then, **now} if then.get(name) != now.get(name)]
            raise ValueError(
                f"{path} has {len(rows)} finished parts of a run with other"
                f" {', '.join(differing)} ({', '.join(str(then.get(n)) for n in differing)}):"
                " repeat that run to resume it, or pass --fresh to set it aside"
            )
        if rows and "finished" in before:
            self.header = {name: each for name, each in before.items() if name != "finished"}
        self.rows = rows
        self.write()

    def write(self) -> None:
        """Write the whole file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [self.header, *({"part": part, "rows": row} for part, row in self.rows.items())]
        self.path.write_text("".join(map(json_line, lines)), encoding="utf-8")

    def add(self, part: str, rows: Any) -> None:
        """Store a finished part, as JSON returns it."""
        self.loads.append(machine_state()["load_average"])
        line = json_line({"part": part, "rows": rows})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
        self.rows[part] = json.loads(line)["rows"]

    def finish(self, stamp: dict, again: list[dict]) -> None:
        """Note that the recording is written, with its stamp."""
        self.header |= {"stamp": stamp, "measured_again": again, "finished": True}
        self.write()


class Worker:
    """A process that answers each line of JSON with a line of JSON.

    Args:
        command: Command that starts it.
        options: Other options of `Popen`.
    """

    def __init__(self, command: Sequence[str | Path], **options):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([*map(str, command)], **pipes, **options)

    def ask(self, job: Any) -> Any:
        """Send one job and return the answer; None if the process has ended."""
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.wait()


def rounded(data: Any, digits: int = 4) -> Any:
    """Return a recording's data with its numbers to some digits, because further digits are noise."""
    if isinstance(data, dict):
        return {key: rounded(value, digits) for key, value in data.items()}
    if isinstance(data, list):
        return [rounded(value, digits) for value in data]
    return float(f"{data:.{digits}g}") if isinstance(data, float) else data


def packed_run(seconds: float, tokens: float, rounds: float) -> str:
    """Return a timed run as "microseconds,tokens,rounds", from which a speedup can be recomputed."""
    return f"{1e6 * seconds:.0f},{tokens:.0f},{rounds:.0f}"


def json_line(record: dict) -> str:
    """Return a record as one line of JSON."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def read_store(path: Path) -> tuple[dict | None, dict[str, Any]]:
    """Return the header and the finished parts of a store; a line that was cut short is ignored."""
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


# The command line ---------------------------------------------------------------------------------


def argument(hint: Any) -> dict[str, Any]:
    """Return what argparse must know of an option with this type."""
    if get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = [each for each in get_args(hint) if each is not types.NoneType]
    if hint is bool:
        return {"action": "store_true"}
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return {"choices": choices, "type": type(choices[0])}
    if get_args(hint):
        return argument(get_args(hint)[0]) | {"nargs": "+"}
    return {"type": hint}


def parser_of(kind: Experiment, quick: bool = False) -> argparse.ArgumentParser:
    """Return the parser of `python -m benchmarks run <name>`; `quick` sets other defaults."""
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} {kind.name}", description=kind.what)
    common = parser.add_argument_group("options of every experiment")
    common.add_argument("--quick", action="store_true", help="measure little, in under a minute")
    common.add_argument(
        "--only",
        nargs="+",
        metavar="PART",
        help="measure these parts; retain those of the last run",
    )
    common.add_argument("--fresh", action="store_true", help="set an unfinished run aside")
    common.add_argument("--out", type=Path, help="default: results/<experiment>/<machine>.json")
    common.add_argument("--work", type=Path, default=WORK, help="folder of the unfinished runs")
    helps = dict(re.findall(r"^ +(\w+): (.+)$", getdoc(kind.measure) or "", re.MULTILINE))
    hints = typing.get_type_hints(kind.measure)
    for name, parameter in kind.options.items():
        values = {name: parameter.default} | kind.given | (kind.quick if quick else {})
        about = argument(hints[name]) | {"default": values[name], "help": helps.get(name)}
        parser.add_argument(f"--{name.replace('_', '-')}", **about)
    return parser


def check(kind: Experiment, options: dict[str, Any]) -> None:
    """Check the options that have a smallest value."""
    for name, value in options.items():
        for each in value if isinstance(value, Sequence) else [value]:
            if isinstance(each, (int, float)):
                least = kind.least.get(name, 0 if isinstance(each, float) else 1)
                if not isinstance(each, bool) and not each >= least:
                    option = f"--{name.replace('_', '-')} {each}"
                    raise ValueError(f"{option}: must be at least {least}")


def execute(kind: Experiment | str, arguments: Sequence[str]) -> Path | None:
    """Run an experiment and return the file of its recording; None if parts are missing."""
    kind = find(kind) if isinstance(kind, str) else kind
    parser = parser_of(kind, "--quick" in arguments)
    common = parser.parse_args(arguments)
    options = {name: getattr(common, name) for name in kind.options}
    if kind.threads and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(kind.threads)
    command = shlex.join([*PROGRAM.split(), kind.name, *arguments])
    given = {name: value for name, value in kind.given.items() if name not in options}
    run = None
    try:
        check(kind, options)
        run = Run(kind, options, common, command)
        with run.open:
            data = kind.measure(run, **given, **options)
        run.save(data)
    except Unfinished as error:
        if unknown := [part for part in run.only if part not in run.seen]:
            parser.error(f"--only {unknown[0]!r}: must be among {', '.join(run.seen)}")
        print(f"{run.store.path} has the finished parts; {error}")
        return None
    except ValueError as error:
        if run is None or not run.seen:
            parser.error(str(error))
        raise
    return run.path
