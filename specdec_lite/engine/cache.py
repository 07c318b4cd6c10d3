"""The input and output of a forward pass: the key/value cache, tree masks, positions and scores.

Shapes: B batch (1 in `generate`), n tokens fed, V vocabulary, d hidden size, G key/value heads, h
head size. Layer names: 0 = embedding, b = after block b, "final" = after the final norm (the head's
input).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec_lite.checks import whole
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree

Layer = int | str
SUBLAYERS = ("attention", "mlp")


@dataclass(frozen=True, slots=True)
class Scores:
    """The result of a pass.

    Attributes:
        logits: [B, n, V].
        hidden: the requested hidden states [B, n, d] by layer name.
    """

    logits: Tensor
    hidden: dict[Layer, Tensor] = field(default_factory=dict)

    def detached(self) -> "Scores":
        """Return copies that a loss may be computed on.

        A pass in inference mode returns inference tensors, which autograd rejects.
        """
        # A clone made outside inference mode is an ordinary tensor.
        return self._each(Tensor.clone)

    def of_row(self, index: int, count: int) -> "Scores":
        """Return the first `count` rows of one sequence of a batch."""
        return self._each(lambda rows: rows[index : index + 1, :count])

    def along(self, path: Sequence[int]) -> "Scores":
        """Return the rows of the root and of the nodes on a path."""
        # The rows of a chain are a prefix.
        if tuple(path) == tuple(range(len(path))):
            kept = slice(0, len(path) + 1)  # a slice needs no index on the device
        else:
            kept = upload([0, *(node + 1 for node in path)], self.logits.device)
        return self._each(lambda rows: rows[:, kept])

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Scores":
        """Return the scores with the logits and all hidden states changed."""
        hidden = {layer: change(states) for layer, states in self.hidden.items()}
        return Scores(change(self.logits), hidden)


class Cache:
    """The keys and values of the tokens scored so far, which `keep` and `crop` cut back.

    Attributes:
        storage: the tensors; of the class that the model's back end makes.
        batch: B.
        layers: number of first layers that a pass runs; None: all.
        skip: sublayers that a pass leaves out.
        length: number of tokens stored.
        root: the slot of the last scored tree's root or, if no tree was scored, of the last pass's
            first token. `keep` chooses among the tokens fed from here on.
        shift: the next token's position minus `length`; above 0 after `select`.
        least: number of first entries that belong to another cache, so that `crop` keeps them.
        selected: true positions of the entries that `select` copied; None: 0, 1, 2 …
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
        self.least = 0
        self.selected: Tensor | None = None

    @torch.inference_mode()
    def keep(self, indices: Iterable[int]) -> None:
        """Keep some of the tokens fed since the root, and remove the others."""
        indices = list(indices)
        fed = self.length - self.root  # from the root on, though a tree may take several passes
        if not ascends(indices, fed):
            raise ValueError(
                f"indices={indices}: must ascend within the last pass, which fed {fed} tokens"
            )
        # A chain keeps a prefix of what was fed: cutting the end off moves no key. The accepted path
        # of a tree lies scattered, and moves together first.
        if indices != list(range(len(indices))):
            self.storage.move(self.root, torch.tensor(indices))
        self.crop(self.root + len(indices))

    @torch.inference_mode()
    def crop(self, length: int) -> None:
        """Remove everything after the first `length` tokens."""
        if not self.least <= length <= self.length:
            owned = f", of which {self.least} belong to another cache" if self.least else ""
            raise ValueError(f"length={length}: the cache holds {self.length} tokens{owned}")
        self.length = length
        self.root = min(self.root, length)
        self.storage.cut(length)

    def view(self, layers: int | None = None, skip: Collection[tuple[int, str]] = ()) -> "Cache":
        """Return a cache on the same storage that has its own length and uses fewer layers.

        A target drafts with such a view when it is its own draft model.
        """
        self._needs_native("view")
        depth = len(self.storage.tensors.keys)
        if layers is not None:
            whole("layers", layers, 1, depth)
        other = Cache(self.storage, self.batch, layers, sublayers(skip, depth))
        # The view may cut what it writes itself, never the entries it found here.
        other.length = other.root = other.least = self.length
        other.shift = self.shift
        other.selected = self.selected
        return other

    @torch.inference_mode()
    def select(self, slots: Iterable[int], room: int = 16) -> "Cache":
        """Return a small copy that holds some entries; tokens fed to it keep their true positions.

        A copy is faster than a mask, because attention reads fewer keys, and drafted tokens cannot
        reach this cache.
        """
        self._needs_native("select")
        slots = list(slots)
        if not ascends(slots, self.length):
            raise ValueError(f"slots={slots}: must ascend within 0 … {self.length - 1}")
        other = Cache(self.storage.copy(slots, room), self.batch, self.layers, self.skip)
        other.length = other.root = len(slots)
        # The next token fed sits at slot len(slots), but its position is the one after the text.
        other.shift = self.length + self.shift - len(slots)
        other.selected = self.positions()[slots]
        return other

    def keys(self, layer: int) -> Tensor:
        """Return the keys [B, G, length, h] that a layer has stored, after rotary embedding."""
        self._needs_native("keys")
        whole("layer", layer, 0, len(self.storage.tensors.keys) - 1)
        return self.storage.tensors.keys[layer][:, :, : self.length]

    def positions(self) -> Tensor:
        """Return the true positions [length] of the stored entries.

        Entries of a tree that was just drafted count as consecutive.
        """
        positions = torch.arange(self.length) + self.shift
        if self.selected is not None:
            count = min(len(self.selected), self.length)
            positions[:count] = self.selected[:count]
        return positions

    def _needs_native(self, name: str) -> None:
        """Raise ValueError for the cache of a Hugging Face model."""
        if not self.storage.by_layer:
            raise ValueError(
                f"{name}(…) needs a native model: Hugging Face modules run all their layers, and"
                " their cache can only be cut as a whole"
            )


class ReadOnlyCacheError(AttributeError):
    """A drafter tried to change the target's cache."""


class CacheReader:
    """What a drafter may do with the target's cache: read it, view it, and copy entries."""

    __slots__ = ("_cache",)

    def __init__(self, cache: Cache):
        object.__setattr__(self, "_cache", cache)

    def __getattr__(self, name: str):
        if name in ("length", "view", "select", "keys", "positions"):
            return getattr(self._cache, name)
        raise ReadOnlyCacheError(
            f"{name}: a drafter may not change the target's cache or feed a pass to it; it has"
            " length, keys and positions, and makes caches of its own by view and select"
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise ReadOnlyCacheError(f"{name}: a drafter may not change the target's cache")


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass: what a model's back end runs for `CausalLM.score`.

    Attributes:
        tokens: [B, n] ids.
        cache: of the model. The back end writes to its storage and leaves its length as it is.
        tree: the last tokens are its nodes; None: a chain.
        hidden_layers: the hidden states to return.
        last: return only the last row of logits.
        cached: number of the tree's first nodes that are in the cache already.
        states: (b, rows [B, n, d]): start after block b with these rows.
        logits: False leaves the vocabulary projection out.
    """

    tokens: Tensor
    cache: Cache
    tree: TokenTree | None = None
    hidden_layers: Sequence[Layer] = ()
    last: bool = False
    cached: int = 0
    states: tuple[int, Tensor] | None = None
    logits: bool = True

    @property
    def count(self) -> int:
        """Return n, the number of tokens fed to each row."""
        return self.tokens.shape[1]

    @staticmethod
    def padded(rows: "Sequence[Pass]", device) -> tuple[Tensor, Tensor]:
        """Return the tokens and position ids [B, n] of several passes, with zeros at their ends."""
        widest = max(row.count for row in rows)
        tokens = torch.zeros(len(rows), widest, dtype=torch.long, device=device)
        positions = torch.zeros_like(tokens)
        for index, row in enumerate(rows):
            ids = tree_positions(row.cache.length, row.count, row.tree, device)
            tokens[index, : row.count], positions[index, : row.count] = row.tokens, ids
        return tokens, positions


def ascends(numbers: Sequence[int], end: int) -> bool:
    """Return whether numbers strictly ascend within 0 … end - 1."""
    return all(a < b for a, b in zip([-1, *numbers], [*numbers, end]))


def sublayers(skip: Collection[tuple[int, str]], layers: int) -> frozenset[tuple[int, str]]:
    """Return the sublayers to leave out of a pass, checked."""
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
    """Return which keys each fed token may attend to: bool [n, length + n].

    A token attends to everything stored, to itself and to earlier fed tokens. A tree node attends
    only to its ancestors among the nodes.

    Shapes: positions [n], stored [length].
    """
    mask = torch.ones(count, length + count, dtype=torch.bool, device=positions.device).tril(length)
    if tree is not None and len(tree):
        # The nodes are the last keys. Of the nodes only those that are not cached are fed as rows.
        mask[cached - len(tree) :, -len(tree) :] = upload(tree.mask[cached:], mask.device)
    if window is not None:
        keys = torch.arange(length) if stored is None else stored
        keys = torch.cat((upload(keys, positions.device), positions))
        # A window is counted in positions, and siblings share one: the slot of a cached node does
        # not tell its position, its depth does.
        if tree is not None and cached:
            depth = upload(tree.depth, positions.device)
            root = positions[-1] - 1 - depth[-1]
            keys[length - cached : length] = root + 1 + depth[:cached]
        mask &= keys[None, :] > positions[:, None] - window
    return mask


def tree_positions(
    length: int, count: int, tree: TokenTree | None, device, cached: int = 0, shift: int = 0
) -> Tensor:
    """Return the position ids [n] of the fed tokens.

    They are consecutive; a tree node's is the root's position plus the node's depth plus one.
    """
    positions = torch.arange(length, length + count, device=device) + shift
    if tree is not None and len(tree):
        after_root = length + shift + count - len(tree)
        positions[cached - len(tree) :] = after_root + upload(tree.depth[cached:], device)
    return positions


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask as the number to add to attention scores.

    The number is 0 where the mask is True, and the dtype's most negative number elsewhere.
    """
    # Not −∞: a row in which everything is masked would become NaN.
    bias = aligned(mask.shape, dtype, mask.device).zero_()
    return bias.masked_fill_(~mask, torch.finfo(dtype).min)


def aligned(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a new tensor whose rows begin at multiples of 8 entries.

    A fused attention kernel of a GPU copies any other mask, once for every layer.
    """
    width = round_up(shape[-1])
    return torch.empty((*shape[:-1], width), dtype=dtype, device=device)[..., : shape[-1]]


def round_up(count: int) -> int:
    """Return the least multiple of 8 that is not below a number."""
    return -(-count // 8) * 8
