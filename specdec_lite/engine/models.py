"""Language models behind one call: `CausalLM` wraps our own `Transformer` or any Hugging Face
causal language model.

State lives in the cache, never in the model, so one model can be target and drafter at once. What
lives here: the call, and what it checks before anything runs. What does not: how either kind of
model makes its pass (`native`, `hugging_face`).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from specdec_lite.checks import whole
from specdec_lite.engine.cache import Cache, Layer, Scores
from specdec_lite.engine.hugging_face import HuggingFaceBackend
from specdec_lite.engine.native import NativeBackend
from specdec_lite.engine.transformer import Transformer, steady_attention
from specdec_lite.tree import TokenTree, is_whole_dtype


class CausalLM:
    """A causal language model behind `score`: one of ours (`Transformer`) or any Hugging Face
    causal LM.

    Attributes: model, vocab_size, num_layers, max_positions (context length), hidden_size, device,
    dtype, native (one of ours), longest_pass (tokens that one pass can take; infinite but for
    passes of fixed shape).

    Raises TypeError for anything else, and ValueError for a model that cannot be decoded
    speculatively: encoder–decoders, models with recurrent state, and those of Hugging Face that
    fail the self-test which is run when they are wrapped.
    """

    longest_pass: float = math.inf

    def __init__(self, model: nn.Module):
        self.model = model
        if isinstance(model, Transformer):
            self.backend = NativeBackend(model)
        elif hasattr(model, "can_generate") and model.can_generate():
            self.backend = HuggingFaceBackend(model)
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
        weight = next(model.parameters())
        self.device = weight.device
        self.dtype = weight.dtype

    def __repr__(self) -> str:
        size = sum(weight.numel() for weight in self.model.parameters())
        return (
            f"CausalLM({type(self.model).__name__}, {size / 1e6:.1f}M parameters, {self.num_layers}"
            f" layers, {self.dtype}, {self.device})"
        )

    def new_cache(self, batch: int = 1, capacity: int = 256) -> Cache:
        """An empty cache. capacity: tokens to make room for at once (a hint, not a limit)."""
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
        """Feed tokens after what the cache holds and extend the cache by them.

        Args:
            tokens: [B, n] ids (or [n], or a list, for B = 1).
            cache: of this model; it is extended by the n tokens.
            tree: the last tokens are its nodes, hanging from the token before them; None: a chain.
            hidden_layers: the states to return besides the logits: 0 (embedding), b (after block
                b), "final".
            last: only the last row of logits is wanted (a prefill).
            cached: so many of the tree's first nodes are in the cache already, and only the others
                are fed; the tree's root may be there already too (then no token comes before it).
            states: (b, rows [B, n, d]): begin behind block b with these rows, whose keys up to
                block b are stored already; b = 0 stands in for the embedding. Native models only.
            logits: False leaves the vocabulary projection out, where only hidden states are wanted:
                the logits then have no rows. (Models of Hugging Face make them all the same.)

        ValueError for what does not fit, ids that the model does not know among it (on a CPU; a GPU
        stops with its own error).
        """
        tokens = self._rows(tokens, cache.batch)
        root = self._place(tokens.shape[1], cache, tree, cached)
        self.check_layers(hidden_layers, cache.layers)
        if states is not None:
            self._check_states(states, tokens, hidden_layers)
        options = {}
        if cached:
            options["cached"] = cached
        if states is not None:
            options["states"] = states
        if not logits and self.native:
            options["logits"] = False
        plain = tree is None or tree.is_chain and not cached and root >= cache.length
        try:
            with steady_attention(self.device):
                scores = self.backend.score(
                    tokens, cache, None if plain else tree, hidden_layers, last, **options
                )
        except IndexError:
            # Asked only now: to look at the ids before every pass would make a GPU wait.
            known = len(self.backend.embedding.weight)
            least, most = (int(x) for x in tokens.aminmax())
            if least >= 0 and most < known:
                raise
            message = f"tokens holds ids from {least} to {most}: must be 0 … {known - 1}"
            raise ValueError(message) from None
        cache.root = root
        cache.length += tokens.shape[1]
        return scores

    def _rows(self, tokens: Tensor | Sequence[int], batch: int) -> Tensor:
        tokens = torch.as_tensor(tokens, device=self.device)
        tokens = tokens[None] if tokens.dim() == 1 else tokens
        if tokens.dim() != 2 or tokens.shape[0] != batch or tokens.shape[1] == 0:
            raise ValueError(
                f"tokens has shape {tuple(tokens.shape)}: must be [{batch}, n] with n ≥ 1"
            )
        if not is_whole_dtype(tokens.dtype):
            raise TypeError(f"tokens has dtype {tokens.dtype}: must be whole numbers")
        return tokens.long()

    def _place(self, count: int, cache: Cache, tree: TokenTree | None, cached: int) -> int:
        """The slot of the root: of the token before the tree, or of the first one fed."""
        reach = count
        root = cache.length
        if tree is None and cached:
            raise ValueError(f"cached={cached} without a tree: say which nodes are in the cache")
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
            reach = root + 1 + tree.levels - cache.length
        if cache.shift + cache.length + reach > self.max_positions:
            raise ValueError(
                f"tokens: {reach} positions after {cache.shift + cache.length} exceed the model's"
                f" context length of {self.max_positions}"
            )
        return root

    def check_layers(self, hidden_layers: Sequence[Layer], layers: int | None = None) -> None:
        """ValueError for the name of a hidden state that a pass (of `layers` layers) has not."""
        depth = self.num_layers if layers is None else layers
        unknown = [
            layer for layer in hidden_layers if layer != "final" and layer not in range(depth + 1)
        ]
        if unknown:
            raise ValueError(
                f"hidden_layers={list(hidden_layers)}: {unknown} are none of 0 (embedding), 1 …"
                f" {depth} (after that block), 'final'"
            )

    def _check_states(self, states: tuple, tokens: Tensor, hidden_layers: Sequence[Layer]) -> None:
        block, rows = states
        whole("states' block", block, 0, self.num_layers)
        if rows.shape != (*tokens.shape, self.hidden_size):
            raise ValueError(
                f"states has rows {tuple(rows.shape)}: must be"
                f" {(*tokens.shape, self.hidden_size)}, one for every token fed"
            )
        early = [layer for layer in hidden_layers if layer != "final" and layer < block]
        if early:
            raise ValueError(
                f"hidden_layers={list(hidden_layers)}: a pass that begins behind block {block} does"
                f" not compute {early}"
            )

    def embed(self, ids: Tensor) -> Tensor:
        """Input embeddings: ids [...] → [..., d]."""
        return self.backend.embedding(ids.to(self.device))

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden states "final" [..., d] → logits [..., V]; gradients flow through it when a
        drafter is trained.
        """
        return self.backend.logits(hidden.clone() if hidden.is_inference() else hidden)
