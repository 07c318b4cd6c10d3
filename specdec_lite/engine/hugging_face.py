"""Passes of any Hugging Face causal language model: its masks, positions, cache and logits."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.engine.cache import Cache, Layer, Pass, Scores, additive, tree_positions, visible
from specdec_lite.engine.self_test import logits_scale, run as self_test
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree

STATEFUL = {"linear_attention", "conv", "mamba", "mamba2", "recurrent"}
"""Layer types whose state is not a list of keys and values, and so cannot be cut back."""


class HuggingFaceStorage:
    """The keys and values of a Hugging Face model, in a plain `DynamicCache`.

    Models with a sliding window use it too: the window is part of the mask, so every entry is kept
    and the cache can be cut back.
    """

    by_layer = False

    def __init__(self):
        from transformers import DynamicCache

        self.cache = DynamicCache()

    def move(self, start: int, rows: Tensor) -> None:
        """Keep the entries before `start` and those at start + rows, in this order.

        Shapes: rows [n].
        """

        def gather(x: Tensor) -> Tensor:
            kept = upload(start + rows, x.device)
            return torch.cat((x[..., :start, :], x[..., kept, :]), dim=-2)

        self._each(gather)

    def cut(self, length: int) -> None:
        """Remove the entries after the first `length`."""
        self._each(lambda x: x[..., :length, :])

    def snapshot(self) -> list[tuple[Tensor, Tensor]]:
        """Return the keys and values [B, G, n, h] of every layer that has any."""
        return [(layer.keys, layer.values) for layer in self._layers()]

    def extend(self, entries: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Append keys and values to every layer that has any."""
        for layer, (keys, values) in zip(self._layers(), entries, strict=True):
            layer.keys = torch.cat((layer.keys, keys), dim=-2)
            layer.values = torch.cat((layer.values, values), dim=-2)

    @classmethod
    def joined(cls, rows: Sequence["HuggingFaceStorage"], length: int) -> "HuggingFaceStorage":
        """Return the storages of several sequences as one, padded at their end to `length` entries."""
        whole = cls()
        for number in range(max(len(row.cache.layers) for row in rows)):
            found = [row.entries(number) for row in rows]
            some = next((pair for pair in found if pair), None)
            if some is None:  # a layer that attends to another layer's keys
                continue
            pairs = [pair or tuple(x[..., :0, :] for x in some) for pair in found]
            keys, values = (
                torch.cat([F.pad(x, (0, 0, 0, length - x.shape[-2])) for x in kind])
                for kind in zip(*pairs)
            )
            whole.cache.update(keys, values, number)
        return whole

    def entries(self, number: int) -> tuple[Tensor, Tensor] | None:
        """Return the keys and values [1, G, n, h] of a layer; None if it has stored none."""
        layers: list[Any] = self.cache.layers
        if number >= len(layers) or not layers[number].is_initialized:
            return None
        return layers[number].keys, layers[number].values

    def take(self, whole: "HuggingFaceStorage", row: int, start: int, count: int) -> None:
        """Append `count` entries of one sequence of a joined storage, from `start` on."""
        layers: list[Any] = whole.cache.layers
        for number, layer in enumerate(layers):
            if layer.is_initialized:
                part = (slice(row, row + 1), ..., slice(start, start + count), slice(None))
                self.cache.update(layer.keys[part], layer.values[part], number)

    def _layers(self) -> list:
        layers: list[Any] = self.cache.layers
        return [layer for layer in layers if layer.is_initialized]

    def _each(self, change: Callable[[Tensor], Tensor]) -> None:
        for layer in self._layers():
            layer.keys = change(layer.keys)
            layer.values = change(layer.values)


def context_length(config) -> int:
    """Return the number of positions that a Hugging Face model can read.

    For "longrope" it is the length of the first training. A longer pass rotates *all* positions by
    other angles than a shorter one, so the text would depend on the draft's length.
    """
    names = ("max_position_embeddings", "max_seq_len", "max_target_positions")
    limit = next(filter(None, (getattr(config, name, None) for name in names)), 1 << 30)
    ropes = getattr(config, "rope_parameters", None) or {}
    for rope in [ropes, *(part for part in ropes.values() if isinstance(part, dict))]:
        if rope.get("rope_type") == "longrope":
            original = rope.get("original_max_position_embeddings") or getattr(
                config, "original_max_position_embeddings", None
            )
            limit = min(limit, original or limit)
    return limit


class HuggingFaceBackend:
    """Runs the passes of a Hugging Face causal language model.

    Masks are additive, 4-dimensional and float. A model that cannot take them verifies a tree path
    by path. The self-test decides how a model takes trees. Properties that a short text cannot show
    are read from the config: windows, chunks, local attention, the reach of "longrope".

    Attributes:
        config: the text config.
        takes_positions: whether its forward takes position ids.
        cache_name: the name of its forward's argument for the cache.
        by_path: whether it verifies a tree path by path.
        windowed: length of the sliding window that its code uses; None: no window.
        scale: the logits' factor; None until `logits` is called.
        cap: the logits' soft cap; None: no cap.

    Raises:
        ValueError: if the model cannot be decoded speculatively.
    """

    def __init__(self, model: Any):
        config = model.config.get_text_config()
        name = type(model).__name__
        if getattr(model.config, "is_encoder_decoder", False):
            raise ValueError(
                f"{name} is an encoder–decoder: only decoder-only models are supported"
            )
        self.layer_types = set(getattr(config, "layer_types", None) or ())
        if getattr(model, "_is_stateful", False) or self.layer_types & STATEFUL:
            raise ValueError(
                f"{name} carries recurrent state, which cannot be cut back to an earlier token"
                " after a rejection"
            )
        self.model = model
        self.config = config
        self.vocab_size = config.vocab_size  # the self-test replaces it by the logits' width
        self.num_layers = config.num_hidden_layers
        self.hidden_size = config.hidden_size
        self.max_positions = context_length(config)
        self.embedding = model.get_input_embeddings()
        self.head = model.get_output_embeddings()
        parameters = inspect.signature(model.forward).parameters
        self.takes_positions = "position_ids" in parameters
        # transformers renames the cache's argument in 5.24 and removes the old name in 5.40
        self.cache_name = "cache" if "cache" in parameters else "past_key_values"
        kinds: set[str] = self.layer_types | set(getattr(config, "attention_layers", ()))
        self.by_path = (
            not self.takes_positions
            or getattr(config, "_attn_implementation", None) not in (None, "eager", "sdpa")
            or bool(kinds - {"full_attention", "sliding_attention", "global"})
        )
        # A window in the config counts only if the model's code reads it.
        reads_windows = hasattr(inspect.getmodule(type(model)), "create_sliding_window_causal_mask")
        self.windowed = getattr(config, "sliding_window", None) if reads_windows else None
        self.scale: float | None = None
        self.cap = getattr(config, "final_logit_softcapping", None)
        self_test(self)

    def storage(self, batch: int, capacity: int) -> HuggingFaceStorage:
        """Return an empty storage."""
        return HuggingFaceStorage()

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., V] of final hidden states, as a pass computes them.

        Shapes: hidden [..., d].
        """
        if self.scale is None:
            self.scale = logits_scale(self)
        return self.project(hidden, self.scale)

    def project(self, hidden: Tensor, scale: float) -> Tensor:
        """Return the scaled logits [..., V] of final hidden states, with Gemma's soft cap.

        Shapes: hidden [..., d].
        """
        logits = self.head(hidden) * scale
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    def score(self, inputs: Pass) -> Scores:
        """Run a pass, and store the keys and values of its tokens."""
        self._check(inputs)
        tokens, cache, tree = inputs.tokens, inputs.cache, inputs.tree
        if tree is not None and self.by_path:
            return self._paths(inputs, tree)
        count, length, cached = inputs.count, cache.length, inputs.cached
        options: dict = {}
        positions = tree_positions(length, count, tree, tokens.device, cached)
        if self.takes_positions:
            options["position_ids"] = positions.expand(len(tokens), -1)
        if tree is not None:
            options["attention_mask"] = self._mask(
                lambda window: visible(length, count, tree, window, positions, cached), len(tokens)
            )
        return self._forward(inputs, tokens, options, inputs.last)

    def score_rows(self, rows: Sequence[Pass]) -> list[Scores]:
        """Run one pass for several sequences, each with a cache of its own.

        Caches and tokens are padded at their end, and the mask hides the padding. A model that
        verifies a tree path by path runs a pass for each sequence instead.
        """
        if self.by_path or len(rows) == 1:
            return [self.score(row) for row in rows]
        for row in rows:
            self._check(row)
        device, batch = rows[0].tokens.device, len(rows)
        stored = max(row.cache.length for row in rows)
        tokens, positions = Pass.padded(rows, device)
        fed = tokens.shape[1]

        def mask(window: int | None) -> Tensor:
            shown = torch.zeros(batch, 1, fed, stored + fed, dtype=torch.bool, device=device)
            shown[..., stored:] = torch.eye(fed, dtype=torch.bool, device=device)  # for the padding
            for index, row in enumerate(rows):
                length, count = row.cache.length, row.count
                keys = visible(length, count, row.tree, window, positions[index, :count])
                shown[index, 0, :count, :length] = keys[:, :length]
                shown[index, 0, :count, stored : stored + count] = keys[:, length:]
            return shown

        whole = HuggingFaceStorage.joined([row.cache.storage for row in rows], stored)
        inputs = Pass(tokens, Cache(whole, batch), hidden_layers=rows[0].hidden_layers)
        options = {"position_ids": positions, "attention_mask": self._mask(mask, batch)}
        scores = self._forward(inputs, tokens, options, last=False)
        for index, row in enumerate(rows):
            row.cache.storage.take(whole, index, stored, row.count)
        return [scores.of_row(index, row.count) for index, row in enumerate(rows)]

    def _check(self, inputs: Pass) -> None:
        """Raise ValueError for what this kind of model cannot do."""
        name = type(self.model).__name__
        if inputs.states is not None:
            raise ValueError(
                f"states starts after block {inputs.states[0]}: {name} always runs all its layers;"
                " only native models take states"
            )
        if inputs.cached and self.by_path:
            raise ValueError(
                f"cached={inputs.cached}: {name} verifies a tree path by path; cut the cache back"
                " to the tree's root and feed the whole tree again"
            )
        if self.model.training:
            raise ValueError(
                f"{name} is in training mode, where dropout and gradient checkpointing change what"
                " a pass gives: call its eval() first"
            )

    def _mask(self, build: Callable[[int | None], Tensor], batch: int):
        """Return the additive mask [B, 1, n, m] of each type of layer."""
        dtype = self.model.dtype

        def masks_of(window: int | None) -> Tensor:
            return additive(build(window), dtype).expand(batch, 1, -1, -1)

        if not self.layer_types:
            return masks_of(self.windowed)
        windows = {"full_attention": None, "sliding_attention": self.windowed}
        masks = {kind: masks_of(windows[kind]) for kind in self.layer_types & set(windows)}
        return masks if len(self.layer_types) > 1 else next(iter(masks.values()))

    def _forward(self, inputs: Pass, tokens: Tensor, options: dict, last: bool) -> Scores:
        """Run the model on tokens [B, n]; the pass gives the cache and the hidden layers."""
        out = self.model(
            input_ids=tokens,
            use_cache=True,
            output_hidden_states=bool(inputs.hidden_layers),
            logits_to_keep=int(last),
            **{self.cache_name: inputs.cache.storage.cache},
            **options,
        )
        logits = out.logits[:, -1:] if last else out.logits  # some ignore logits_to_keep
        # Hugging Face returns L + 1 states, and the last one has been through the final norm.
        hidden: dict[Layer, Tensor] = {
            layer: out.hidden_states[self.num_layers if layer == "final" else layer]
            for layer in inputs.hidden_layers
        }
        return Scores(logits, hidden)

    def _paths(self, inputs: Pass, tree: TokenTree) -> Scores:
        """Score a tree without a tree mask: one pass per path over the same prefix.

        Rows and cache entries are then collected in the order of the nodes. Nodes that paths share
        are taken from the first path.
        """
        tokens, storage = inputs.tokens, inputs.cache.storage
        start = inputs.cache.length
        before = inputs.count - len(tree)
        order = [*range(-before, 0), *range(len(tree))]
        sources: dict[int, tuple[int, int]] = {}  # node: (path, row in its pass)
        passes: list[Scores] = []
        entries: list[list[tuple[Tensor, Tensor]]] = []
        for path in tree.paths():
            for row, node in enumerate((*range(-before, 0), *path)):
                sources.setdefault(node, (len(passes), row))
            columns = [*range(before), *(before + node for node in path)]
            passes.append(self._forward(inputs, tokens[:, columns], {}, last=False))
            entries.append(storage.snapshot())
            storage.cut(start)

        def collect(tensors: list[Tensor], dim: int, offset: int = 0) -> Tensor:
            rows = [sources[node] for node in order]
            return torch.stack([tensors[i].select(dim, offset + row) for i, row in rows], dim)

        layers = range(len(entries[0]))
        storage.extend(
            tuple(collect([each[layer][kind] for each in entries], -2, start) for kind in (0, 1))
            for layer in layers
        )
        logits = collect([scores.logits for scores in passes], 1)
        hidden: dict[Layer, Tensor] = {
            layer: collect([scores.hidden[layer] for scores in passes], 1)
            for layer in inputs.hidden_layers
        }
        return Scores(logits[:, -1:] if inputs.last else logits, hidden)
