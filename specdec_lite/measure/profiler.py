"""What a pass is made of: its operations one after another, with the gaps between them.

What lives here: one profiled run as plain records. What does not: clocks for comparing runs
(`timing`); a profiler slows down what it watches, so its figures are for shares and order, not for
speeds.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

# Torch's profiler writes a line at every start and stop, which a chapter would show.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

KINDS = ("weights", "attention", "other")
PRODUCTS = ("linear", "matmul", "mm", "addmm", "bmm", "_linear_pointwise")
OPERATORS = ("aten::", "mkldnn::", "cudaGraphLaunch")
"""How the names of what the host calls begin; a captured graph is one call."""
ATTENTION_KERNELS = ("attention", "fmha", "flash", "sdpa")
PRODUCT_KERNELS = ("gemm", "gemv", "cublas", "cutlass", "nvjet")
"""Parts of the names of GPU kernels; some attention kernels are built with cutlass too, so
attention is looked for first.
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """name: the operator's, or a kernel's on a GPU. start, seconds: since the first one began, and
    how long it took. kind: "weights" (a product with a weight matrix), "attention", or "other".
    """

    name: str
    start: float
    seconds: float
    kind: str


def kind_of(name: str) -> str:
    """Which of the three kinds an operator or a GPU kernel belongs to, by its name."""
    short, low = name.split("::")[-1], name.lower()
    if any(part in low for part in ATTENTION_KERNELS):
        return "attention"
    return (
        "weights" if short in PRODUCTS or any(part in low for part in PRODUCT_KERNELS) else "other"
    )


def operations(job: Callable[[], object], warmup: int = 3) -> list[Operation]:
    """The operators that Python calls in one run of the job, in order; what an operator calls
    itself is part of it.

    Allocation and views count, as each takes its time to launch. On a GPU these are the launches,
    as the host sees them, a replayed graph's among them.
    """
    for _ in range(warmup):
        job()
    gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    with profile(activities=[ProfilerActivity.CPU, *gpu]) as watched:
        job()
    return _calls(watched.events())


def _calls(events: list) -> list[Operation]:
    outer = [
        event
        for event in events
        if event.device_type == torch.autograd.DeviceType.CPU
        and event.cpu_parent is None
        and event.name.startswith(OPERATORS)
    ]
    return _records([(event.name, event.time_range) for event in outer])


def kernels(job: Callable[[], object], warmup: int = 3) -> list[Operation]:
    """The kernels that a GPU runs in one run of the job, in order; empty without a GPU. A replayed
    graph shows its kernels too.
    """
    if not torch.cuda.is_available():
        return []
    for _ in range(warmup):
        job()
    return _kernels(job)


def _kernels(job: Callable[[], object]) -> list[Operation]:
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as watched:
        job()
        torch.cuda.synchronize()
    found = [
        event for event in watched.events() if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    return _records([(event.name, event.time_range) for event in found])


def _records(found: list) -> list[Operation]:
    ordered = sorted(found, key=lambda item: item[1].start)
    first = ordered[0][1].start if ordered else 0.0
    return [
        Operation(name, (span.start - first) / 1e6, span.elapsed_us() / 1e6, kind_of(name))
        for name, span in ordered
    ]


def span(found: list[Operation]) -> float:
    """Seconds from the first operation's start to the last one's end, gaps included."""
    return max((item.start + item.seconds for item in found), default=0.0)


def share(found: list[Operation], kind: str) -> float:
    """The part of the span that operations of a kind take; of kind "gap": in which none runs. 0 of
    nothing.
    """
    if not found:
        return 0.0
    if kind == "gap":
        return idle(found) / span(found)
    return sum(item.seconds for item in found if item.kind == kind) / span(found)


def idle(found: list[Operation]) -> float:
    """Seconds of the span in which no operation runs: kernels of a GPU may overlap."""
    seconds, reached = 0.0, 0.0
    for item in found:
        seconds += max(0.0, item.start - reached)
        reached = max(reached, item.start + item.seconds)
    return seconds


def shares(found: list[Operation]) -> dict[str, float]:
    """The `share` of every kind and of the gaps, which add up to 1 (to 0 of nothing; to more where
    kernels of a GPU overlap).
    """
    return {kind: share(found, kind) for kind in (*KINDS, "gap")}
