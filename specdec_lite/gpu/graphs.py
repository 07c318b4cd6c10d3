"""`StaticLM`: a model whose passes have fixed shapes, so that CUDA graphs can capture them.

It runs the same `CausalLM.score` with the programs of `programs`, on any device, and gives the
logits of growing passes.
"""

import weakref
from collections.abc import Sequence

import torch

from specdec_lite.checks import is_whole
from specdec_lite.engine.cache import Pass, Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.native import NativeBackend, NativeStorage
from specdec_lite.engine.transformer import Transformer
from specdec_lite.gpu.programs import Capture, Recorder, Slot

SIZES = (1, 2, 3, 5, 9, 17, 33, 65)
"""Lengths of pass to capture: 1 (plain decoding, drafting), 2 (drafting after a fully accepted
block), γ + 1, trees.
"""


class StaticLM(CausalLM):
    """A native model whose short passes have fixed shapes; logits equal `CausalLM`'s to rounding.

    Batches and copies of a cache (`generate_batch`, `Cache.select`) use the growing passes.

    Args:
        model: a `CausalLM` over one of our own transformers; its weights are shared.
        capacity: number of tokens that a cache can hold. Every pass reads all of them, so it should
            be no larger than needed.
        sizes: lengths of pass. A pass is padded to the next length; a longer one (a prompt) is a
            growing pass.

    Attributes:
        max_positions: the positions that fit the capacity beside the longest pass.
        longest_pass: the largest of `sizes`; no drafted tree may be larger.

    Raises:
        TypeError: for a Hugging Face model.
        ValueError: for sizes or a capacity that cannot work.
    """

    def __init__(self, model: CausalLM, capacity: int = 1024, sizes: Sequence[int] = SIZES):
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
        self.end_of_text = model.end_of_text
        self.backend = StaticBackend(model.model, capacity, sizes)
        self.max_positions = capacity - sizes[-1]
        self.longest_pass = sizes[-1]


class StaticBackend(NativeBackend):
    """Chooses the program of a pass, and lends slots (storage with its programs) to caches.

    A slot is reused when its cache is gone, so each program is captured once. A captured graph
    reads the addresses it was captured with, so slots serve only the weights they were made for.
    After a change of dtype or `load_state_dict(assign=True)` new slots are made, and the old ones
    are released.

    Args:
        model: the transformer.
        capacity: number of tokens per sequence.
        sizes: lengths of pass, ascending.

    Attributes:
        captures: whether passes are captured as CUDA graphs: if the model is on a GPU.
    """

    def __init__(self, model: Transformer, capacity: int, sizes: tuple[int, ...]):
        super().__init__(model)
        self.capacity = capacity
        self.sizes = sizes
        self.captures = self.embedding.weight.device.type == "cuda"
        self.capture: Recorder | None = None
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

    def score(self, inputs: Pass) -> Scores:
        size = next((size for size in self.sizes if size >= inputs.count), None)
        if size is None or not self._fits(inputs, size):
            return super().score(inputs)
        slot = inputs.cache.storage.slot
        program = slot.program(size, tuple(inputs.hidden_layers), inputs.tree is not None)
        logits, hidden = program(inputs.tokens, inputs.cache.length, inputs.tree)
        rows = slice(inputs.count - 1 if inputs.last else 0, inputs.count if inputs.logits else 0)
        hidden = {layer: states[:, : inputs.count].clone() for layer, states in hidden.items()}
        return Scores(logits[:, rows].clone(), hidden)

    def _fits(self, inputs: Pass, size: int) -> bool:
        """Return whether a program of this length can run the pass."""
        cache, tree = inputs.cache, inputs.tree
        return (
            isinstance(cache.storage, StaticStorage)
            and cache.layers is None
            and not (cache.skip or cache.shift)
            and inputs.states is None
            and (tree is None or len(tree) < inputs.count)  # the root is fed too
            and cache.length + size <= self.capacity
        )


class StaticStorage(NativeStorage):
    """A cache's storage: a slot on loan, zeroed, because a masked NaN still spoils a sum.

    Args:
        slot: the slot.
    """

    def __init__(self, slot: Slot):
        self.slot = slot
        self.model = slot.model
        self.batch = slot.batch
        self.tensors = slot.tensors
        with torch.inference_mode():  # allows changes to tensors made in any mode
            self.tensors.keys.zero_()
            self.tensors.values.zero_()

    def reserve(self, capacity: int) -> None:
        if capacity > self.tensors.capacity:
            raise ValueError(
                f"the cache would hold {capacity} tokens: this StaticLM has room for"
                f" {self.tensors.capacity}"
            )
