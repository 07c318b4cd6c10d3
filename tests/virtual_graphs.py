"""CUDA graphs of the virtual GPU (`virtual_gpu`): operators recorded once and run again."""

from contextlib import contextmanager

import torch
import virtual_card
from torch import Tensor
from virtual_card import CaptureError, Card, leaves


def card() -> Card:
    """Return the installed card."""
    return virtual_card.CARD


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class Recording:
    """The operators of one captured graph, on the data of their tensors.

    Attributes:
        outside: storages that the graph reads or writes and did not allocate, with the line of the
            project where each is first used.
        before_capture: what the graph wrote outside, as it was: capturing runs nothing.
    """

    def __init__(self):
        self.operators: list[tuple] = []
        self.inside: set[int] = set()
        self.outside: dict[int, str] = {}
        self.before_capture: list[tuple[Tensor, Tensor]] = []

    def before(self, func, args: tuple) -> None:
        for tensor in leaves(args):
            place = storage(tensor) if isinstance(tensor, Tensor) else None
            if place and place not in self.inside and place not in self.outside:
                self.outside[place] = card().site()
        for argument, value in zip(func._schema.arguments, args):
            if argument.is_write and isinstance(value, Tensor):
                if storage(value) not in self.inside:
                    self.before_capture.append((value, value.clone()))

    def after(self, func, args: tuple, kwargs: dict, out) -> None:
        read = {storage(x) for x in leaves((args, kwargs)) if isinstance(x, Tensor)}
        fresh = [x for x in leaves(out) if isinstance(x, Tensor) and storage(x) not in read]
        self.inside |= {storage(x) for x in fresh}
        if fresh or func._schema.is_mutable:
            self.operators.append((func, args, kwargs, out if fresh else None))
        else:
            self.operators.append((None, args, kwargs, out))  # a view: its storage stays in use

    def end(self) -> None:
        """Undo what the capture ran: on a card the operators were recorded alone."""
        for target, value in reversed(self.before_capture):
            target.copy_(value)
        for func, _, _, out in self.operators:
            for tensor in leaves(out if func else None):
                if isinstance(tensor, Tensor):
                    tensor.fill_(torch.nan if tensor.is_floating_point() else 1)
        self.before_capture.clear()

    def replay(self) -> None:
        """Run the operators again, and write what they return to the same memory."""
        for place, where in self.outside.items():
            if place not in card().blocks and place not in card().pinned:
                raise RuntimeError(f"a replayed graph uses freed memory, first used at {where}")
        for func, args, kwargs, out in self.operators:
            if func is None:
                continue
            again = func(*args, **kwargs)
            for target, value in zip(leaves(out), leaves(again)) if out is not None else ():
                if isinstance(target, Tensor):
                    target.copy_(value)


class CUDAGraph:
    """A captured graph of the card."""

    def __init__(self, keep_graph: bool = False):
        self.recording = None

    def capture_begin(self, pool=None, capture_error_mode: str = "global") -> None:
        if card().recording is not None:
            raise CaptureError("a capture is already underway")
        card().recording = self.recording = Recording()

    def capture_end(self) -> None:
        card().recording = None
        self.recording.end()
        card().counts["capture"] += 1

    def replay(self) -> None:
        card().refuse_in_capture("CUDAGraph.replay")
        card().counts["replay"] += 1
        card().launched += 1
        self.recording.replay()


@contextmanager
def graph(cuda_graph: CUDAGraph, pool=None, stream=None, capture_error_mode: str = "global"):
    """Capture what runs inside, as `torch.cuda.graph` does."""
    torch.cuda.synchronize()
    cuda_graph.capture_begin(pool)
    try:
        yield
    except BaseException:
        card().recording = None
        raise
    cuda_graph.capture_end()
