"""Passes of fixed shape: static buffers, and on a GPU one captured graph for each length of pass.

At batch 1 a GPU finishes a small kernel sooner than Python can launch the next one. A captured CUDA
graph replays all kernels of a pass with one launch, but it replays them on the same addresses with
the same shapes. So everything that changes from pass to pass lies in tensors: the tokens, where
they go, what they may see. Attention runs over the whole capacity. What lives here: `StaticLM`, the
same `CausalLM.score` on such passes. What does not: sampling on the device (`on_device`), and the
draft of a whole round as one graph (`whole_draft`). The path without graphs runs on any device and
gives what the growing one gives; only `Capture` needs a GPU.
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
        self.captures = capture
        self.capture: Callable | None = None
        self.weights: tuple = ()
        self.free: dict[int, list[Slot]] = {}

    def storage(self, batch: int, capacity: int) -> "StaticStorage":
        weights = tuple((w.data_ptr(), w.dtype, w.device) for w in self.model.parameters())
        if weights != self.weights:
            self.weights = weights
            self.free = {}
            self.capture = Capture(self.embedding.weight.device) if self.captures else None
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
        program = cache.storage.slot.program(size, tuple(hidden_layers), tree is not None)
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

    def __init__(
        self, model: Transformer, batch: int, capacity: int, capture: "Callable | None" = None
    ):
        weight = model.embedding.weight
        self.model = model
        self.batch = batch
        self.capture = capture
        self.tensors = Storage(model.config, batch, capacity, weight.device, weight.dtype)
        self.programs: dict[tuple, Callable] = {}

    def program(self, size: int, hidden_layers: tuple[Layer, ...], tree: bool) -> "Program":
        key = size, hidden_layers, tree
        if key not in self.programs:
            made = TreeProgram if tree else Program
            self.programs[key] = made(self, size, hidden_layers)
        return self.programs[key]


class Program:
    """One length of pass over static buffers: fill them, run (or replay) the pass, read its logits.

    Buffers: tokens [B, size]; start [1], the length of the cache. This one scores chains, whose
    masks are rows of one table.
    """

    def __init__(self, slot: Slot, size: int, hidden_layers: tuple[Layer, ...] = ()):
        device = slot.tensors.keys.device
        self.slot = slot
        self.hidden_layers = hidden_layers
        self.tokens = torch.zeros(slot.batch, size, dtype=torch.long, device=device)
        self.start = torch.zeros(1, dtype=torch.long, device=device)
        self.count = torch.arange(size, device=device)
        self.table = causal(
            slot.tensors.capacity, slot.model.config.window, slot.tensors.keys.dtype, device
        )
        self.replay: Callable[[], object] | None = None

    def __call__(
        self, tokens: Tensor, length: int, tree: TokenTree | None = None
    ) -> tuple[Tensor, dict[Layer, Tensor]]:
        """Score tokens [B, n ≤ size] after `length` cached ones: the static logits [B, size, V],
        good until another program of the model is called.
        """
        self.tokens[:, : tokens.shape[1]].copy_(tokens)
        self.start.fill_(length)
        return self.once_more()

    def once_more(self) -> tuple:
        """Run on what the buffers hold now; on a GPU by replaying the captured run."""
        if self.slot.capture is None:
            return self.run()
        if self.replay is None:
            self.replay, self.out = self.slot.capture(self.run)
        self.replay()
        return self.out

    def bias(self, slots: Tensor) -> Tensor:
        """The additive mask [size, capacity] of tokens at these slots [size]: made on the device."""
        return self.table.index_select(0, slots)

    def positions(self, slots: Tensor) -> Tensor:
        """Where in the text the tokens stand [size]."""
        return slots

    def run(self) -> tuple[Tensor, dict[Layer, Tensor]]:
        """The pass itself: tensors of fixed shape in, tensors of fixed shape out, no value read by
        the host.
        """
        hidden = dict.fromkeys(self.hidden_layers)
        slots = self.start + self.count
        positions, bias = self.positions(slots), self.bias(slots)
        logits = self.slot.model(
            self.tokens, self.slot.tensors, slots, positions, bias, None, hidden
        )
        return logits, hidden


class TreeProgram(Program):
    """A pass that ends in a tree. Two buffers more, filled where the tree is not that of the last
    call: depth [size], each token's position after the start; allowed [size, size], which of the
    fed tokens each may see.
    """

    def __init__(self, slot: Slot, size: int, hidden_layers: tuple[Layer, ...] = ()):
        super().__init__(slot, size, hidden_layers)
        self.places = torch.arange(slot.tensors.capacity, device=self.start.device)
        self.depth, self.allowed = (x.clone() for x in shape_of(size, (), size, self.start.device))
        self.shaped: tuple = ((), size)

    def __call__(
        self, tokens: Tensor, length: int, tree: TokenTree | None = None
    ) -> tuple[Tensor, dict[Layer, Tensor]]:
        shaped = tree.parents, tokens.shape[1]
        if shaped != self.shaped:
            made = shape_of(self.tokens.shape[1], *shaped, self.tokens.device)
            for buffer, value in zip((self.depth, self.allowed), made):
                buffer.copy_(value)
            self.shaped = shaped
        return super().__call__(tokens, length)

    def positions(self, slots: Tensor) -> Tensor:
        return self.start + self.depth

    def bias(self, slots: Tensor) -> Tensor:
        """What is cached, and of the fed tokens the allowed ones."""
        place, size = self.places - self.start, len(self.count)
        inside = self.allowed[:, place.clamp(0, size - 1)] & (place < size)
        mask = (place < 0) | inside
        window = self.slot.model.config.window
        if window is not None:
            there = torch.where(
                place < 0, self.places, self.start + self.depth[place.clamp(0, size - 1)]
            )
            mask = mask & (there > self.positions(slots)[:, None] - window)
        return additive(mask, self.slot.tensors.keys.dtype)


@lru_cache(maxsize=8)
def causal(capacity: int, window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The additive masks [capacity, capacity] of a chain's tokens, a row for each place in a cache:
    looked up in every pass, in place of being computed.
    """
    with torch.inference_mode(False):
        mask = torch.ones(capacity, capacity, dtype=torch.bool, device=device).tril()
        if window is not None:
            mask &= ~mask.tril(-window)
        return additive(mask, dtype)


@lru_cache(maxsize=256)
def shape_of(
    size: int, parents: tuple[int, ...], count: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """(depth [size], allowed [size, size]) of a pass whose first `count` tokens end in a tree with
    these parents.

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


class Capture:
    """Records runs of one model as CUDA graphs, on one side stream and in one pool of memory.

    The graphs share what they need while they run, so what one returns is good until another is
    replayed. Needs a CUDA device.
    """

    def __init__(self, device: torch.device):
        self.device = device
        with torch.cuda.device(device):
            self.stream = torch.cuda.Stream()
            self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], object]) -> tuple[Callable[[], object], object]:
        """Record the kernels of `run`: (its replay, its static outputs).

        The three runs before it let libraries choose their kernels and allocate; they write the
        cache entries that the pass itself will write, so they leave no trace.
        """
        with torch.cuda.device(self.device):
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                for _ in range(3):
                    run()
            torch.cuda.current_stream().wait_stream(self.stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                out = run()
        return graph.replay, out
