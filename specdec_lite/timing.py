"""Clocks: what a pass costs on this machine, and what the machine is.

What lives here: measured seconds. What does not: what they imply (`theory`). Every figure is a median over interleaved
repetitions after a warm-up, and the device is synchronised before the clock is read.
"""
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter

import torch

from .decoding import generate
from .models import CausalLM
from .speculation import Drafter


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds. target: {k: one target pass over k tokens}. draft: one draft pass alone. draft_in_loop: one draft pass
    inside decoding, between target passes, which push the draft's weights out of the processor's cache. overhead: per
    round, everything that is neither drafting nor the target's pass."""
    target: dict[int, float]
    draft: float | None = None
    draft_in_loop: float | None = None
    overhead: float | None = None


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def interleaved(jobs: dict, device: torch.device, repeats: int = 15, warmup: int = 3) -> dict:
    """Median seconds of each job; the jobs take turns, so that a machine that slows down slows them all."""
    taken: dict = {name: [] for name in jobs}
    for turn in range(warmup + repeats):
        for name, job in jobs.items():
            synchronise(device)
            began = perf_counter()
            job()
            synchronise(device)
            if turn >= warmup:
                taken[name].append(perf_counter() - began)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def _pass(model: CausalLM, prompt: torch.Tensor, count: int) -> Callable[[], None]:
    """A job that scores `count` tokens after the prompt and forgets them again."""
    cache = model.new_cache(capacity=len(prompt) + count)
    model.score(prompt, cache, last=True)
    fed = prompt[:count] if count <= len(prompt) else prompt.repeat(count // len(prompt) + 1)[:count]
    def job() -> None:
        model.score(fed, cache)
        cache.crop(len(prompt))
    return job


def measure_costs(target: CausalLM, drafter: Drafter | None = None, ks: Sequence[int] = (1, 2, 4, 8, 16), context: int = 128,
                  prompt=None, temperature: float = 1.0, new_tokens: int = 96) -> Costs:
    """Time target passes over k tokens, and the drafter alone and in the loop, at `context` tokens of context.

    ks: the k to time, each ≥ 1. prompt: token ids to decode from when timing the loop (default: arbitrary ids).
    """
    if context < 1 or not ks or min(ks) < 1:
        raise ValueError(f"ks={tuple(ks)}, context={context}: all must be ≥ 1")
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(target.vocab_size, (context,), generator=generator).to(target.device)
    jobs = {k: _pass(target, text, k) for k in ks}
    draft = getattr(drafter, "model", None)
    if draft is not None:
        jobs["draft"] = _pass(draft, text.clamp(max=draft.vocab_size - 1).to(draft.device), 1)
    seconds = interleaved(jobs, target.device)
    if drafter is None:
        return Costs(seconds)
    alone = seconds.pop("draft", None)
    prompt = text if prompt is None else torch.as_tensor(prompt)
    generate(target, prompt, drafter, 16, temperature, seed=0)
    steps = [step for seed in range(3) for step in generate(target, prompt, drafter, new_tokens, temperature, seed=seed).steps]
    per_pass = [step.drafting / step.draft_passes for step in steps if step.draft_passes]
    in_loop = statistics.median(per_pass) if per_pass else None
    return Costs(seconds, alone, in_loop, statistics.median(step.other for step in steps))


def _bandwidth(device: torch.device, size: int = 256 << 20) -> float:
    """Read bandwidth in bytes per second: summing an array several times larger than any cache."""
    data = torch.ones(size // 4, device=device)
    return size / interleaved({"sum": data.sum}, device, repeats=7)["sum"]


def _throughput(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Arithmetic throughput in operations per second: a square matrix product."""
    a = torch.randn(size, size, device=device).to(dtype)
    return 2 * size ** 3 / interleaved({"product": lambda: a @ a}, device, repeats=5)["product"]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine_profile(device: str = "auto") -> dict:
    """What this machine is, measured: {"device", "threads", "bandwidth" [bytes/s], "throughput" {dtype: [operations/s]}, "versions"}."""
    where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    gpu = where.type == "cuda"
    size = 8192 if gpu else 1024
    throughput = {str(d).removeprefix("torch."): _throughput(where, d, size) for d in (torch.float32, torch.bfloat16)}
    return {"device": torch.cuda.get_device_name(where) if gpu else _processor(), "threads": torch.get_num_threads(),
            "cores": os.cpu_count(), "bandwidth": _bandwidth(where, (4 << 30) if gpu else (256 << 20)), "throughput": throughput,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "transformers")}}}
