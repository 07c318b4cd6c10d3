"""What goes into a pass and what comes out: the cache that is cut back, masks and positions of a
tree, the scores.

Shapes: B batch (1 in `generate`), n tokens fed, V vocabulary, d hidden size. Layer names: 0 =
embedding, b = after block b, "final" = after the final norm (what enters the head). What does not
live here: the passes themselves (`native`, `hugging_face`) and the one call in front of both
(`models`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec_lite.checks import is_whole
from specdec_lite.tree import TokenTree

Layer = int | str


@dataclass(frozen=True, slots=True)
class Scores:
    """What a pass returns: logits [B, n, V], and hidden states [B, n, d] by layer name for the
    layers asked for.
    """

    logits: Tensor
    hidden: dict[Layer, Tensor] = field(default_factory=dict)

    def along(self, path: Sequence[int]) -> "Scores":
        """The rows of the root and of the accepted nodes, when what was fed is [root] +
        tree.tokens.
        """
        prefix = tuple(path) == tuple(
            range(len(path))
        )  # a slice: no index has to travel to the device
        rows = (
            slice(0, len(path) + 1)
            if prefix
            else torch.tensor([0, *(node + 1 for node in path)], device=self.logits.device)
        )
        return Scores(
            self.logits[:, rows], {layer: states[:, rows] for layer, states in self.hidden.items()}
        )


class Cache:
    """Keys and values of the tokens scored so far: `length` of them. Cut back with `keep` or
    `crop`.

    A view (`view(layers=E)`) shares the storage of the first E layers and has a length of its own:
    what an early exit drafts with.
    """

    def __init__(self, storage, batch: int = 1, layers: int | None = None):
        self.storage = storage
        self.batch = batch
        self.layers = layers
        self.length = 0
        self.before_last_pass = 0

    @torch.inference_mode()
    def keep(self, indices: Sequence[int]) -> None:
        """Of the tokens of the last pass keep those at `indices` (ascending, 0 = its first token),
        in that order.
        """
        start, indices = self.before_last_pass, list(indices)
        fed = self.length - start
        if any(not 0 <= i < fed for i in indices) or any(
            a >= b for a, b in zip(indices, indices[1:])
        ):
            raise ValueError(
                f"indices={indices}: must ascend within the last pass, which fed {fed} tokens"
            )
        if indices != list(range(len(indices))):
            self.storage.move(start, torch.tensor(indices))
        self.crop(start + len(indices))

    @torch.inference_mode()
    def crop(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"length={length}: the cache holds {self.length} tokens")
        self.length = length
        self.before_last_pass = min(self.before_last_pass, length)
        self.storage.cut(length)

    def view(self, layers: int) -> "Cache":
        """The first `layers` layers of this cache: the same storage, a length of its own.
        ValueError for a model of Hugging Face.
        """
        if not self.storage.by_layer:
            raise ValueError(
                "view(layers=…) needs a native model: Hugging Face modules run all their layers,"
                " and cutting their cache cuts all of it"
            )
        there = len(self.storage.tensors.keys)
        if not is_whole(layers) or not 1 <= layers <= there:
            raise ValueError(f"layers={layers!r}: must be a whole number from 1 to {there}")
        other = Cache(self.storage, self.batch, layers)
        other.length = other.before_last_pass = self.length
        return other


def visible(
    length: int, count: int, tree: TokenTree | None, window: int | None, positions: Tensor
) -> Tensor:
    """Which keys each fed token may see: bool [n, length + n].

    Everything stored, itself, earlier fed tokens, and in the tree's part (the last len(tree)
    tokens) ancestors only. window: also nothing `window` or more positions back. positions: [n] of
    the fed tokens.
    """
    mask = torch.ones(count, length + count, dtype=torch.bool, device=positions.device).tril(length)
    if tree is not None and len(tree):
        mask[-len(tree) :, -len(tree) :] = tree.mask.to(mask.device)
    if window is not None:
        keys = torch.cat((torch.arange(length, device=positions.device), positions))
        mask &= keys[None, :] > positions[:, None] - window
    return mask


def tree_positions(length: int, count: int, tree: TokenTree | None, device) -> Tensor:
    """Position ids [n] of the fed tokens: consecutive, and in the tree's part the root's position
    plus depth plus one.
    """
    positions = torch.arange(length, length + count, device=device)
    if tree is not None and len(tree):
        positions[-len(tree) :] = positions[-len(tree) - 1] + 1 + tree.depth.to(device)
    return positions


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask as the number added to attention scores: 0 where visible, the dtype's most
    negative number elsewhere.
    """
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(
        ~mask, torch.finfo(dtype).min
    )
