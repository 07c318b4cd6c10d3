"""Language models behind one interface: `CausalLM` wraps our `Transformer` or a Hugging Face model.

State is in the cache, never in the model, so one model can be target and draft at the same time.
This module checks what a pass is given; `native` and `hugging_face` run the pass.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from specdec_lite.checks import is_whole_dtype, whole
from specdec_lite.engine.cache import Cache, Layer, Pass, Scores
from specdec_lite.engine.native import NativeBackend
from specdec_lite.engine.transformer import Transformer
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree


class CausalLM:
    """A causal language model that scores tokens with a cache.

    Wrapping puts the model in evaluation mode and changes nothing else of it.

    Args:
        model: one of our transformers, or a Hugging Face causal language model with its head.

    Attributes:
        model: the wrapped module.
        backend: runs the passes.
        native: whether the model is one of ours.
        vocab_size: V.
        num_layers: number of blocks.
        hidden_size: d.
        max_positions: context length.
        longest_pass: the most tokens that one pass takes; infinite unless its shape is fixed.
        device: of the weights.
        dtype: of the weights.
        end_of_text: ids that end a text of this model, as its files or its own configuration state
            them. Decoding stops at them unless it is given other `stop_token_ids`.

    Raises:
        TypeError: if `model` is anything else.
        ValueError: if the model cannot be decoded speculatively: encoder–decoders, models with
            recurrent state, and Hugging Face models that fail the self-test (`self_test`).
    """

    longest_pass: float = math.inf
    end_of_text: tuple[int, ...] = ()

    def __init__(self, model: nn.Module):
        self.model: Any = model
        if isinstance(model, Transformer):
            self.backend = NativeBackend(model)
            self.end_of_text = getattr(model, "end_of_text", ())  # as it was loaded
        elif hasattr(model, "can_generate") and model.can_generate():  # pyright: ignore[reportCallIssue]
            from specdec_lite.engine.hugging_face import HuggingFaceBackend

            self.backend = HuggingFaceBackend(model)
            self.end_of_text = end_of_text(model)
        else:
            raise TypeError(
                f"model is a {type(model).__name__}: must be a specdec_lite Transformer or a"
                " Hugging Face causal language model, head included"
            )
        model.eval()
        self.native = isinstance(self.backend, NativeBackend)
        self.vocab_size: int = self.backend.vocab_size
        self.num_layers: int = self.backend.num_layers
        self.max_positions: int = self.backend.max_positions
        self.hidden_size: int = self.backend.hidden_size
        weight = next(w for w in model.parameters() if w.is_floating_point())  # others are packed
        self.device = weight.device
        self.dtype = weight.dtype

    def __repr__(self) -> str:
        size = sum(weight.numel() for weight in self.model.parameters())
        return (
            f"CausalLM({type(self.model).__name__}, {size / 1e6:.1f}M parameters, {self.num_layers}"
            f" layers, {self.dtype}, {self.device})"
        )

    def new_cache(self, batch: int = 1, capacity: int = 256) -> Cache:
        """Return an empty cache.

        Args:
            batch: number of sequences, all of one length.
            capacity: number of tokens to reserve memory for (a hint, not a limit).
        """
        return Cache(self.backend.storage(batch, capacity), batch)

    @torch.inference_mode()
    def score(
        self,
        tokens: Tensor | Sequence[int],
        cache: Cache,
        tree: TokenTree | None = None,
        hidden_layers: Sequence[Layer] = (),
        last: bool = False,
        *,
        cached: int = 0,
        states: tuple[int, Tensor] | None = None,
        logits: bool = True,
    ) -> Scores:
        """Feed tokens after the cached ones, add them to the cache, and return their scores.

        Args:
            tokens: [B, n] ids (or [n], or a list, for B = 1).
            cache: made by this model.
            tree: the last tokens are its nodes, and their root is the token before them; None: the
                tokens are a chain.
            hidden_layers: the hidden states to return besides the logits: 0 (embedding), b (after
                block b), "final".
            last: return only the last row of logits, as a prefill needs.
            cached: number of the tree's first nodes that are in the cache already; the other nodes
                are fed. The root may be in the cache too: then no token precedes the nodes.
            states: (b, rows [B, n, d]): start after block b with these rows; the cache has the keys
                of the first b blocks already. With b = 0 the rows replace the embedding. Native
                models only.
            logits: False leaves the vocabulary projection out, and the logits have no rows. Hugging
                Face models always compute them.

        Returns:
            The logits [B, n, V] (or [B, 1, V] with `last`) and the hidden states [B, n, d].

        Raises:
            ValueError: if the arguments do not fit the cache, the tree or the model, or an id is
                outside the vocabulary (on a GPU, such an id raises the device's own error).
            TypeError: if the tokens are not whole numbers.
        """
        tokens = self._rows(tokens, cache.batch)
        count = tokens.shape[1]
        root = self.root_slot(count, cache, tree, cached)
        self.check_layers(hidden_layers, cache.layers)
        if states is not None:
            self._check_states(states, tokens, hidden_layers)
        if tree is not None and tree.is_chain and not cached and root >= cache.length:
            tree = None  # an ordinary causal mask, for which fused kernels have a fast path
        try:
            with steady_attention(self.device):
                scores = self.backend.score(
                    Pass(tokens, cache, tree, hidden_layers, last, cached, states, logits)
                )
        except IndexError:
            self._check_ids(tokens)  # only now: a check before every pass would make a GPU wait
            raise
        # Only after the pass: one that raised has added nothing.
        cache.root = root
        cache.length += count
        return scores

    def root_slot(self, count: int, cache: Cache, tree: TokenTree | None, cached: int = 0) -> int:
        """Return the slot of a tree's root or, without a tree, of the first token fed.

        Args:
            count: number of tokens to feed.
            cache: the one that they are fed to.
            tree: as in `score`.
            cached: as in `score`.

        Raises:
            ValueError: if the tokens do not fit the tree, or exceed the context length.
        """
        reach = count
        root = cache.length
        if tree is None and cached:
            raise ValueError(f"cached={cached} without a tree: give the tree whose nodes they are")
        if tree is not None and len(tree):
            whole("cached", cached, 0, len(tree) - 1)
            before = count - (len(tree) - cached)
            root = cache.length + before - cached - 1
            if before < 0 or root < 0 or cached and before:
                raise ValueError(
                    f"tokens holds {count} ids for a tree of {len(tree)} nodes, {cached} of them in"
                    f" the cache, which holds {cache.length} tokens: the token before the tree must"
                    " be fed too, unless it is in the cache"
                )
            # Positions follow depth, so a wide tree reaches no further than its deepest node.
            reach = root + 1 + tree.levels - cache.length
        if cache.shift + cache.length + reach > self.max_positions:
            raise ValueError(
                f"tokens: {reach} positions after {cache.shift + cache.length} exceed the model's"
                f" context length of {self.max_positions}"
            )
        return root

    def check_layers(self, hidden_layers: Sequence[Layer], layers: int | None = None) -> None:
        """Raise an error if a pass cannot return one of these hidden states.

        Args:
            hidden_layers: names of hidden states.
            layers: number of blocks that the pass runs; None: all.

        Raises:
            ValueError: for an unknown name.
        """
        depth = self.num_layers if layers is None else layers
        unknown = [
            layer for layer in hidden_layers if layer != "final" and layer not in range(depth + 1)
        ]
        if unknown:
            raise ValueError(
                f"hidden_layers={list(hidden_layers)}: {unknown} are none of 0 (embedding), 1 …"
                f" {depth} (after that block), 'final'"
            )
        if self.num_layers in hidden_layers and not self.native:
            raise ValueError(
                f'hidden_layers={list(hidden_layers)}: Hugging Face models give "final" in place of'
                " the state after the last block"
            )

    def embed(self, ids: Tensor) -> Tensor:
        """Return the input embeddings [..., d].

        Args:
            ids: [...].
        """
        return self.backend.embedding(upload(ids, self.device))

    def head(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., V] of hidden states; gradients flow through it in training.

        Args:
            hidden: [..., d], the states "final".
        """
        # Autograd rejects inference tensors, which every pass of `score` returns.
        return self.backend.logits(hidden.clone() if hidden.is_inference() else hidden)

    @property
    def projection(self) -> Tensor:
        """Return the matrix [V, d] of the vocabulary projection.

        A packed or adapted head has no such weight, so it is computed from what the head returns.
        """
        head = self.backend.head
        if self.native or type(head) is nn.Linear:
            return head.weight.detach()
        with torch.no_grad():
            units = torch.eye(self.hidden_size, dtype=self.dtype, device=self.device)
            return (head(units) - head(torch.zeros_like(units[:1]))).T

    def _rows(self, tokens: Tensor | Sequence[int], batch: int) -> Tensor:
        """Return tokens as ids [B, n] on the model's device."""
        rows = upload(tokens, self.device)
        rows = rows[None] if rows.dim() == 1 else rows
        if rows.dim() != 2 or rows.shape[0] != batch or rows.shape[1] == 0:
            raise ValueError(
                f"tokens has shape {tuple(rows.shape)}: must be [{batch}, n] with n ≥ 1"
            )
        if not is_whole_dtype(rows.dtype):
            raise TypeError(f"tokens has dtype {rows.dtype}: must be whole numbers")
        return rows.long()

    def _check_ids(self, tokens: Tensor) -> None:
        """Raise ValueError if an id is outside the embedding."""
        known = len(self.backend.embedding.weight)
        least, most = (int(x) for x in tokens.aminmax())
        if least < 0 or most >= known:
            message = f"tokens holds ids from {least} to {most}: must be 0 … {known - 1}"
            raise ValueError(message) from None

    def _check_states(self, states: tuple, tokens: Tensor, hidden_layers: Sequence[Layer]) -> None:
        """Raise ValueError if `states` does not fit the tokens or the requested hidden states."""
        block, rows = states
        whole("states' block", block, 0, self.num_layers)
        if rows.shape != (*tokens.shape, self.hidden_size):
            raise ValueError(
                f"states has rows {tuple(rows.shape)}: must be"
                f" {(*tokens.shape, self.hidden_size)}, one for every token fed"
            )
        early = [layer for layer in hidden_layers if isinstance(layer, int) and layer < block]
        if early:
            raise ValueError(
                f"hidden_layers={list(hidden_layers)}: a pass that starts after block {block} does"
                f" not compute {early}"
            )


@contextmanager
def steady_attention(device: torch.device) -> Iterator[None]:
    """Run a block in which attention on a GPU does not use cuDNN.

    cuDNN builds a plan for every exact shape, and a growing cache has a new shape for every token.
    Nothing changes on other devices, or if cuDNN is the only fused kernel that is enabled (see
    `torch.nn.attention.sdpa_kernel`).
    """
    cuda = torch.backends.cuda
    planned = device.type == "cuda" and cuda.cudnn_sdp_enabled()
    if not planned or not (cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled()):
        yield
        return
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        cuda.enable_cudnn_sdp(True)


def end_of_text(model: nn.Module) -> tuple[int, ...]:
    """Return the ids at which `model.generate` of transformers stops."""
    for name in ("generation_config", "config"):
        stated = getattr(getattr(model, name, None), "eos_token_id", None)
        if stated is not None:
            return tuple(stated) if isinstance(stated, list) else (int(stated),)
    return ()
