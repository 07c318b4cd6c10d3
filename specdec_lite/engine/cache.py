"""What goes into a pass and what comes out: the cache that is cut back, masks and positions of a
tree, the scores.

Shapes: B batch (1 in `generate`), n tokens fed, V vocabulary, d hidden size. Layer names: 0 =
embedding, b = after block b, "final" = after the final norm (what enters the head). What does not
live here: the passes themselves (`native`, `hugging_face`) and the one call in front of both
(`models`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec_lite.checks import whole
from specdec_lite.tree import TokenTree

Layer = int | str
SUBLAYERS = ("attention", "mlp")


@dataclass(frozen=True, slots=True)
class Scores:
    """What a pass returns: logits [B, n, V], and hidden states [B, n, d] by layer name for the
    layers asked for.
    """

    logits: Tensor
    hidden: dict[Layer, Tensor] = field(default_factory=dict)

    def detached(self) -> "Scores":
        """Ordinary copies of what a pass in inference mode returned: a loss may be computed on
        them.
        """
        hidden = {layer: states.clone() for layer, states in self.hidden.items()}
        return Scores(self.logits.clone(), hidden)

    def along(self, path: Sequence[int]) -> "Scores":
        """The rows of the root and of the accepted nodes, when what was fed is [root] +
        tree.tokens.
        """
        if tuple(path) == tuple(range(len(path))):
            rows = slice(0, len(path) + 1)  # no index has to travel to the device
        else:
            rows = torch.tensor([0, *(node + 1 for node in path)], device=self.logits.device)
        hidden = {layer: states[:, rows] for layer, states in self.hidden.items()}
        return Scores(self.logits[:, rows], hidden)


class Cache:
    """Keys and values of the tokens scored so far: `length` of them. Cut back with `keep` or
    `crop`.

    root: the slot of the root of the tree that was scored last; where no tree was, of the first
    token of the last pass. What was fed since then is what `keep` chooses from.
    shift: the position of the next token minus `length`; above 0 in a cache that `select` made.
    """

    def __init__(
        self,
        storage,
        batch: int = 1,
        layers: int | None = None,
        skip: Collection[tuple[int, str]] = (),
    ):
        self.storage = storage
        self.batch = batch
        self.layers = layers
        self.skip = frozenset(skip)
        self.length = 0
        self.root = 0
        self.shift = 0
        self.selected: Tensor | None = None  # true positions of the entries that were copied

    @torch.inference_mode()
    def keep(self, indices: Sequence[int]) -> None:
        """Of what was fed since the root keep the entries at `indices` (ascending, 0 = the root),
        in that order.
        """
        indices = list(indices)
        fed = self.length - self.root
        ascending = all(a < b for a, b in zip(indices, indices[1:]))
        if not ascending or any(not 0 <= i < fed for i in indices):
            raise ValueError(
                f"indices={indices}: must ascend within the last pass, which fed {fed} tokens"
            )
        if indices != list(range(len(indices))):
            self.storage.move(self.root, torch.tensor(indices))
        self.crop(self.root + len(indices))

    @torch.inference_mode()
    def crop(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"length={length}: the cache holds {self.length} tokens")
        self.length = length
        self.root = min(self.root, length)
        self.storage.cut(length)

    def view(self, layers: int | None = None, skip: Collection[tuple[int, str]] = ()) -> "Cache":
        """The first layers, or all but some sublayers, of the same storage, with a length of its
        own: what a target drafts with by itself.

        Args:
            layers: how many; None: all.
            skip: sublayers that a pass leaves out, as (block from 0, "attention" or "mlp").

        ValueError for a model of Hugging Face, and for layers that there are not.
        """
        self._needs_native("view")
        there = len(self.storage.tensors.keys)
        if layers is not None:
            whole("layers", layers, 1, there)
        other = Cache(self.storage, self.batch, layers, sublayers(skip, there))
        other.length = other.root = self.length
        other.shift = self.shift
        other.selected = self.selected
        return other

    @torch.inference_mode()
    def select(self, slots: Sequence[int], room: int = 16) -> "Cache":
        """A small copy of the entries at `slots` (ascending); what is fed to it afterwards keeps
        its true positions.

        A copy, not a mask: attention reads fewer keys, and what is drafted with it cannot land in
        this cache. room: tokens to make room for behind them (a hint). ValueError for a model of
        Hugging Face, and for slots that are not there.
        """
        self._needs_native("select")
        slots = list(slots)
        ascending = all(a < b for a, b in zip(slots, slots[1:]))
        if not ascending or any(not 0 <= slot < self.length for slot in slots):
            raise ValueError(f"slots={slots}: must ascend within 0 … {self.length - 1}")
        other = Cache(self.storage.copy(slots, room), self.batch, self.layers, self.skip)
        other.length = other.root = len(slots)
        other.shift = self.length + self.shift - len(slots)
        other.selected = self.positions()[slots]
        return other

    def keys(self, layer: int) -> Tensor:
        """The keys [B, G, length, h] that a layer (from 0) has stored, turned to their positions: to
        be looked at. ValueError for a model of Hugging Face.
        """
        self._needs_native("keys")
        whole("layer", layer, 0, len(self.storage.tensors.keys) - 1)
        return self.storage.tensors.keys[layer][:, :, : self.length]

    def positions(self) -> Tensor:
        """True positions [length] of the stored entries, those of a drafted tree not counted."""
        positions = torch.arange(self.length) + self.shift
        if self.selected is not None:
            count = min(len(self.selected), self.length)
            positions[:count] = self.selected[:count]
        return positions

    def _needs_native(self, name: str) -> None:
        if not self.storage.by_layer:
            raise ValueError(
                f"{name}(…) needs a native model: Hugging Face modules run all their layers, and"
                " cutting their cache cuts all of it"
            )


def sublayers(skip: Collection[tuple[int, str]], layers: int) -> frozenset[tuple[int, str]]:
    """Sublayers to leave out of a model of so many layers, as (block from 0, "attention" or "mlp").
    ValueError for one that there is not.
    """
    for block, sublayer in skip:
        whole("skip's block", block, 0, layers - 1)
        if sublayer not in SUBLAYERS:
            raise ValueError(f"skip holds {sublayer!r}: must be one of {SUBLAYERS}")
    return frozenset(skip)


def visible(
    length: int,
    count: int,
    tree: TokenTree | None,
    window: int | None,
    positions: Tensor,
    cached: int = 0,
    stored: Tensor | None = None,
) -> Tensor:
    """Which keys each fed token may see: bool [n, length + n].

    Everything stored, itself, earlier fed tokens, and in the tree's part (the last len(tree)
    entries, the first `cached` of which are stored already) ancestors only. window: also nothing
    `window` or more positions back. positions: [n] of the fed tokens; stored: [length] of the
    stored ones, None: 0, 1, 2 …
    """
    mask = torch.ones(count, length + count, dtype=torch.bool, device=positions.device).tril(length)
    if tree is not None and len(tree):
        mask[cached - len(tree) :, -len(tree) :] = tree.mask[cached:].to(mask.device)
    if window is not None:
        keys = torch.arange(length) if stored is None else stored
        keys = torch.cat((keys.to(positions.device), positions))
        if cached:
            depth = tree.depth.to(positions.device)
            root = positions[-1] - 1 - depth[-1]
            keys[length - cached : length] = root + 1 + depth[:cached]
        mask &= keys[None, :] > positions[:, None] - window
    return mask


def tree_positions(
    length: int, count: int, tree: TokenTree | None, device, cached: int = 0, shift: int = 0
) -> Tensor:
    """Position ids [n] of the fed tokens: consecutive from `length + shift`, and in the tree's
    part, whose first `cached` nodes are stored already, the root's position plus depth plus one.
    """
    positions = torch.arange(length, length + count, device=device) + shift
    if tree is not None and len(tree):
        after_root = length + shift + count - len(tree)
        positions[cached - len(tree) :] = after_root + tree.depth[cached:].to(device)
    return positions


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask as the number added to attention scores: 0 where visible, the dtype's most
    negative number elsewhere.
    """
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(
        ~mask, torch.finfo(dtype).min
    )
