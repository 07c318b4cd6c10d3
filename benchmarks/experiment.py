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
import re
import shlex
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from inspect import Parameter, getdoc, signature
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from tqdm import tqdm

from specdec_book import recordings
from specdec_lite.loading.files import written_whole
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


class Run:
    """One run of an experiment.

    Attributes:
        name: Name of the experiment.
        path: File of the recording.
        work: Folder of the unfinished runs.
        named: Whether the file was named on the command line.
        stamp: The stamp of the recording.
        loads: Load averages before the first part of this run and after each.
    """

    def __init__(self, kind: Experiment, options: dict, common: argparse.Namespace, command: str):
        self.kind, self.options, self.fresh = kind, options, common.fresh
        self.name, self.work, self.named = kind.name, common.work, bool(common.out)
        device = options.get("device", "cpu")
        self.stamp = stamps.stamp(kind.what, command, device)
        column = options.get("machine") or stamps.machine_name(device)
        folder = self.work / kind.name / "quick" if common.quick else recordings.FOLDER
        self.path = common.out or stamps.recording_path(kind.name, column, folder)
        if self.path.is_dir():
            raise ValueError(f"--out {self.path}: must be a file")
        self.state = machine_state()
        self.loads: list = []

    @cached_property
    def store(self) -> Path:
        """The file of the finished parts; a run with other options has another."""
        settings = {n: str(v) for n, v in self.options.items() if n not in self.kind.unrelated}
        settings |= {n: str(self.stamp[n]) for n in ("machine", "versions", stamps.PROCESS)}
        path = self.work / self.name / f"{sha256(repr(settings).encode()).hexdigest()[:16]}.json"
        if self.fresh:
            path.unlink(missing_ok=True)
        return path

    def __call__(self, parts: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        """Measure those of these parts that are not finished; return the results of all."""
        self.loads = self.loads or [machine_state()["load_average"]]
        rows = json.loads(self.store.read_text("utf-8")) if self.store.is_file() else {}
        todo = [part for part in parts if part not in rows]
        with tqdm(todo, unit="part", disable=not todo) as bar:
            for part in bar:
                bar.set_description(part[:40])
                rows[part] = parts[part]()
                self.loads.append(machine_state()["load_average"])
                with written_whole(self.store) as file:
                    file.write_text(json.dumps(rows, ensure_ascii=False, allow_nan=False), "utf-8")
        rows = json.loads(json.dumps(rows))  # as a resumed run reads them
        return {part: rows[part] for part in parts}

    def states(self) -> dict[str, dict]:
        """Return the state of the machine when the run began, and now."""
        return {"start": self.state, "end": machine_state()}

    def save(self, data: dict) -> None:
        """Write the recording."""
        if self.kind.timed:
            self.stamp[stamps.PROCESS] |= {"load_average": self.loads}
        stamps.save(self.path, self.stamp, data)
        self.store.unlink(missing_ok=True)
        print(f"written to {self.path}")


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
    common.add_argument("--fresh", action="store_true", help="do not resume an unfinished run")
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


def execute(kind: Experiment | str, arguments: Sequence[str]) -> Path:
    """Run an experiment and return the file of its recording."""
    kind = find(kind) if isinstance(kind, str) else kind
    parser = parser_of(kind, "--quick" in arguments)
    common = parser.parse_args(arguments)
    options = {name: getattr(common, name) for name in kind.options}
    command = shlex.join([*PROGRAM.split(), kind.name, *arguments])
    given = {name: value for name, value in kind.given.items() if name not in options}
    run = None
    try:
        check(kind, options)
        run = Run(kind, options, common, command)
        data = kind.measure(run, **given, **options)
    except ValueError as error:
        if run is None or not run.loads:
            parser.error(str(error))
        raise
    run.save(data)
    return run.path
