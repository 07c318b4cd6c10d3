"""Describe this machine: bandwidth, throughput, clocks, load and versions."""

import os
from pathlib import Path

import torch

from specdec_lite.loading.memory import half_precision, resolve_device
from specdec_lite.measure.clocks import interleaved
from specdec_lite.measure.stamps import machine_name, query_gpu, versions_here

GPU_STATE = (
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "clocks_throttle_reasons.active",
)
"""Fields to query from nvidia-smi: MHz, watts, degrees Celsius, and a bit mask."""


def cache_bytes() -> int | None:
    """Return the bytes of the processor's largest cache, or None if the system does not state it."""
    sizes = [
        path.read_text().strip()
        for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    ]
    units = {"K": 1 << 10, "M": 1 << 20}
    return max(
        (int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units), default=None
    )


def read_bandwidth(size: int, device: str | torch.device = "cpu") -> float:
    """Measure the bytes read per second while an array of this many bytes is summed repeatedly.

    An array that fits into a cache is read from the cache; only sizes far above the largest cache
    measure the memory.
    """
    data = torch.ones(size // 4, device=device)
    rounds = max(1, (16 << 20) // size)

    def read() -> None:
        for _ in range(rounds):
            data.sum()

    seconds = interleaved({"read": read}, torch.device(device), repeats=7)["read"]
    return rounds * data.nbytes / seconds


def _bandwidth(device: torch.device) -> float:
    """Measure the memory's bandwidth in bytes per second.

    The array has four times the size of the largest known cache, and at least 256 MiB.
    """
    size = 4 << 30
    if device.type != "cuda":
        size = min(max(256 << 20, 4 * (cache_bytes() or 0)), 2 << 30)
    return read_bandwidth(size, device)


def _throughput(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Measure the operations per second of a product of two square matrices."""
    a = torch.randn(size, size, device=device).to(dtype)
    return 2 * size**3 / interleaved({"product": lambda: a @ a}, device, repeats=5)["product"]


def machine_state(device: str | torch.device = "cpu") -> dict:
    """Return what may disturb a measurement at this moment."""
    gpu = {"gpu": query_gpu(device, GPU_STATE)} if torch.device(device).type == "cuda" else {}
    return gpu | {
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "threads": torch.get_num_threads(),
        "pins": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    }


def machine_profile(device: str = "auto") -> dict:
    """Measure this machine."""
    resolved = resolve_device(device)
    size = 8192 if resolved.type == "cuda" else 1024
    half = getattr(torch, half_precision(resolved))
    throughput = {
        str(dtype).removeprefix("torch."): _throughput(resolved, dtype, size)
        for dtype in (torch.float32, half)
    }
    return {
        "device": machine_name(resolved),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "bandwidth": _bandwidth(resolved),
        "throughput": throughput,
        "versions": versions_here(resolved),
    }
