"""Profile one pass: its operations in order, and the gaps between them.

A profiler slows down the job that it profiles, so its numbers show shares and order. Use `timing`
to compare speeds.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]
from torch.profiler import ProfilerActivity, profile

# PyTorch's profiler prints a line at every start and stop, which a chapter would show.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

WARMUP = 3
"""Runs of a job before it is profiled."""
KINDS = ("weights", "attention", "other")
PRODUCTS = ("linear", "matmul", "mm", "addmm", "bmm", "_linear_pointwise")
OPERATORS = ("aten::", "mkldnn::", "cudaGraphLaunch")
"""Prefixes of the host's operations; the launch of a captured graph is one operation."""
ATTENTION_KERNELS = ("attention", "fmha", "flash", "sdpa")
PRODUCT_KERNELS = ("gemm", "gemv", "cublas", "cutlass", "nvjet")
"""Parts of the names of GPU kernels. Some attention kernels are built with cutlass, so attention
names are compared first.
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a profiled pass.

    Attributes:
        name: name of the operator, or of the kernel on a GPU.
        start: seconds from the start of the first operation.
        seconds: duration.
        kind: "weights" (a product with a weight matrix), "attention" or "other".
    """

    name: str
    start: float
    seconds: float
    kind: str


def kind_of(name: str) -> str:
    """Return the kind of an operator or a GPU kernel: "weights", "attention" or "other".

    Args:
        name: name of the operator or kernel.
    """
    short, low = name.split("::")[-1], name.lower()
    if any(part in low for part in ATTENTION_KERNELS):
        return "attention"
    is_product = short in PRODUCTS or any(part in low for part in PRODUCT_KERNELS)
    return "weights" if is_product else "other"


def operations(job: Callable[[], object]) -> list[Operation]:
    """Return the operators that Python calls in one run of a job, in order.

    Operators that another operator calls are part of that operator. Allocations and views count,
    because each of them takes time to launch. On a GPU the operations are the launches on the host,
    including the replay of a graph.

    Args:
        job: function to run, three times before it is profiled.
    """
    for _ in range(WARMUP):
        job()
    gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    with profile(activities=[ProfilerActivity.CPU, *gpu]) as profiler:
        job()
    return _calls(profiler.events() or [])


def _calls(events: Sequence) -> list[Operation]:
    """Return the outermost operators of the host."""
    return _records(
        event
        for event in events
        if event.device_type == DeviceType.CPU
        and event.cpu_parent is None
        and event.name.startswith(OPERATORS)
    )


def kernels(job: Callable[[], object]) -> list[Operation]:
    """Return the kernels that a GPU runs in one run of a job, in order.

    Kernels of a replayed graph are included.

    Args:
        job: function to run, three times before it is profiled.

    Returns:
        The kernels; an empty list without a GPU.
    """
    if not torch.cuda.is_available():
        return []
    for _ in range(WARMUP):
        job()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        job()
        torch.cuda.synchronize()
    cuda = DeviceType.CUDA
    return _records(event for event in profiler.events() or [] if event.device_type == cuda)


def _records(events) -> list[Operation]:
    """Return profiler events as operations, in order of their start."""
    ordered = sorted(events, key=lambda event: event.time_range.start)
    first = ordered[0].time_range.start if ordered else 0.0
    return [
        Operation(
            event.name,
            (event.time_range.start - first) / 1e6,
            event.time_range.elapsed_us() / 1e6,
            kind_of(event.name),
        )
        for event in ordered
    ]


def span(items: Sequence[Operation]) -> float:
    """Return the seconds from the first start to the last end, gaps included; 0 without operations.

    Args:
        items: operations in order.
    """
    return max((item.start + item.seconds for item in items), default=0.0)


def share(items: Sequence[Operation], kind: str) -> float:
    """Return the share of the span that operations of one kind take; 0 without operations.

    Args:
        items: operations in order.
        kind: a kind of operation, or "gap" for the time in which no operation runs.
    """
    if not items:
        return 0.0
    if kind == "gap":
        return idle(items) / span(items)
    return sum(item.seconds for item in items if item.kind == kind) / span(items)


def idle(items: Sequence[Operation]) -> float:
    """Return the seconds of the span in which no operation runs.

    Args:
        items: operations in order; kernels of a GPU may overlap.
    """
    seconds, end = 0.0, 0.0
    for item in items:
        seconds += max(0.0, item.start - end)
        end = max(end, item.start + item.seconds)
    return seconds


def shares(items: Sequence[Operation]) -> dict[str, float]:
    """Return {kind: its share} for every kind of operation and for the gaps.

    The shares add up to 1, to 0 without operations, and to more if kernels of a GPU overlap.

    Args:
        items: operations in order.
    """
    return {kind: share(items, kind) for kind in (*KINDS, "gap")}
