"""Measure a GPU (or any device) step by step: graphs, passes, a trained pair, rounds, a scoreboard.

    python -m benchmarks.gpu                        # at most nine minutes; repeat until all is done
    python -m benchmarks.gpu --device cpu --tiny    # the whole plan in tiny shapes, as a check
    python -m benchmarks.gpu --only kernels         # one step, in this process

Each step runs in a separate process, so a failing step or a profiler affects no other step. A step
writes results/gpu-<machine>-<step>.json before the next step starts. A recorded step is not
measured again; delete its file to repeat it. A step that cannot run here, or that no longer fits
into the time, is skipped, and the reason is printed. The script asserts nothing: it prints and
records.
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

from specdec_book.viz import gpu_report
from specdec_lite import memory, timing
from specdec_lite.loading.memory import MARGIN, native_size
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.measure import stamps

from . import gpu_parts as parts
from .command import parser_for
from .gpu_parts import FULL, ROOT, TINY, Bench, Scale

PIECE, ALL = 540.0, 1800.0
"""Seconds that one call may take, and that all calls may take together."""


# What a step needs in the device's memory ---------------------------------------------------------


def small(scale: Scale, dtype: torch.dtype) -> int:
    """Return the bytes of the pair's shapes with caches, twice, in two formats."""
    return sum(
        4 * native_size(config).bytes(torch.float32, scale.capacity)
        for config in (scale.target, scale.draft)
    )


def trained(scale: Scale, dtype: torch.dtype) -> int:
    """Return the bytes that training the target needs, in float32.

    They are weights, gradients, two moments, a copy, and the activations saved for the backward
    pass: about forty two-byte numbers per layer for each feature of a token.
    """
    activations = (
        80 * scale.target.num_layers * scale.target.hidden_size * scale.rows * scale.window
    )
    return 20 * native_size(scale.target).parameters + activations


def shape(name: str) -> Callable[[Scale, torch.dtype], int]:
    """Return the function for the bytes of one model, two caches and two copied arrays."""
    return lambda scale, dtype: (
        native_size(scale.random[name]).bytes(dtype, 3 * scale.capacity) + 2 * scale.copied
    )


def rows_of(context: Callable[[Scale], int]) -> Callable[[Scale, torch.dtype], int]:
    """Return the function for the bytes of the target and two caches of the largest batch."""
    return lambda scale, dtype: native_size(scale.target).bytes(
        dtype, 2 * max(scale.batches) * context(scale)
    )


def deep(scale: Scale, dtype: torch.dtype) -> int:
    """Return the bytes of the shapes in `Scale.deep`, each with two caches."""
    return sum(
        native_size(config).bytes(dtype, 2 * scale.capacity) for config in scale.deep.values()
    )


# What cannot run here -----------------------------------------------------------------------------


def no_smollm2(bench: Bench) -> str | None:
    """Return why SmolLM2 cannot be trained here, or None."""
    if bench.scale.is_tiny:
        return "there is no tiny shape of it"
    if (cache_folder() / "smollm2").is_dir():
        return None
    return "SmolLM2 is not here: run load_smollm2() once, where there is a network"


def no_tests(bench: Bench) -> str | None:
    """Return why the tests cannot run here, or None."""
    has_tests = importlib.util.find_spec("pytest") and (ROOT / "tests" / "gpu").is_dir()
    return None if has_tests else "the tests, or pytest, are not installed here"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the plan.

    Attributes:
        run: Function that measures.
        seconds: Longest time that the step may take.
        needs: Function from sizes and dtype to bytes of device memory.
        after: Names of the steps whose outcome this step reads.
        obstacle: Function that returns why the step cannot run here, or None.
    """

    run: Callable[[Bench], dict]
    seconds: float
    needs: Callable[[Scale, torch.dtype], int] = small
    after: tuple[str, ...] = ()
    obstacle: Callable[[Bench], str | None] = lambda bench: None


PAIR = ("train-target", "train-draft")
STEPS = {
    "captured": Step(parts.compare_captured, 100),
    "tests": Step(parts.tests, 150, obstacle=no_tests),
    "first-steps": Step(parts.first_steps, 120),
    "kernels": Step(parts.record_launches, 60),
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
    "smollm2": Step(parts.train_longer, 480, obstacle=no_smollm2),
    "grid": Step(parts.grid, 240, rows_of(lambda scale: max(scale.contexts))),
    "scoreboard": Step(parts.scoreboard, 480),
}
"""The steps in the order in which they run."""
WHAT = {
    "captured": (
        "Logits of static passes (on a GPU: captured graphs) against growing ones, for every "
        "size,float32 and the chosen dtype, each kind of attention, before and after a dtype "
        "round trip"
    ),
    "tests": (
        "The tests that need a GPU (captured graphs, drafting on the device, timing), in a "
        "process oftheir own"
    ),
    "first-steps": (
        "Seconds of the first eager decode steps, one by one: where attention builds a plan "
        "for everynew length, each of them shows it"
    ),
    "kernels": (
        "A pass of the draft, and a whole draft, operation by operation: as the host calls "
        "them, andas a GPU runs its kernels; and which kernels attention runs"
    ),
    "passes-0.1b": (
        "Random weights: T(k), trees, and the share of the copy bandwidth that reading "
        "weights,    keys and values reaches"
    ),
    "passes-1b": (
        "Random weights: T(k), trees, and the share of the copy bandwidth that reading "
        "weights,    keys and values reaches"
    ),
    "passes-7b": (
        "Random weights: T(k), trees, and the share of the copy bandwidth that reading "
        "weights,    keys and values reaches"
    ),
    "train-target": "Train the target; as many steps as the seconds allow, by a probe",
    "train-draft": "Train the draft and distil the trained target into it",
    "losslessness": (
        "Where speculative greedy text first leaves the plain one, with the gap of the two "
        "logitsthere, by dtype and mode"
    ),
    "greedy": (
        "Tokens per second of every contender, in paired turns of random order; α, τ; what "
        "the    formulas predict from passes alone and from the very rounds that decoded"
    ),
    "sampled": (
        "Tokens per second of every contender, in paired turns of random order; α, τ; what "
        "the    formulas predict from passes alone and from the very rounds that decoded"
    ),
    "footprint": (
        "What the draft adds: bytes of its weights and of its cache; and seconds to the "
        "first token,with it and without"
    ),
    "depth": (
        "Random weights: the c of a shallow and of a narrow, deep draft with like "
        "parameters; what apublished acceptance (÷ drafted, γ = 2) would then give"
    ),
    "batches": (
        "Seconds of passes over one and over γ + 1 tokens of the target's shape, by batch size"
    ),
    "smollm2": (
        "SmolLM2's head trained ten times as long as the one that ships, both judged on "
        "held-out text"
    ),
    "grid": (
        "Random weights in the shapes of the pair: passes for every batch size and context, "
        "from which a map γ × batch × context follows at any α"
    ),
    "scoreboard": "Seconds of passes and rounds of every row of the scoreboard, on the shipped pair",
}
"""What the recording of each step says that it contains."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of the command line, and the paths that follow from them.

    Attributes:
        device: PyTorch's name of the device.
        dtype: PyTorch's name of the dtype.
        tiny: Whether to measure tiny shapes only.
        out: Folder of the recordings.
        work: Folder of the pair and the checkpoints.
        piece: Seconds that this call may take.
        total: Seconds that all calls may take.
        together: Whether all steps run in this process.
    """

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
        """The name of the recordings without the step, unique for machine, dtype and size."""
        machine = stamps.slug(timing.machine_name(self.device))
        return (
            f"gpu-{machine}" + f"-{self.dtype}" * (self.dtype != "bfloat16") + "-tiny" * self.tiny
        )

    @property
    def folder(self) -> Path:
        """The folder of the pair, the checkpoints and the ledger."""
        return self.work / self.kind

    def record(self, step: str) -> Path:
        """Return the path of the recording of a step."""
        return self.out / f"{self.kind}-{step}.json"

    def bench(self, seconds: float = float("inf")) -> Bench:
        """Return the bench of this plan."""
        scale = TINY if self.tiny else FULL
        until = perf_counter() + 0.8 * seconds
        return Bench(self.device, self.dtype, scale, self.folder, until)

    def options(self) -> list[str]:
        """Return the command-line options that repeat this measurement."""
        options = ["--device", self.device, "--dtype", self.dtype, *["--tiny"] * self.tiny]
        return [*options, "--out", str(self.out), "--work", str(self.work)]


class Ledger:
    """The seconds that all steps have taken, including those of earlier calls.

    Args:
        path: File with one line of JSON per attempt.
    """

    def __init__(self, path: Path):
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.spent = sum(json.loads(line)["seconds"] for line in lines)

    def add(self, step: str, seconds: float, outcome: str) -> None:
        """Append one attempt."""
        self.spent += seconds
        self.path.parent.mkdir(parents=True, exist_ok=True)
        row = {"step": step, "seconds": round(seconds, 1), "outcome": outcome}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def obstacle(name: str, plan: Plan, left: float) -> str | None:
    """Return why a step is skipped, or None."""
    step, bench = STEPS[name], plan.bench()
    missing = [other for other in step.after if not plan.record(other).exists()]
    if missing:
        return f"it needs {', '.join(missing)}"
    if reason := step.obstacle(bench):
        return reason
    if torch.device(plan.device).type == "cuda":
        needed = MARGIN * step.needs(bench.scale, parts.torch_dtype(plan.dtype))
        free = memory.free_bytes(plan.device)
        if free < needed:
            return f"it needs {memory.gigabytes(needed)}, {memory.gigabytes(free)} are free"
    if step.seconds > left + 1:
        return f"it may take {step.seconds:.0f} s, {max(0.0, left):.0f} s are left"
    return None


def measure(name: str, plan: Plan) -> Path:
    """Run one step in this process and write its recording."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    bench = plan.bench(STEPS[name].seconds)
    state, began = {"start": timing.machine_state(plan.device)}, perf_counter()
    result = STEPS[name].run(bench)
    seconds = perf_counter() - began
    state["end"] = timing.machine_state(plan.device)
    what = f"{name}: {WHAT[name]}"
    if plan.tiny:
        what += "; in tiny shapes, to see that it runs"
    command = " ".join(["python -m benchmarks.gpu --only", name, *plan.options()[: 4 + plan.tiny]])
    about = {
        "step": name,
        "dtype": plan.dtype,
        "tiny": plan.tiny,
        "graphs": bench.graphs,
        "seconds": seconds,
        "state": state,
    }
    stamp = stamps.stamp(what, command, plan.device)
    return stamps.save(plan.record(name), stamp, about | result)


def attempt(name: str, plan: Plan, seconds: float) -> str | None:
    """Run one step, and return why nothing was recorded, or None."""
    if plan.together:
        measure(name, plan)
        return None
    command = [sys.executable, "-m", "benchmarks.gpu", "--only", name, *plan.options()]
    log = plan.folder / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        try:
            process = subprocess.run(command, cwd=ROOT, stdout=file, stderr=file, timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"stopped after {seconds:.0f} s; the next call resumes from its checkpoints"
    lines = log.read_text(encoding="utf-8").strip().splitlines()
    return (
        f"failed: {lines[-1] if lines else 'no output'} (see {log})" if process.returncode else None
    )


def run_steps(plan: Plan, console: Console) -> dict[str, str]:
    """Run the steps that are not recorded yet."""
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
    """Print the recordings as tables, as the chapter does."""
    paths = {name: plan.record(name) for name in STEPS if plan.record(name).exists()}
    records = {name: json.loads(path.read_text("utf-8")) for name, path in paths.items()}
    for title, header, lines in gpu_report.tables(records):
        table = Table(title=title)
        for column in header:
            table.add_column(column)
        for line in lines:
            table.add_row(*line)
        console.print(table)


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = parser_for("benchmarks.gpu", __doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--dtype",
        default="auto",
        choices=("auto", "bfloat16", "float16", "float32"),
        help="auto: bfloat16, or float16 on a GPU without bfloat16, such as a T4",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="use tiny shapes, to check that the code runs"
    )
    parser.add_argument("--only", choices=STEPS, help="run this step alone, in this process")
    parser.add_argument(
        "--together", action="store_true", help="run all steps in this process, without time limits"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "results", help="folder of the recordings"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=ROOT / ".work" / "gpu",
        help="folder of the pair and the checkpoints",
    )
    parser.add_argument(
        "--piece", type=float, default=PIECE, help="seconds that this call may take"
    )
    parser.add_argument("--total", type=float, default=ALL, help="seconds that all calls may take")
    return parser


def unfit(device: str, dtype: str) -> str | None:
    """Return why this machine cannot run the chosen options, or None."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        return (
            "--device cuda: PyTorch sees no CUDA device here; with --device cpu --tiny the script"
            " runs in tiny shapes"
        )
    if dtype == "bfloat16" and not memory.has_bfloat16(device):
        return "--dtype bfloat16: this card does not compute in it; use --dtype float16"
    return None


def main(arguments: list[str] | None = None) -> dict[str, str]:
    """Run the command line."""
    parser = command_line()
    options = parser.parse_args(arguments)
    if reason := unfit(options.device, options.dtype):
        parser.error(reason)
    logging.set_verbosity_error()
    console = Console(width=150)
    if options.dtype == "auto":
        options.dtype = "bfloat16" if memory.has_bfloat16(options.device) else "float16"
        if options.dtype == "float16":
            console.print("float16: this card does not compute in bfloat16")
    only = options.__dict__.pop("only")
    options.out, options.work = options.out.resolve(), options.work.resolve()
    plan = Plan(**vars(options))
    if only:
        console.print(f"written to {measure(only, plan)}")
        return {}
    skipped = run_steps(plan, console)
    show(plan, console)
    ran = sum(plan.record(name).exists() for name in STEPS)
    console.print(f"{ran} of {len(STEPS)} steps are recorded in {plan.out}/{plan.kind}-*.json")
    for name, why in skipped.items():
        console.print(f"not measured: {name} ({why})", markup=False)
    return skipped


if __name__ == "__main__":
    main()
