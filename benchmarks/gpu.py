"""A GPU (or any device) measured step by step: what is captured, passes, a pair trained on the spot,
rounds, a map, the scoreboard.

    python -m benchmarks.gpu                        # at most nine minutes; again, until nothing is left
    python -m benchmarks.gpu --device cpu --tiny    # the whole plan in tiny shapes, to see that it runs
    python -m benchmarks.gpu --only kernels         # one step, in this process

Each step runs in a process of its own (one that fails, or a profiler, touches no other) and writes
results/gpu-<machine>-<step>.json before the next begins. A step that is recorded is not measured
again: delete its file for that. What cannot run here, or no longer fits into the time, is skipped,
and why is printed. Nothing is asserted: figures are printed and recorded.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from specdec_lite import memory, results, timing
from specdec_lite.loading.memory import MARGIN, native_size
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.viz import gpu_report

from . import gpu_parts as parts
from .command import parser_for
from .gpu_parts import FULL, ROOT, TINY, Bench, Scale

PIECE, ALL = 540.0, 1800.0
"""Seconds that one call may take, and all calls together."""


# What a step needs in the device's memory -----------------------------------------------------------


def small(scale: Scale, dtype: torch.dtype) -> int:
    """The pair's shapes, in two formats, twice, with caches."""
    return sum(
        4 * native_size(config).bytes(torch.float32, scale.capacity)
        for config in (scale.target, scale.draft)
    )


def trained(scale: Scale, dtype: torch.dtype) -> int:
    """Weights, gradients, two moments and a copy in float32; what every layer keeps for the way
    back, some forty numbers of two bytes for each of a token's.
    """
    kept = 80 * scale.target.num_layers * scale.target.hidden_size * scale.rows * scale.window
    return 20 * native_size(scale.target).parameters + kept


def shape(name: str) -> Callable[[Scale, torch.dtype], int]:
    """A model with random weights, a growing and a fixed cache, and two copied arrays."""
    return lambda scale, dtype: (
        native_size(scale.random[name]).bytes(dtype, 3 * scale.capacity) + 2 * scale.copied
    )


def rows_of(context: Callable[[Scale], int]) -> Callable[[Scale, torch.dtype], int]:
    """The target, and two caches of the largest batch."""
    return lambda scale, dtype: native_size(scale.target).bytes(
        dtype, 2 * max(scale.batches) * context(scale)
    )


def deep(scale: Scale, dtype: torch.dtype) -> int:
    return sum(
        native_size(config).bytes(dtype, 2 * scale.capacity) for config in scale.deep.values()
    )


# What cannot run here ------------------------------------------------------------------------------


def no_smollm2(bench: Bench) -> str | None:
    if bench.scale.is_tiny:
        return "there is no tiny shape of it"
    if (cache_folder() / "smollm2").is_dir():
        return None
    return "SmolLM2 is not here: run load_smollm2() once, where there is a network"


def no_scoreboard(bench: Bench) -> str | None:
    spec = importlib.util.find_spec("benchmarks.scoreboard")
    if spec is None:
        return "there is no benchmarks.scoreboard yet"
    if '"--device"' not in Path(spec.origin).read_text(encoding="utf-8"):
        return "benchmarks.scoreboard has no --device yet"
    return None


def no_tests(bench: Bench) -> str | None:
    there = importlib.util.find_spec("pytest") and (ROOT / "tests" / "gpu").is_dir()
    return None if there else "the tests, or pytest, are not installed here"


@dataclass(frozen=True, slots=True)
class Step:
    """run: measures. seconds: the most that it may take. needs: bytes on the device, by scale and
    dtype. after: steps whose outcome it reads. lacks: why it cannot run here, None where it can.
    """

    run: Callable[[Bench], dict]
    seconds: float
    needs: Callable[[Scale, torch.dtype], int] = small
    after: tuple[str, ...] = ()
    lacks: Callable[[Bench], str | None] = lambda bench: None


PAIR = ("train-target", "train-draft")
STEPS = {
    "captured": Step(parts.captured, 100),
    "tests": Step(parts.tests, 150, lacks=no_tests),
    "first-steps": Step(parts.first_steps, 120),
    "kernels": Step(parts.launches, 60),
    "passes-0.1b": Step(parts.passes("0.1 B"), 60, shape("0.1 B")),
    "passes-1b": Step(parts.passes("1 B"), 60, shape("1 B")),
    "passes-7b": Step(parts.passes("7 B"), 90, shape("7 B")),
    "train-target": Step(parts.train_target, 420, trained),
    "train-draft": Step(parts.train_draft, 280, trained, PAIR[:1]),
    "losslessness": Step(parts.losslessness, 90, after=PAIR),
    "greedy": Step(parts.speed(0.0), 180, after=PAIR),
    "sampled": Step(parts.speed(1.0), 180, after=PAIR),
    "footprint": Step(parts.footprint, 30, after=PAIR),
    "depth": Step(parts.depth, 60, deep),
    "batches": Step(parts.batches, 60, rows_of(lambda scale: scale.capacity)),
    "smollm2": Step(parts.longer, 480, lacks=no_smollm2),
    "grid": Step(parts.grid, 240, rows_of(lambda scale: max(scale.contexts))),
    "scoreboard": Step(parts.scoreboard, 480, lacks=no_scoreboard),
}
"""In the order in which they run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for: the command line's options, and what follows from them."""

    device: str
    dtype: str
    tiny: bool
    out: Path
    work: Path
    piece: float
    total: float
    together: bool

    @property
    def kind(self) -> str:
        """The recordings' name without the step: none takes another's place."""
        machine = results.slug(timing.machine_name(self.device))
        return (
            f"gpu-{machine}" + f"-{self.dtype}" * (self.dtype != "bfloat16") + "-tiny" * self.tiny
        )

    @property
    def folder(self) -> Path:
        """Where the pair, checkpoints and the ledger lie."""
        return self.work / self.kind

    def record(self, step: str) -> Path:
        return self.out / f"{self.kind}-{step}.json"

    def bench(self, seconds: float = float("inf")) -> Bench:
        """until: four fifths of the seconds, so that what has begun can end."""
        scale = TINY if self.tiny else FULL
        until = perf_counter() + 0.8 * seconds
        return Bench(self.device, self.dtype, scale, self.folder, until)

    def words(self) -> list[str]:
        """The options that measure the same."""
        options = ["--device", self.device, "--dtype", self.dtype, *["--tiny"] * self.tiny]
        return [*options, "--out", str(self.out), "--work", str(self.work)]


class Ledger:
    """Seconds that steps have taken, those of earlier calls too, whatever came of them."""

    def __init__(self, path: Path):
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.spent = sum(json.loads(line)["seconds"] for line in lines)

    def add(self, step: str, seconds: float, outcome: str) -> None:
        self.spent += seconds
        self.path.parent.mkdir(parents=True, exist_ok=True)
        row = {"step": step, "seconds": round(seconds, 1), "outcome": outcome}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def obstacle(name: str, plan: Plan, left: float) -> str | None:
    """Why a step is skipped. left: seconds of this call, or of all."""
    step, bench = STEPS[name], plan.bench()
    missing = [other for other in step.after if not plan.record(other).exists()]
    if missing:
        return f"it needs {', '.join(missing)}"
    if lacks := step.lacks(bench):
        return lacks
    if torch.device(plan.device).type == "cuda":
        needed = MARGIN * step.needs(bench.scale, parts.torch_dtype(plan.dtype))
        free = memory.free_bytes(plan.device)
        if free < needed:
            return f"it needs {memory.gigabytes(needed)}, {memory.gigabytes(free)} are free"
    if step.seconds > left + 1:
        return f"it may take {step.seconds:.0f} s, {max(0.0, left):.0f} s are left"
    return None


def measure(name: str, plan: Plan) -> Path:
    """Run one step in this process, and write its recording."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    bench = plan.bench(STEPS[name].seconds)
    state, began = {"start": timing.machine_state(plan.device)}, perf_counter()
    found = STEPS[name].run(bench)
    seconds = perf_counter() - began
    state["end"] = timing.machine_state(plan.device)
    what = f"{name}: {(STEPS[name].run.__doc__ or '').split('.')[0]}".replace("\n    ", "")
    if plan.tiny:
        what += "; in tiny shapes, to see that it runs"
    command = " ".join(["python -m benchmarks.gpu --only", name, *plan.words()[: 4 + plan.tiny]])
    about = {
        "step": name,
        "dtype": plan.dtype,
        "tiny": plan.tiny,
        "graphs": bench.graphs,
        "seconds": seconds,
        "state": state,
    }
    stamped = results.stamp(what, command, plan.device)
    return results.save(plan.record(name), stamped, about | found)


def attempt(name: str, plan: Plan, seconds: float) -> str | None:
    """Run a step; why nothing was recorded, or None."""
    if plan.together:
        measure(name, plan)
        return None
    command = [sys.executable, "-m", "benchmarks.gpu", "--only", name, *plan.words()]
    log = plan.folder / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        try:
            ended = subprocess.run(command, cwd=ROOT, stdout=file, stderr=file, timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"stopped after {seconds:.0f} s; what it had kept is used by the next call"
    lines = log.read_text(encoding="utf-8").strip().splitlines()
    return f"failed: {lines[-1] if lines else 'no word'} (see {log})" if ended.returncode else None


def go(plan: Plan, console: Console) -> dict[str, str]:
    """Run the steps that are not recorded yet; {step: why not} of those that are not now."""
    began, skipped = perf_counter(), {}
    ledger = Ledger(plan.folder / "ledger.jsonl")
    for name, step in STEPS.items():
        if plan.record(name).exists():
            continue
        left = min(plan.piece - (perf_counter() - began), plan.total - ledger.spent)
        why = obstacle(name, plan, left)
        if why is None:
            console.print(f"{name}: at most {step.seconds:.0f} s")
            started = perf_counter()
            why = attempt(name, plan, min(step.seconds, left))
            ledger.add(name, perf_counter() - started, why or "recorded")
        if why is not None:
            skipped[name] = why
            console.print(f"  {name} skipped: {why}", markup=False)
    return skipped


def show(plan: Plan, console: Console) -> None:
    """What is recorded, as the chapter shows it."""
    there = {name: plan.record(name) for name in STEPS if plan.record(name).exists()}
    found = {name: json.loads(path.read_text("utf-8")) for name, path in there.items()}
    for title, header, lines in gpu_report.tables(found):
        table = Table(title=title)
        for column in header:
            table.add_column(column)
        for line in lines:
            table.add_row(*line)
        console.print(table)


def options() -> argparse.ArgumentParser:
    parser = parser_for("benchmarks.gpu", __doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--dtype",
        default="auto",
        choices=("auto", "bfloat16", "float16", "float32"),
        help="auto: bfloat16, and float16 on a card that does not compute in it, such as a T4",
    )
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="tiny shapes: to see that it runs, not what a device can do",
    )
    parser.add_argument("--only", choices=STEPS, help="run this step alone, in this process")
    parser.add_argument(
        "--together", action="store_true", help="all steps in this process, without time limits"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="of the recordings")
    parser.add_argument(
        "--work", type=Path, default=ROOT / ".work" / "gpu", help="of the pair and the checkpoints"
    )
    parser.add_argument("--piece", type=float, default=PIECE, help="seconds of this call")
    parser.add_argument("--total", type=float, default=ALL, help="seconds of all calls together")
    return parser


def unfit(device: str, dtype: str) -> str | None:
    """Why this machine cannot run what was chosen: said before anything is measured."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        return (
            "--device cuda: PyTorch sees no CUDA device here; with --device cpu --tiny the script"
            " runs in tiny shapes"
        )
    if dtype == "bfloat16" and not memory.has_bfloat16(device):
        return "--dtype bfloat16: this card does not compute in it; use --dtype float16"
    return None


def main(arguments: list[str] | None = None) -> dict[str, str]:
    """The command line; {step: why not} of the steps that are not recorded."""
    parser = options()
    chosen = parser.parse_args(arguments)
    refused = unfit(chosen.device, chosen.dtype)
    if refused:
        parser.error(refused)
    logging.set_verbosity_error()
    console = Console(width=150)
    if chosen.dtype == "auto":
        chosen.dtype = "bfloat16" if memory.has_bfloat16(chosen.device) else "float16"
        if chosen.dtype == "float16":
            console.print("float16: this card does not compute in bfloat16")
    only = chosen.__dict__.pop("only")
    chosen.out, chosen.work = chosen.out.resolve(), chosen.work.resolve()
    plan = Plan(**vars(chosen))
    if only:
        console.print(f"written to {measure(only, plan)}")
        return {}
    skipped = go(plan, console)
    show(plan, console)
    ran = sum(plan.record(name).exists() for name in STEPS)
    console.print(f"{ran} of {len(STEPS)} steps are recorded in {plan.out}/{plan.kind}-*.json")
    for name, why in skipped.items():
        console.print(f"not measured: {name} ({why})", markup=False)
    return skipped


if __name__ == "__main__":
    main()
