"""Run the steps of the plan under one budget of seconds, and write one recording.

The steps run in a process of their own, one after the other. A step that fails is recorded with its
error. If it has broken the device, or the process with it, a new process runs the steps that are
left. Every step may take its share of the seconds that are left; it stops between two cells, and no
step is stopped for another one. The recording is written again after every few cells.
"""

import argparse
import faulthandler
import gc
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, time

import torch

from specdec_lite.gpu.plan import card, launch, passes, rounds
from specdec_lite.gpu.plan.bench import Bench, CannotRun
from specdec_lite.gpu.plan.launch import BROKEN
from specdec_lite.gpu.plan.shapes import FULL, SMALL, TINY, Scale
from specdec_lite.loading.memory import (
    MARGIN,
    free_bytes,
    gigabytes,
    half_precision,
    native_size,
    resolve_device,
)
from specdec_lite.measure import stamps
from specdec_lite.measure.machine import machine_state

EVERY = 3.0
"""Seconds between two writes of an unfinished step."""
LARGE = 38 << 30
"""Bytes of memory from which a card has room for the passes and rounds of `FULL`."""
UNFINISHED = "did not finish: the process ended"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the plan.

    Attributes:
        run: measures.
        share: seconds of a run of about six minutes.
        models: names of the shapes that it holds in memory.
        cache: whether it holds the buffer of keys and values.
    """

    run: Callable[[Bench], dict]
    share: float
    models: tuple[str, ...] = ()
    cache: bool = False


TARGET = "the target of the scale"
SLICES, QUARTER = "Llama-3.3-70B, 20 layers", "Llama-3.3-70B, a quarter"
STEPS = {
    "card": Step(card.card, 15),
    "pair": Step(rounds.reader_rounds, 200),
    "passes": Step(lambda b: passes.target_passes(b, b.scale.target), 60, (TARGET,), True),
    "slices": Step(lambda b: passes.target_passes(b, SLICES, b.scale.depths), 40, (SLICES,), True),
    "quarter": Step(lambda b: passes.target_passes(b, QUARTER), 45, (QUARTER,), True),
    "drafts": Step(passes.draft_passes, 30, ("Llama-3.2-1B",), True),
    "experts": Step(passes.expert_passes, 40, ("block",), True),
    "rounds": Step(rounds.shipped_rounds, 90),
    "smollm2": Step(rounds.smollm2_rounds, 40),
    "synthetic": Step(rounds.synthetic_rounds, 50, (TARGET, "Llama-3.2-1B"), True),
    "trees": Step(passes.tree_passes, 15, (TARGET,)),
    "trace": Step(card.trace, 15, cache=True),
}
"""The steps, the most valuable first."""


class Recorder:
    """The one recording of a machine, written again after every step and every few cells.

    Attributes:
        path: the file.
        steps: {name of a step: what it measured}.
    """

    def __init__(self, path: Path, device: torch.device, command: str, about: dict):
        self.path, self.about, self.written = path, about, 0.0
        self.stamp = stamps.stamp(
            "A GPU: its bandwidth, passes of real shapes, drafts, experts and whole rounds",
            command,
            str(device),
        )
        self.steps: dict[str, dict] = recorded_steps(path)

    def put(self, name: str, result: dict, now: bool = True) -> None:
        """Store what a step has measured; unless `now`, only if the last write was long ago."""
        self.steps[name] = result
        if now or perf_counter() - self.written > EVERY:
            stamps.save(self.path, self.stamp, self.about | {"steps": self.steps})
            self.written = perf_counter()


def recorded_steps(path: Path) -> dict[str, dict]:
    """Return the steps of a recording; none without a file, or if another version wrote it."""
    try:
        return dict(json.loads(path.read_text("utf-8"))["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def bytes_of(step: Step, scale: Scale, dtype: torch.dtype) -> float:
    """Return the bytes of device memory that a step needs."""
    names = [scale.target if name == TARGET else name for name in step.models]
    sizes = [native_size(scale.models[name]).parameters * dtype.itemsize for name in names]
    return MARGIN * sum(sizes) + 1.4 * scale.cache_bytes * step.cache


def obstacle(step: Step, bench: Bench) -> str | None:
    """Return why a step cannot run in the free memory of this card, or None."""
    needed, free = bytes_of(step, bench.scale, bench.dtype), free_bytes(bench.device)
    if not bench.graphs or free is None or free >= needed:
        return None
    return f"it needs {gigabytes(needed)}, {gigabytes(free)} are free"


def attempt(name: str, bench: Bench, recorder: Recorder) -> bool:
    """Run one step and record it, or its error; return whether the device still works."""
    step, began = STEPS[name], perf_counter()
    recorder.put(name, {"error": UNFINISHED})
    result: dict = {}

    def keep(partial: dict) -> None:
        result.update(partial)
        recorder.put(name, result | {"error": UNFINISHED}, now=False)

    bench.keep = keep
    works = True
    state = machine_state(bench.device)
    try:
        if reason := obstacle(step, bench):
            result["skipped"] = reason
        else:
            result.update(step.run(bench))
    except CannotRun as reason:
        result["skipped"] = str(reason)
    except KeyboardInterrupt:
        recorder.put(name, result | {"error": "interrupted"})
        raise SystemExit(launch.INTERRUPTED) from None
    except Exception as error:  # one step must not end the others
        result["error"] = f"{type(error).__name__}: {error}"[:1000]
        works = is_working(bench.device)
    result["took"] = perf_counter() - began
    result["state"] = {"start": state, "end": machine_state(bench.device) if works else None}
    recorder.put(name, result)
    print(f"{name:12} {result['took']:6.1f} s  {summary(result)}", flush=True)
    return works


def is_working(device: torch.device) -> bool:
    """Free what a failed step has left, and return whether the device still computes."""
    try:
        gc.collect()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.empty_cache()
        return float(torch.ones(8, device=device).sum()) == 8
    except RuntimeError:
        return False


def summary(result: dict) -> str:
    """Return one line about what a step measured."""
    if problem := result.get("error") or result.get("skipped"):
        return f"{'failed' if 'error' in result else 'skipped'}: {problem}"[:300]
    if "read_bandwidth" in result:
        return (
            f"reads {result['read_bandwidth'] / 1e9:.0f} GB/s, multiplies"
            f" {result['peak']['flops'] / 1e12:.0f} TFLOP/s, launch"
            f" {result['launches']['eager'] * 1e6:.1f} µs, captured"
            f" {result['launches']['captured'] * 1e6:.2f} µs"
        )
    if "T = 0" in result:
        return "; ".join(
            f"{t}: " + ", ".join(f"{m} {x['speedup']['value']:.2f}×" for m, x in modes.items())
            for t in ("T = 0", "T = 1")
            if (modes := result[t]["modes"])
        )
    return f"{len(result.get('rows', []))} rows"


def no_gpu() -> str:
    """Return why PyTorch has no GPU here, and where to get one."""
    why = "this PyTorch is built without CUDA"
    if torch.version.cuda is not None:
        try:
            torch.cuda.init()
            why = "PyTorch sees none"
        except (AssertionError, RuntimeError) as error:  # no driver, or one that is too old
            why = str(error).splitlines()[0]
    return (
        f"there is no GPU here ({why}): in Colab choose Runtime, Change runtime type, T4 GPU;"
        " --tiny runs the plan in tiny shapes on a CPU"
    )


def scale_of(device: torch.device, tiny: bool) -> Scale:
    """Return the sizes that suit a device."""
    if tiny or device.type != "cuda":
        return TINY
    total = torch.cuda.get_device_properties(device).total_memory
    return FULL if total > LARGE else SMALL


def run_steps(args: argparse.Namespace) -> int:
    """Run steps in this process; return 0, or `BROKEN` if the device no longer works."""
    until = time() + args.seconds if args.until is None else args.until
    device = resolve_device(args.device)
    if device.type != "cuda" and not args.tiny:
        raise ValueError(no_gpu())
    dtype = half_precision(device) if args.dtype == "auto" else args.dtype
    scale = scale_of(device, args.tiny)
    path = recording_of(device, args)
    about = {"dtype": dtype, "tiny": args.tiny, "graphs": device.type == "cuda"}
    recorder = Recorder(path, device, command_of(args), about)
    if not (args.resume or args.go_on or args.only or args.pair):
        recorder.steps = {name: step for name, step in recorder.steps.items() if name == "pair"}
    names = missing_steps(args, recorder.steps)
    print(
        f"{recorder.stamp['machine']}, {dtype}: {len(names)} steps, {until - time():.0f} s",
        flush=True,
    )
    gc.freeze()  # every capture collects garbage: leave out what the imports have made
    for index, name in enumerate(names):
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        left = until - time()
        share = left * STEPS[name].share / sum(STEPS[other].share for other in names[index:])
        if left < 1 and not args.tiny:
            recorder.put(name, {"skipped": "no time was left"})
            print(f"{name:12} skipped: no time was left", flush=True)
            continue
        end = float("inf") if args.tiny else perf_counter() + share
        if not args.tiny:  # a step that hangs ends the process, and the next one continues
            faulthandler.dump_traceback_later(3 * share + 45, exit=True)
        bench = Bench(device, getattr(torch, dtype), scale, end, names=tuple(args.pair))
        works = attempt(name, bench, recorder)
        faulthandler.cancel_dump_traceback_later()
        if not works:
            return BROKEN
    print(f"wrote {path}", flush=True)
    return 0


def recording_of(device: torch.device, args: argparse.Namespace) -> Path:
    """Return the file of this machine's recording."""
    machine = stamps.machine_name(device) + " tiny" * args.tiny
    return stamps.recording_path("gpu", machine, args.out)


def command_of(args: argparse.Namespace) -> str:
    """Return the command that repeats this run."""
    words = ["python -m specdec_lite gpu", *["--tiny"] * args.tiny]
    words += ["--pair", *args.pair] if args.pair else []
    return " ".join(words + [f"--seconds {args.seconds:g}"] * (args.seconds != launch.SECONDS))


def missing_steps(args: argparse.Namespace, have: dict[str, dict]) -> list[str]:
    """Return the names of the steps to run: those asked for that have no result yet.

    A process that continues after another one leaves its errors alone; `--resume` tries them again.
    """
    names = list(args.only or [name for name in STEPS if name != "pair"])
    if args.pair:
        names = ["pair"] if "card" in have else ["card", "pair"]
    if args.go_on:
        return [name for name in names if name not in have]
    is_done = lambda name: name in have and not {"error", "skipped"} & have[name].keys()
    return [name for name in names if not (args.resume and is_done(name))]
