"""What every step of the plan receives: a device, the sizes, a deadline, and a way to capture."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter

import torch

from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.gpu.plan.shapes import Scale
from specdec_lite.gpu.programs import Capture
from specdec_lite.measure.clocks import Spread, spreads

Job = Callable[[], object]


class NoRoom(Exception):
    """A cell that does not fit into the buffer of keys and values."""


class CannotRun(Exception):
    """A step that this card or this PyTorch has no kernels for."""


@dataclass
class Bench:
    """A device and what to measure on it.

    Attributes:
        device: the device.
        dtype: dtype of weights, keys and values.
        scale: sizes of everything.
        until: value of `perf_counter` after which a step begins no further cell.
        keep: writes what a step has measured so far.
        names: the reader's target and draft; empty if none is measured.
    """

    device: torch.device
    dtype: torch.dtype
    scale: Scale
    until: float = float("inf")
    keep: Callable[[dict], object] = field(default=lambda partial: None)
    names: tuple[str, ...] = ()

    @property
    def graphs(self) -> bool:
        """Whether jobs are captured as CUDA graphs."""
        return self.device.type == "cuda"

    @property
    def is_over(self) -> bool:
        """Whether the step's time is used up."""
        return perf_counter() > self.until

    @cached_property
    def recorder(self) -> Capture:
        """The one stream on which graphs are captured."""
        return Capture(self.device)

    def captured(self, run: Callable[[], tuple]) -> tuple[Job, tuple]:
        """Return (replay of a run, its static outputs); without a GPU, (the run, its outputs)."""
        if not self.graphs:
            return run, run()
        # A pool of its own: its memory is free again as soon as the graph is deleted.
        self.recorder.pool = torch.cuda.graph_pool_handle()
        return self.recorder(run)

    def time(self, job: Job) -> Spread:
        """Return the spread of a job's seconds after one run to warm up."""
        scale = self.scale
        return spreads({"job": job}, self.device, scale.repeats, 1, scale.seconds)["job"]

    def time_captured(self, run: Callable[[], tuple]) -> Spread:
        """Return the spread of a captured run's seconds."""
        replay, _ = self.captured(run)
        return self.time(replay)

    def random(self, *shape: int, std: float = 1.0) -> torch.Tensor:
        """Return normal random numbers in the dtype of the bench."""
        numbers = torch.empty(*shape, dtype=self.dtype, device=self.device)
        return numbers.normal_(std=std)

    def model(self, name: str) -> Transformer:
        """Return a shape of the scale with random weights."""
        return random_transformer(self.scale.models[name], self.device, self.dtype)

    def cache_buffer(self) -> torch.Tensor:
        """Return the buffer that all keys and values of a step are views of."""
        return self.random(self.scale.cache_bytes // self.dtype.itemsize)


def random_transformer(
    config: TransformerConfig, device: torch.device, dtype: torch.dtype
) -> Transformer:
    """Return a model with random weights, for timings, which depend on shapes alone."""
    with torch.device("meta"):
        model = Transformer(config).to(dtype)
    model = model.to_empty(device=device)
    if config.tied:
        model.head.weight = model.embedding.weight
    for name, weight in model.named_parameters():
        torch.nn.init.ones_(weight) if "norm" in name else torch.nn.init.normal_(weight, std=0.02)
    return model.requires_grad_(False)


def spread_row(spread: Spread) -> dict[str, float]:
    """Return a spread as three numbers of a recording, in seconds."""
    return {"seconds": spread.median, "low": spread.low, "high": spread.high}
