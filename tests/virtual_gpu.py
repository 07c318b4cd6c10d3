"""A virtual GPU for tests: tensors that report cuda:0 while their data is on the CPU.

    python tests/virtual_gpu.py [--capability 7.5] MODULE …   # python -m MODULE … on the virtual GPU

The card refuses what CUDA refuses (mixed devices, a generator of another device, reads while a
graph is captured) and counts what makes the host wait (`virtual_card`). C++ sees PyTorch's backend
for devices written in Python; Python sees `torch.cuda`. `install` patches `torch` for the whole
process, so a virtual GPU needs a process of its own. It has no kernels and no parallel streams: it
shows which operators run and where the host waits, never how long they take.
"""

import argparse
import functools
import os
import runpy
import sys
from contextlib import nullcontext
from time import perf_counter
from types import SimpleNamespace

import torch
import torch._dynamo  # lists the functions of torch.cuda: before they are replaced
import virtual_card
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from virtual_card import CPU, CUDA, CaptureError, Card, GpuTensor, leaves, mapped
from virtual_graphs import CUDAGraph, card, graph

# Queues ---------------------------------------------------------------------------------------------


class Stream:
    """A stream of the card, whose operations run in the order of their launch with all others."""

    def __init__(self, device=None, priority: int = 0):
        self.device = CUDA

    def wait_stream(self, other: "Stream") -> None:
        pass


class Event:
    """A mark in the queue: its time is known once the host has waited for it or for later work.

    Attributes:
        latest: seconds of the last record; times grow in the order of the records.
    """

    latest = 0.0

    def __init__(self, enable_timing: bool = False, blocking: bool = False, **options):
        self.timed, self.place = enable_timing, None

    def record(self, stream: Stream | None = None) -> None:
        card().launched += 1
        self.place = card().launched
        self.time = Event.latest = max(perf_counter(), Event.latest + 1e-9)

    def elapsed_time(self, other: "Event") -> float:
        """Return the milliseconds from this mark to another."""
        if not (self.timed and other.timed and self.place and other.place):
            raise ValueError("Both events must be recorded with enable_timing before their time")
        if max(self.place, other.place) > card().finished:
            raise RuntimeError("CUDA error: device not ready")
        return (other.time - self.time) * 1e3


class Generator(torch._C.Generator):
    """A generator that remembers which device it was made for."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, "cpu")

    def __init__(self, device="cpu"):
        self.made_for = torch.device(device)

    device = property(lambda self: self.made_for)


# Names ----------------------------------------------------------------------------------------------


def is_card(device) -> bool:
    """Return whether a device, by any of its names, is the card."""
    if device is None or isinstance(device, int):
        return False
    return torch.device(device).type in ("cuda", card().device.type)


class Names(TorchFunctionMode):
    """Calls of `torch` with "cuda" in their arguments, in the backend's words."""

    FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray)
    PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if isinstance(kwargs.get("generator"), Generator):
            check_generator(kwargs["generator"], args, kwargs.get("device"))
        if func is Tensor.cuda:
            return args[0].to(card().device)
        if func is Tensor.cpu:
            return args[0].to(CPU)
        if func is Tensor.pin_memory:
            return card().pin(args[0])
        if func is Tensor.to:
            return func(*self.destination(args), **self.placed(kwargs))
        if kwargs.get("pin_memory"):
            return card().pin(func(*args, **kwargs | {"pin_memory": False}))
        if func is Tensor.new_tensor and isinstance(args[0], GpuTensor):
            func, kwargs = torch.tensor, {"dtype": args[0].dtype, "device": CUDA} | kwargs
            args = args[1:]
        if func in self.FROM_DATA[1:] and args and isinstance(args[0], GpuTensor):
            if kwargs.get("device") is None or is_card(kwargs["device"]):
                return args[0].to(kwargs.get("dtype") or args[0].dtype)
        if func in self.FROM_DATA and args and isinstance(args[0], list | tuple):
            read = lambda x: x.item() if isinstance(x, GpuTensor) else x
            args = (mapped(read, args[0]), *args[1:])
        if func in self.PRODUCTS and isinstance(args[0], GpuTensor) and args[0].dim() == 1:
            return func(args[0][None], *args[1:])[0]  # PyTorch's own way squeezes in place
        if func in self.FROM_DATA and is_card(kwargs.get("device")):
            return func(*args, **kwargs | {"device": CPU}).to(card().device)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], GpuTensor):
            args = (args[0], indices(args[1]), *args[2:])
        return func(*args, **self.placed(kwargs))

    def placed(self, kwargs: dict) -> dict:
        return kwargs | {"device": card().device} if is_card(kwargs.get("device")) else kwargs

    def destination(self, args: tuple) -> tuple:
        """Return the arguments of `Tensor.to` with the device in the backend's words."""
        if len(args) > 1 and isinstance(args[1], Tensor):
            other = card().device if isinstance(args[1], GpuTensor) else args[1].device
            return args[0], other, args[1].dtype, *args[2:]
        if len(args) > 1 and isinstance(args[1], str | torch.device) and is_card(args[1]):
            return args[0], card().device, *args[2:]
        return args


def check_generator(generator: Generator, args: tuple, device) -> None:
    """Raise CUDA's error for a generator of another device than the tensors'."""
    on_card = is_card(device) or any(isinstance(x, GpuTensor) for x in leaves(args))
    wanted, given = "cuda" if on_card else "cpu", generator.device.type
    if given != wanted:
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{given}'")
    if card().recording is not None:
        raise CaptureError("Offset increment outside graph capture encountered unexpectedly.")


def indices(index):
    """Return an index with its lists as tensors, which CUDA uploads."""
    if isinstance(index, tuple):
        return tuple(map(indices, index))
    return torch.tensor(index) if isinstance(index, list) else index


def load_onto(load):
    """Return `torch.load` with "cuda" among the places it can load to."""

    def loaded(file, map_location=None, **options):
        card().load_device = "cuda" if map_location is None or is_card(map_location) else "cpu"
        found = load(file, map_location="cpu", **options)
        if map_location is None or not is_card(map_location):
            return found
        return mapped(lambda x: x.to(CUDA) if isinstance(x, Tensor) else x, found)

    return loaded


def profile_host(profile, *args, activities=(), **options):
    """Return a profiler of the host alone: PyTorch's own of a GPU needs CUDA."""
    host = [x for x in activities if x == torch.profiler.ProfilerActivity.CPU]
    return profile(*args, activities=host, **options)


def properties() -> SimpleNamespace:
    """Return what `torch.cuda.get_device_properties` tells of the card."""
    major, minor = card().capability
    return SimpleNamespace(
        name=card().name,
        major=major,
        minor=minor,
        total_memory=card().total,
        multi_processor_count=40,
        warp_size=32,
        L2_cache_size=4 << 20,
        uuid="00000000-0000-0000-0000-000000000000",
    )


def supports_bfloat16(including_emulation: bool = True) -> bool:
    return including_emulation or card().capability >= (8, 0)


def functions() -> dict:
    """Return what is used for the functions and classes of `torch.cuda`, by name."""
    one, nothing = Stream(), lambda *args, **kwargs: None
    found = dict.fromkeys(
        ["_lazy_init", "init", "set_device", "empty_cache", "manual_seed", "manual_seed_all"],
        nothing,
    )
    return found | {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: card().name,
        "get_device_capability": lambda device=None: card().capability,
        "get_device_properties": lambda device=None: properties(),
        "is_bf16_supported": supports_bfloat16,
        "mem_get_info": lambda device=None: (card().total - card().allocated, card().total),
        "synchronize": lambda device=None: card().wait("sync", "torch.cuda.synchronize"),
        "current_stream": lambda device=None: one,
        "default_stream": lambda device=None: one,
        "stream": nullcontext,
        "device": nullcontext,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "is_current_stream_capturing": lambda: card().recording is not None,
        "graph_pool_handle": lambda: (0, 1),
        "graph": graph,
        "CUDAGraph": CUDAGraph,
        "Stream": Stream,
        "Event": Event,
    }


def install(capability: tuple[int, int] = (9, 0)) -> Card:
    """Put the virtual GPU into this process, before the library is imported."""
    _setup_privateuseone_for_python_backend("vgpu")
    virtual_card.CARD = Card(capability)
    for name, value in functions().items():
        setattr(torch.cuda, name, value)
        if name.endswith("rng_state"):
            setattr(torch.get_device_module("vgpu"), name, value)
    torch.version.cuda = "13.0"
    torch.Generator = Generator
    torch.load = load_onto(torch.load)
    torch.serialization.add_safe_globals([virtual_card._unpickled])
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.profiler.profile = functools.partial(profile_host, torch.profiler.profile)
    Names().__enter__()
    return card().__enter__()


def main() -> None:
    """Run a module on the virtual GPU, as `python -m` does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--capability", default="9.0")
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    sys.path.insert(0, os.getcwd())
    install(tuple(map(int, chosen.capability.split("."))))
    sys.argv = [chosen.module, *chosen.arguments]
    runpy.run_module(chosen.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    from virtual_gpu import main

    main()
