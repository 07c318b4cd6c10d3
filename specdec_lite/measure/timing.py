"""Clocks: what a pass costs on this machine, and what the machine is.

What lives here: measured seconds. What does not: what they imply (`theory`, `roofline`). Every
figure is a median over interleaved repetitions after a warm-up. On a GPU the clock is a pair of
CUDA events, elsewhere the processor's own.
"""

import os
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

import torch

from specdec_lite.checks import instance, is_whole, whole
from specdec_lite.decoding import generate, stream
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.memory import device_named, has_bfloat16
from specdec_lite.measure.results import gpu_versions, machine_name, smi
from specdec_lite.speculation import Drafter, Step, elapsed, now
from specdec_lite.tree import TokenTree

WARM = 16  # tokens decoded once before the loop is timed


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds. target: {k: one target pass over k tokens}. draft: one draft pass, no token chosen,
    timed in turns with the target's passes; None where the drafter names no model. draft_in_loop: a
    draft pass inside decoding, the choice of its token included; of γ in a row only the first
    follows a target pass; None where drafting makes no passes. overhead: per round, everything that
    is neither drafting nor the target's pass. round: all drafting of a round that drafted; None
    where none did.
    """

    target: dict[int, float]
    draft: float | None = None
    draft_in_loop: float | None = None
    overhead: float | None = None
    round: float | None = None


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """The parts of an average round, in units of T(1). draft: all its drafting (γc where γ passes
    draft). verify: the target's pass, v. other: all else, o.
    """

    draft: float
    verify: float
    other: float

    @property
    def total(self) -> float:
        return self.draft + self.verify + self.other


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds: the median of the repetitions and the quartiles, between which half of them lie."""

    median: float
    low: float
    high: float


def clocked(job: Callable[[], object], device: torch.device) -> float:
    """Seconds from the start of a job to its end on the device, the gaps between its kernels
    included.
    """
    synchronise(device)
    began = now(device)
    job()
    ended = now(device)
    synchronise(device)
    return elapsed(began, ended)


def samples(
    jobs: dict,
    device: torch.device,
    repeats: int = 15,
    warmup: int = 3,
    budget: float | None = None,
) -> dict[object, list[float]]:
    """Seconds of every repetition of each job; the jobs take turns, so that a machine that slows
    down slows them all.

    budget: seconds after which no further turn begins, once every job has run after the warm-up;
    None: no limit.
    """
    if repeats < 1 or warmup < 0:
        raise ValueError(f"repeats={repeats}, warmup={warmup}: must be at least 1 and at least 0")
    taken: dict = {name: [] for name in jobs}
    began = perf_counter()
    for turn in range(warmup + repeats):
        if turn > warmup and budget is not None and perf_counter() - began > budget:
            break
        for name, job in jobs.items():
            seconds = clocked(job, device)
            if turn >= warmup:
                taken[name].append(seconds)
    return taken


def interleaved(jobs: dict, device: torch.device, repeats: int = 15, warmup: int = 3) -> dict:
    """Median seconds of each job, timed in turns (see `samples`)."""
    return {
        name: statistics.median(seconds)
        for name, seconds in samples(jobs, device, repeats, warmup).items()
    }


def spreads(
    jobs: dict,
    device: torch.device,
    repeats: int = 15,
    warmup: int = 3,
    budget: float | None = None,
) -> dict[object, Spread]:
    """Median and quartiles of each job's seconds, timed in turns (see `samples`)."""
    taken = samples(jobs, device, repeats, warmup, budget)
    quartiles = {
        name: (
            statistics.quantiles(seconds, n=4, method="inclusive")
            if len(seconds) > 1
            else [seconds[0]] * 3
        )
        for name, seconds in taken.items()
    }
    return {name: Spread(median, low, high) for name, (low, median, high) in quartiles.items()}


def pass_job(
    model: CausalLM,
    prompt: torch.Tensor,
    count: int | TokenTree,
    batch: int = 1,
    cache: Cache | None = None,
) -> Callable[[], None]:
    """A job that scores `count` tokens after the prompt, in `batch` equal rows, and forgets them
    again.

    count: a number of tokens in a row, or a tree, which is fed with its root as a round feeds it.
    cache: one that holds the prompt in so many rows, for jobs that take turns; None: its own.
    """
    tree = None
    if isinstance(count, TokenTree):
        tree = count
        count = 1 + len(tree)
    cache = prefilled(model, prompt, batch, count) if cache is None else cache
    fed = prompt.repeat(count // len(prompt) + 1)[:count].expand(batch, -1)

    def job() -> None:
        model.score(fed, cache, tree=tree)
        cache.crop(len(prompt))

    return job


def prefilled(model: CausalLM, prompt: torch.Tensor, batch: int = 1, room: int = 0) -> Cache:
    """A cache that holds the prompt in `batch` equal rows. room: tokens to make room for behind."""
    cache = model.new_cache(batch, capacity=len(prompt) + room)
    model.score(prompt.expand(batch, -1), cache, last=True)
    return cache


def _check_loop(target: CausalLM, drafter: Drafter, prompt: int, new_tokens: int) -> None:
    whole("new_tokens", new_tokens, 1)
    instance("drafter", drafter, Drafter, "None or a drafter")
    needed = prompt + max(new_tokens, WARM)
    models = {"target": target, "drafter": drafter.draft_model() or target}
    for name, each in models.items():
        if needed > each.max_positions:
            raise ValueError(
                f"new_tokens={new_tokens} after {prompt} of context (or of the prompt): {needed}"
                f" positions, the {name} has {each.max_positions}"
            )
    drafter.check(target, needed)


def _check_passes(model: CausalLM, ks: Iterable[int], context: int) -> tuple[int, ...]:
    instance("the model to time", model, CausalLM)
    if not isinstance(ks, Iterable):
        raise ValueError(f"ks={ks!r}: must be a row of whole numbers, such as (1, 5)")
    ks = tuple(ks)
    if not ks or not all(is_whole(n) and n >= 1 for n in (context, *ks)):
        raise ValueError(f"ks={ks}, context={context!r}: all must be whole numbers ≥ 1")
    if context + max(ks) > model.max_positions:
        raise ValueError(
            f"context={context} and k={max(ks)} need more positions than the model's"
            f" {model.max_positions}"
        )
    return ks


def _arbitrary(model: CausalLM, count: int) -> torch.Tensor:
    """Token ids [count] whose meaning does not matter: a pass costs the same for any."""
    return torch.randint(model.vocab_size, (count,), generator=torch.Generator().manual_seed(0)).to(
        model.device
    )


def pass_times(
    model: CausalLM,
    ks: Sequence[int] = (1, 2, 4, 8, 16, 32),
    context: int = 128,
    batches: Sequence[int] = (1,),
    repeats: int = 9,
    budget: float = 20.0,
) -> dict[tuple[int, int], Spread]:
    """Time passes over k tokens after `context` tokens, in each batch size: {(batch, k): Spread in
    seconds}.

    budget: seconds after which a slow machine makes do with fewer repetitions (one at least, after
    one to warm up). ks, batches, context: ≥ 1 each. ValueError for anything else, or where context
    + k exceeds the model's positions.
    """
    if not batches or min(batches) < 1:
        raise ValueError(f"batches={tuple(batches)}: all must be ≥ 1")
    ks = _check_passes(model, ks, context)
    text = _arbitrary(model, context)
    caches = {batch: prefilled(model, text, batch, max(ks)) for batch in batches}
    return spreads(
        {
            (batch, k): pass_job(model, text, k, batch, cache)
            for batch, cache in caches.items()
            for k in ks
        },
        model.device,
        repeats,
        warmup=1,
        budget=budget,
    )


def measure_costs(
    target: CausalLM,
    drafter: Drafter | None = None,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    context: int = 128,
    prompt=None,
    temperature: float = 1.0,
    new_tokens: int = 96,
) -> Costs:
    """Time target passes over k tokens, and any drafter alone and in the loop.

    Args:
        target: whose passes are timed.
        drafter: None times the target alone.
        ks: the k to time, each ≥ 1.
        context: tokens of context that the passes stand behind.
        prompt: token ids to decode from when timing the loop (default: arbitrary ids).
        temperature, new_tokens: of the loop.
    """
    ks = _check_passes(target, ks, context)
    text = _arbitrary(target, context)
    prompt = text if prompt is None else prompt
    if drafter is not None:
        _check_loop(target, drafter, len(prompt), new_tokens)
        stream(
            target, prompt, drafter, new_tokens, temperature, seed=0
        )  # checks them, and runs nothing
        prompt = torch.as_tensor(prompt)
    draft = None if drafter is None else drafter.draft_model()
    if draft is not None and context + 1 > draft.max_positions:
        raise ValueError(f"context={context}: the drafter has {draft.max_positions} positions")
    jobs = {k: pass_job(target, text, k) for k in ks}
    if draft is not None:
        jobs["draft"] = pass_job(draft, text.clamp(max=draft.vocab_size - 1).to(draft.device), 1)
    seconds = interleaved(jobs, target.device)
    if drafter is None:
        return Costs(seconds)
    alone = seconds.pop("draft", None)
    generate(target, prompt, drafter, WARM, temperature, seed=0)
    steps = [
        step
        for seed in range(3)
        for step in generate(target, prompt, drafter, new_tokens, temperature, seed=seed).steps
    ]
    drafting = [step.drafting for step in steps if len(step.tree)]
    per_pass = [step.drafting / step.draft_passes for step in steps if step.draft_passes]
    return Costs(
        seconds,
        draft=alone,
        draft_in_loop=statistics.median(per_pass) if per_pass else None,
        overhead=statistics.median(step.other for step in steps),
        round=statistics.median(drafting) if drafting else None,
    )


def round_costs(steps: Sequence[Step], one: float) -> RoundCosts:
    """The parts of a round in units of T(1), from the very rounds that decoded.

    Args:
        steps: rounds, at least one.
        one: seconds of T(1), such as the median pass of plain rounds that took turns with these.

    Each part is a median over the rounds that fed equally many tokens, averaged by how many such
    rounds there were: a disturbed round moves nothing, and drafts of several sizes keep their
    shares.
    """
    if not steps or not one > 0:
        raise ValueError(f"{len(steps)} steps and one={one!r}: both must be above 0")
    alike: dict[int, list[Step]] = {}
    for step in steps:
        alike.setdefault(len(step.tree), []).append(step)

    def average(part: str) -> float:
        sums = [
            len(group) * statistics.median(getattr(step, part) for step in group)
            for group in alike.values()
        ]
        return sum(sums) / len(steps) / one

    return RoundCosts(average("drafting"), average("verifying"), average("other"))


def cache_bytes() -> int | None:
    """Size of the processor's largest cache as the operating system states it, in bytes; None where
    it does not.
    """
    sizes = [
        path.read_text().strip()
        for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    ]
    units = {"K": 1 << 10, "M": 1 << 20}
    return max(
        (int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units), default=None
    )


def read_bandwidth(
    sizes: Iterable[int], device: str | torch.device = "cpu", repeats: int = 7
) -> dict[int, float]:
    """Bytes read per second when an array of each size [bytes, ≥ 4] is summed again and again, one
    size after the other.

    An array that fits a cache is read from the cache: only sizes well beyond it measure the memory.
    """
    where, found = torch.device(device), {}
    for size in sizes:
        if size < 4:
            raise ValueError(f"sizes holds {size}: each must be at least 4 bytes")
        data = torch.ones(size // 4, device=where)
        rounds = max(1, (16 << 20) // size)

        def read(data=data, rounds=rounds) -> None:
            for _ in range(rounds):
                data.sum()

        found[size] = rounds * data.nbytes / interleaved({"read": read}, where, repeats)["read"]
    return found


def _bandwidth(device: torch.device) -> float:
    """Read bandwidth of the memory in bytes per second: an array four times the largest known
    cache, and at least 256 MiB.
    """
    size = (
        4 << 30 if device.type == "cuda" else min(max(256 << 20, 4 * (cache_bytes() or 0)), 2 << 30)
    )
    return read_bandwidth([size], device)[size]


def _throughput(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Arithmetic throughput in operations per second: a square matrix product."""
    a = torch.randn(size, size, device=device).to(dtype)
    return 2 * size**3 / interleaved({"product": lambda: a @ a}, device, repeats=5)["product"]


GPU_STATE = (
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "clocks_throttle_reasons.active",
)
"""What nvidia-smi is asked: MHz, watts, degrees Celsius, and a bit mask."""


def gpu_state(device: str | torch.device) -> dict[str, str] | None:
    """Clocks, power and temperature of a GPU at this moment, as nvidia-smi tells them; None where
    there is no GPU, or no answer.
    """
    return None if torch.device(device).type != "cuda" else smi(device, GPU_STATE)


def machine_state(device: str | torch.device = "cpu") -> dict:
    """What may disturb a clock: {"load_average" (of 1, 5 and 15 minutes), "threads" (PyTorch's),
    "pins" (the cores that this process may run on)}, and of a GPU "gpu" (`gpu_state`); None for
    what the system does not tell.
    """
    gpu = {"gpu": gpu_state(device)} if torch.device(device).type == "cuda" else {}
    return gpu | {
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "threads": torch.get_num_threads(),
        "pins": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    }


def machine_profile(device: str = "auto") -> dict:
    """What this machine is, measured: {"device" (its name), "threads", "cores", "bandwidth"
    [bytes/s], "throughput" {dtype: [operations/s]}, "versions"}.
    """
    where = device_named(device)
    gpu = where.type == "cuda"
    size = 8192 if gpu else 1024
    half = torch.bfloat16 if has_bfloat16(where) else torch.float16
    throughput = {
        str(d).removeprefix("torch."): _throughput(where, d, size) for d in (torch.float32, half)
    }
    return {
        "device": machine_name(where),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "bandwidth": _bandwidth(where),
        "throughput": throughput,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "transformers")},
            **gpu_versions(where),
        },
    }
