"""Passes of fixed shape: static buffers, and on a GPU one captured graph for each length of pass.

At batch 1 a GPU finishes a small kernel sooner than Python can launch the next one. A captured CUDA
graph replays all kernels of a pass with one launch, but it replays them on the same addresses with
the same shapes. So everything that changes from pass to pass lies in tensors: the tokens, where
they go, what they may see. Attention runs over the whole capacity. What lives here: `StaticLM`, the
same `CausalLM.score` on such passes. What does not: sampling on the device (`on_device`). The path
without graphs runs on any device and gives what the growing one gives; only `_capture` needs a GPU.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from specdec_lite.checks import is_whole
from specdec_lite.engine.cache import Cache, Layer, Scores, additive
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.native import NativeBackend, NativeStorage
from specdec_lite.engine.transformer import Storage, Transformer
from specdec_lite.tree import TokenTree

SIZES = (1, 2, 3, 5, 9, 17, 33, 65)
"""Lengths of pass that are captured: 1 (plain decoding, drafting), 2 (drafting after a fully
accepted block), γ + 1, trees.
"""


class StaticLM(CausalLM):
    """A native model whose short passes have fixed shapes: `score` as in `CausalLM`, the same
    logits to within rounding.

    model: a `CausalLM` over one of our own transformers; its weights are shared. capacity: tokens a
    cache can hold, every pass reading all of them, so no larger than needed. sizes: lengths of
    pass; a pass is padded to the next of them, and a longer one (a prompt) runs as it does in
    `CausalLM`. capture: as CUDA graphs; None: wherever the model is on a GPU. max_positions is what
    fits the capacity beside the longest pass, so no drafted tree may be longer. TypeError for a
    model of Hugging Face, ValueError for sizes or a capacity that cannot work.
    """

    def __init__(
        self,
        model: CausalLM,
        capacity: int = 1024,
        sizes: Sequence[int] = SIZES,
        capture: bool | None = None,
    ):
        if not isinstance(model, CausalLM) or not isinstance(model.model, Transformer):
            raise TypeError(
                f"model is {model!r}: static passes need a CausalLM over one of our own"
                " transformers"
            )
        sizes = tuple(sorted(set(sizes)))
        if not sizes or not all(map(is_whole, sizes)) or sizes[0] < 1:
            raise ValueError(f"sizes={sizes}: must be whole numbers ≥ 1")
        if not is_whole(capacity) or not sizes[-1] < capacity <= model.max_positions:
            raise ValueError(
                f"capacity={capacity}: must be a whole number above the longest pass, {sizes[-1]},"
                f" and at most the model's {model.max_positions} positions"
            )
        super().__init__(model.model)
        capture = self.device.type == "cuda" if capture is None else capture
        if capture and self.device.type != "cuda":
            raise ValueError(
                f"capture=True: the model is on {self.device}, and CUDA graphs need a CUDA device"
            )
        self.backend = StaticBackend(model.model, capacity, sizes, capture)
        self.max_positions = capacity - sizes[-1]
        self.longest_pass = sizes[-1]


class StaticBackend(NativeBackend):
    """Chooses the program of a pass. Slots (storage with its programs) are used again when a cache
    is gone: capture once. A captured graph reads the addresses that it was captured with, so slots
    serve only the weights that they were made for: after a change of dtype or
    `load_state_dict(assign=True)` new ones are made, and the old ones are forgotten.
    """

    def __init__(self, model: Transformer, capacity: int, sizes: tuple[int, ...], capture: bool):
        super().__init__(model)
        self.capacity = capacity
        self.sizes = sizes
        self.capture = capture
        self.weights: tuple = ()
        self.free: dict[int, list[Slot]] = {}

    def storage(self, batch: int, capacity: int) -> "StaticStorage":
        weights = tuple((w.data_ptr(), w.dtype, w.device) for w in self.model.parameters())
        if weights != self.weights:
            self.weights = weights
            self.free = {}
        free = self.free.setdefault(batch, [])
        slot = free.pop() if free else Slot(self.model, batch, self.capacity, self.capture)
        storage = StaticStorage(slot)
        weakref.finalize(storage, free.append, slot)
        return storage

    def score(
        self,
        tokens: Tensor,
        cache: Cache,
        tree: TokenTree | None,
        hidden_layers: Sequence[Layer],
        last: bool,
        cached: int = 0,
        states: tuple[int, Tensor] | None = None,
        logits: bool = True,
    ) -> Scores:
        count = tokens.shape[1]
        size = next((size for size in self.sizes if size >= count), None)
        whole = cache.layers is None and not cache.skip and not cache.shift and states is None
        fed = tree is None or len(tree) < count  # the root too
        if size is None or not whole or not fed or cache.length + size > self.capacity:
            return super().score(tokens, cache, tree, hidden_layers, last, cached, states, logits)
        program = cache.storage.slot.program(size, tuple(hidden_layers))
        made, hidden = program(tokens, cache.length, tree)
        rows = slice(count - 1 if last else 0, count if logits else 0)
        hidden = {layer: states[:, :count].clone() for layer, states in hidden.items()}
        return Scores(made[:, rows].clone(), hidden)


class StaticStorage(NativeStorage):
    """What a cache holds: a slot on loan. Emptied, because a masked NaN of an earlier text would
    still spoil a sum.
    """

    def __init__(self, slot: "Slot"):
        self.slot = slot
        self.model = slot.model
        self.batch = slot.batch
        self.tensors = slot.tensors
        with torch.inference_mode():  # allowed for tensors made in any mode
            self.tensors.keys.zero_()
            self.tensors.values.zero_()

    def reserve(self, capacity: int) -> None:
        if capacity > self.tensors.capacity:
            raise ValueError(
                f"the cache would hold {capacity} tokens: this StaticLM was made with"
                f" capacity={self.tensors.capacity}"
            )


class Slot:
    """Keys and values of one sequence (or batch), and the programs that read and write exactly
    these tensors.
    """

    def __init__(self, model: Transformer, batch: int, capacity: int, capture: bool):
        weight = model.embedding.weight
        self.model = model
        self.batch = batch
        self.capture = capture
        self.tensors = Storage(model.config, batch, capacity, weight.device, weight.dtype)
        self.programs: dict[tuple, Program] = {}

    def program(self, size: int, hidden_layers: tuple[Layer, ...]) -> "Program":
        key = size, hidden_layers
        if key not in self.programs:
            self.programs[key] = Program(
                self.model, self.tensors, self.batch, size, hidden_layers, self.capture
            )
        return self.programs[key]


class Program:
    """One length of pass over static buffers: fill them, run (or replay) the pass, read its logits.

    Buffers: tokens [B, size]; start [1], the length of the cache; depth [size], each token's
    position after the start; allowed [size, size], which of the fed tokens each may see.
    """

    def __init__(
        self,
        model: Transformer,
        tensors: Storage,
        batch: int,
        size: int,
        hidden_layers: tuple[Layer, ...],
        capture: bool,
    ):
        device = model.embedding.weight.device
        self.model = model
        self.tensors = tensors
        self.hidden_layers = hidden_layers
        self.capture = capture
        self.tokens = torch.zeros(batch, size, dtype=torch.long, device=device)
        self.start = torch.zeros(1, dtype=torch.long, device=device)
        self.depth, self.allowed = (x.clone() for x in shape_of(size, None, size, device))
        self.count = torch.arange(size, device=device)
        self.places = torch.arange(tensors.capacity, device=device)
        self.shaped: tuple = (None, size)
        self.replay: Callable[[], object] | None = None

    def __call__(
        self, tokens: Tensor, length: int, tree: TokenTree | None
    ) -> tuple[Tensor, dict[Layer, Tensor]]:
        """Score tokens [B, n ≤ size] after `length` cached ones: the static logits [B, size, V],
        good until the next call.
        """
        self.tokens[:, : tokens.shape[1]].copy_(tokens)
        self.start.fill_(length)
        wanted = (None, self.tokens.shape[1]) if tree is None else (tree.parents, tokens.shape[1])
        if wanted != self.shaped:
            for buffer, value in zip(
                (self.depth, self.allowed),
                shape_of(self.tokens.shape[1], *wanted, self.tokens.device),
            ):
                buffer.copy_(value)
            self.shaped = wanted
        if not self.capture:
            return self.run()
        if self.replay is None:
            self.replay, self.out = _capture(self.run, self.tokens.device)
        self.replay()
        return self.out

    def bias(self) -> Tensor:
        """The additive mask [size, capacity], computed on the device: what is cached, and of the
        fed tokens the allowed ones.
        """
        place, size = self.places - self.start, len(self.count)
        inside = self.allowed[:, place.clamp(0, size - 1)] & (place < size)
        mask = (place < 0) | inside
        if self.model.config.window is not None:
            position = torch.where(
                place < 0, self.places, self.start + self.depth[place.clamp(0, size - 1)]
            )
            mask = mask & (position > (self.start + self.depth)[:, None] - self.model.config.window)
        return additive(mask, self.tensors.keys.dtype)

    def run(self) -> tuple[Tensor, dict[Layer, Tensor]]:
        """The pass itself: tensors of fixed shape in, tensors of fixed shape out, no value read by
        the host.
        """
        hidden = dict.fromkeys(self.hidden_layers)
        logits = self.model(
            self.tokens,
            self.tensors,
            self.start + self.count,
            self.start + self.depth,
            self.bias(),
            None,
            hidden,
        )
        return logits, hidden


@lru_cache(maxsize=256)
def shape_of(
    size: int, parents: tuple[int, ...] | None, count: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """(depth [size], allowed [size, size]) of a pass whose first `count` tokens end in a tree with
    these parents (None: a chain).

    Padding stands behind the fed tokens, sees itself and what came before it, and is seen by none
    of them.
    """
    depth = torch.arange(size)
    allowed = torch.ones(size, size, dtype=torch.bool).tril()
    if parents:
        nodes = slice(count - len(parents), count)
        tree = TokenTree([0] * len(parents), parents)
        depth[nodes], allowed[nodes, nodes] = nodes.start + tree.depth, tree.mask
    return depth.to(device), allowed.to(device)


def _capture(
    run: Callable[[], object], device: torch.device
) -> tuple[Callable[[], object], object]:
    """Record the kernels of `run` as a CUDA graph: (its replay, its static outputs). Needs a CUDA
    device.

    The three runs before it let libraries choose their kernels and allocate; they write the cache
    entries that the pass itself will write, so they leave no trace.
    """
    with torch.cuda.device(device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            out = run()
    return graph.replay, out
