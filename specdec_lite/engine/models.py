"""Language models behind one call: `CausalLM` wraps our own `Transformer` or any Hugging Face
causal language model.

State lives in the cache, never in the model, so one model can be target and drafter at once. What
lives here: the call, and what it checks before anything runs. What does not: how either kind of
model makes its pass (`native`, `hugging_face`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from specdec_lite.engine.cache import Cache, Layer, Scores
from specdec_lite.engine.hugging_face import HuggingFaceBackend
from specdec_lite.engine.native import NativeBackend
from specdec_lite.engine.transformer import Transformer
from specdec_lite.tree import TokenTree, is_whole_dtype


class CausalLM:
    """A causal language model behind `score`: one of ours (`Transformer`) or any Hugging Face
    causal LM.

    Attributes: model, vocab_size, num_layers, max_positions (context length), hidden_size, device,
    dtype. Raises TypeError for anything else, and ValueError for a model that cannot be decoded
    speculatively: encoder–decoders, models with recurrent state, and the types named in
    `hugging_face.REFUSED` and `BIDIRECTIONAL`.
    """

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
        for name in ("vocab_size", "num_layers", "max_positions", "hidden_size"):
            setattr(self, name, getattr(self.backend, name))
        weight = next(model.parameters())
        self.device, self.dtype = weight.device, weight.dtype

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
    ) -> Scores:
        """Feed tokens after what the cache holds and extend the cache by them.

        tokens: [B, n] ids (or [n], or a list, for B = 1). tree: the last len(tree) tokens are its
        nodes, hanging from the token before them; None: a chain. last: only the last row of logits
        is wanted (a prefill). ValueError for what does not fit, ids that the model does not know
        among it (on a CPU; a GPU stops with its own error).
        """
        tokens = torch.as_tensor(tokens, device=self.device)
        tokens = tokens[None] if tokens.dim() == 1 else tokens
        if tokens.dim() != 2 or tokens.shape[0] != cache.batch or tokens.shape[1] == 0:
            raise ValueError(
                f"tokens has shape {tuple(tokens.shape)}: must be [{cache.batch}, n] with n ≥ 1"
            )
        if not is_whole_dtype(tokens.dtype):
            raise TypeError(f"tokens has dtype {tokens.dtype}: must be whole numbers")
        tokens = tokens.long()
        if tree is not None and len(tree) >= tokens.shape[1]:
            raise ValueError(
                f"tokens holds {tokens.shape[1]} ids for a tree of {len(tree)} nodes: the token"
                " before the tree must be fed too"
            )
        if tree is not None and tree.is_chain:
            tree = None
        reach = (
            tokens.shape[1]
            if tree is None
            else tokens.shape[1] - len(tree) + int(tree.depth.max()) + 1
        )
        if cache.length + reach > self.max_positions:
            raise ValueError(
                f"tokens: {reach} positions after {cache.length} exceed the model's context length"
                f" of {self.max_positions}"
            )
        depth = self.num_layers if cache.layers is None else cache.layers
        unknown = [
            layer for layer in hidden_layers if layer != "final" and layer not in range(depth + 1)
        ]
        if unknown:
            raise ValueError(
                f"hidden_layers={list(hidden_layers)}: {unknown} are none of 0 (embedding), 1 …"
                f" {depth} (after that block), 'final'"
            )
        try:
            scores = self.backend.score(tokens, cache, tree, hidden_layers, last)
        except (
            IndexError
        ):  # asked only now: to look at the ids before every pass would make a GPU wait
            known = len(self.backend.embedding.weight)
            if tokens.min() < 0 or tokens.max() >= known:
                raise ValueError(
                    f"tokens holds ids from {int(tokens.min())} to {int(tokens.max())}: must be 0 …"
                    f" {known - 1}"
                ) from None
            raise
        cache.before_last_pass = cache.length
        cache.length += tokens.shape[1]
        return scores

    def embed(self, ids: Tensor) -> Tensor:
        """Input embeddings: ids [...] → [..., d]."""
        return self.backend.embedding(ids.to(self.device))

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden states "final" [..., d] → logits [..., V]; gradients flow through it when a
        drafter is trained.
        """
        return self.backend.logits(hidden.clone() if hidden.is_inference() else hidden)
