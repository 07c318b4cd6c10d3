"""Passes over static buffers and, on a GPU, one captured graph for each.

At batch 1 a GPU finishes a small kernel before Python can launch the next one. A captured CUDA graph
launches all kernels of a pass together, but always on the same addresses with the same shapes. So
everything that changes from pass to pass is stored in tensors: the tokens, their slots, and their
mask. Attention runs over the whole capacity. Only `Capture` needs a GPU.
"""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from specdec_lite.engine.cache import Layer, additive, round_up
from specdec_lite.engine.native import Storage
from specdec_lite.engine.transformer import Transformer
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree

Recorder = Callable[[Callable[[], tuple]], tuple[Callable[[], object], tuple]]
"""Such as `Capture`: runs a computation once, and returns (its replay, its static outputs)."""


class Slot:
    """Keys and values of one sequence or batch, and the programs that use exactly these tensors.

    Args:
        model: the transformer.
        batch: number of sequences.
        capacity: number of tokens per sequence.
        capture: records programs as graphs; None: programs run without a graph.
    """

    def __init__(
        self, model: Transformer, batch: int, capacity: int, capture: Recorder | None = None
    ):
        self.model = model
        self.batch = batch
        self.capture = capture
        # Masks are as wide as the storage, and wide masks must be aligned.
        capacity = round_up(capacity)
        self.tensors = Storage.zeros(model, batch, capacity)
        self.programs: dict[tuple, Program] = {}

    def program(self, size: int, hidden_layers: tuple[Layer, ...], tree: bool) -> "PassProgram":
        """Return the program of a pass, made at the first call."""
        key = size, hidden_layers, tree
        if key not in self.programs:
            kind = TreeProgram if tree else PassProgram
            self.programs[key] = kind(self, size, hidden_layers)
        program = self.programs[key]
        assert isinstance(program, PassProgram)
        return program


class Program:
    """A computation over static buffers: fill them, then run or replay it.

    Args:
        slot: whose keys and values it uses.
        size: number of tokens fed to its first pass.

    Attributes:
        tokens: buffer [B, size] of the ids.
        start: buffer [1] of the cache's length.
        table: additive causal masks [capacity, capacity], one row per slot.
        replay: replays the captured run; None: not captured yet.
        out: the captured run's static outputs.
    """

    def __init__(self, slot: Slot, size: int):
        device = slot.tensors.keys.device
        self.slot = slot
        self.tokens = torch.zeros(slot.batch, size, dtype=torch.long, device=device)
        self.start = torch.zeros(1, dtype=torch.long, device=device)
        self.count = torch.arange(size, device=device)
        self.table = causal(
            slot.tensors.capacity, slot.model.config.window, slot.tensors.keys.dtype, device
        )
        self.replay: Callable[[], object] | None = None
        self.out: tuple = ()

    def run(self) -> tuple:
        """Return the result: tensors of fixed shape. The host reads no value back."""
        raise NotImplementedError

    def execute(self) -> tuple:
        """Return the result for the buffers' contents; on a GPU by replaying the captured run."""
        if self.slot.capture is None:
            return self.run()
        if self.replay is None:
            self.replay, self.out = self.slot.capture(self.run)
        self.replay()
        return self.out

    def bias(self, slots: Tensor) -> Tensor:
        """Return the additive mask [n, capacity] of a chain's tokens, made on the device.

        Shapes: slots [n].
        """
        return self.table.index_select(0, slots)


class PassProgram(Program):
    """A pass over a chain.

    Args:
        slot: whose keys and values it uses.
        size: number of tokens fed.
        hidden_layers: the hidden states to return.
    """

    def __init__(self, slot: Slot, size: int, hidden_layers: tuple[Layer, ...] = ()):
        super().__init__(slot, size)
        self.hidden_layers = hidden_layers

    def __call__(
        self, tokens: Tensor, length: int, tree: TokenTree | None = None
    ) -> tuple[Tensor, dict[Layer, Tensor]]:
        """Return the static logits [B, size, V] and hidden states [B, size, d].

        They are valid until another program of the model is called.
        """
        self.tokens[:, : tokens.shape[1]].copy_(tokens)
        self.start.fill_(length)
        return self.execute()

    def positions(self, slots: Tensor) -> Tensor:
        """Return the position ids [size] of the tokens."""
        return slots

    def run(self) -> tuple[Tensor, dict]:
        hidden: dict = dict.fromkeys(self.hidden_layers)
        slots = self.start + self.count
        positions, bias = self.positions(slots), self.bias(slots)
        logits = self.slot.model(
            self.tokens, self.slot.tensors, slots, positions, bias, None, hidden
        )
        return logits, hidden


class TreeProgram(PassProgram):
    """A pass whose tokens end in a tree. The tree is uploaded when it differs from the last one.

    Args:
        slot: whose keys and values it uses.
        size: number of tokens fed.
        hidden_layers: the hidden states to return.

    Attributes:
        depth: buffer [size] of each token's position after the start.
        allowed: buffer [size, size] of which fed tokens each one attends to.
    """

    def __init__(self, slot: Slot, size: int, hidden_layers: tuple[Layer, ...] = ()):
        super().__init__(slot, size, hidden_layers)
        self.all_slots = torch.arange(slot.tensors.capacity, device=self.start.device)
        self.layout: tuple = ((), size)
        depth, allowed = tree_layout(size, *self.layout, self.start.device)
        self.depth = depth.clone()
        self.allowed = allowed.clone()

    def __call__(
        self, tokens: Tensor, length: int, tree: TokenTree | None = None
    ) -> tuple[Tensor, dict[Layer, Tensor]]:
        layout = () if tree is None else tree.parents, tokens.shape[1]
        if layout != self.layout:
            depth, allowed = tree_layout(self.tokens.shape[1], *layout, self.tokens.device)
            self.depth.copy_(depth)
            self.allowed.copy_(allowed)
            self.layout = layout
        return super().__call__(tokens, length)

    def positions(self, slots: Tensor) -> Tensor:
        return self.start + self.depth

    def bias(self, slots: Tensor) -> Tensor:
        """Return the additive mask [size, capacity]: the stored tokens, and the allowed fed ones.

        Shapes: slots [size].
        """
        index, size = self.all_slots - self.start, len(self.count)
        fed = index.clamp(0, size - 1)
        mask = (index < 0) | self.allowed[:, fed] & (index < size)
        window = self.slot.model.config.window
        if window is not None:
            keys = torch.where(index < 0, self.all_slots, self.start + self.depth[fed])
            mask = mask & (keys > self.positions(slots)[:, None] - window)
        return additive(mask, self.slot.tensors.keys.dtype)


@lru_cache(maxsize=8)
def causal(capacity: int, window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the additive masks [capacity, capacity] of a chain: row i for the token in slot i.

    Every pass looks its rows up, which is faster than computing them.
    """
    with torch.inference_mode(False):
        mask = torch.ones(capacity, capacity, dtype=torch.bool, device=device).tril()
        if window is not None:
            mask &= ~mask.tril(-window)
        return additive(mask, dtype)


@lru_cache(maxsize=256)
def tree_layout(
    size: int, parents: tuple[int, ...], count: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return (depth [size], allowed [size, size]) of a pass that ends in a tree.

    Padding follows the fed tokens. It attends to itself and to what precedes it, and no fed token
    attends to it.
    """
    depth = torch.arange(size)
    allowed = torch.ones(size, size, dtype=torch.bool).tril()
    if parents:
        nodes = slice(count - len(parents), count)
        tree = TokenTree([0] * len(parents), parents)
        depth[nodes], allowed[nodes, nodes] = nodes.start + tree.depth, tree.mask
    return upload(depth, device), upload(allowed, device)


class Capture:
    """Records runs of one model as CUDA graphs, on one side stream and in one pool of memory.

    The graphs share their working memory, so one graph's outputs are valid until another is
    replayed. For the same reason two threads may not decode with one `StaticLM` at the same time.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device):
        self.device = device
        with torch.cuda.device(device):
            self.stream = torch.cuda.Stream()
            self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], tuple]) -> tuple[Callable[[], object], tuple]:
        """Record the kernels of a run, and return (its replay, its static outputs).

        Three runs before the recording let libraries choose their kernels and allocate memory. They
        write the cache entries that the pass itself writes, so they leave no trace.
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
