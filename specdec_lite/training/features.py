"""The target's hidden states, stored once for all heads that are trained on them."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from specdec_lite.engine.cache import Layer
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import fingerprint, write
from specdec_lite.training.own_text import token_hash


class Features:
    """The target's hidden states at batches of tokens: computed once, then read from files.

    Every batch is one file. Its name depends on the target, its dtype, the layers, `dtype` and the
    tokens, so an interrupted run reads what it stored, and states of another target or another text
    are never read. `loop.batches` depends on seed and step alone, so a second head that is trained
    on the same batches needs no pass of the target.

    Args:
        target: a `CausalLM`; its weights must not change.
        folder: folder of the files, ignored by git: n · d · len(layers) numbers per window.
        layers: 0 is the embedding, b the output of block b, "final" the input of the vocabulary
            projection.
        dtype: bfloat16 or float32, the type in the files.
    """

    def __init__(
        self,
        target: CausalLM,
        folder: Path,
        layers: Sequence[Layer] = ("final",),
        dtype: torch.dtype = torch.bfloat16,
    ):
        self.target = target
        self.folder = Path(folder)
        self.layers = tuple(layers)
        self.dtype = dtype
        self.owner = fingerprint(target)

    def path(self, tokens: Tensor) -> Path:
        """Return the file of a batch, whether it exists or not.

        Shapes: tokens [B, n].
        """
        name = token_hash(tokens, self.owner, str(self.target.dtype), self.layers, str(self.dtype))
        return self.folder / f"{name}.safetensors"

    def __call__(self, tokens: Tensor) -> dict[Layer, Tensor]:
        """Return the hidden states [B, n, d] by layer, rounded to the stored dtype.

        Shapes: tokens [B, n].
        """
        path = self.path(tokens)
        if not path.exists():
            self.store(tokens, path)
        with safe_open(path, "pt") as file:
            states = {layer: file.get_tensor(str(layer)) for layer in self.layers}
        kind = {"device": self.target.device, "dtype": self.target.dtype}
        return {layer: rows.to(**kind) for layer, rows in states.items()}

    @torch.inference_mode()
    def store(self, tokens: Tensor, path: Path) -> None:
        """Run one pass of the target and write its hidden states.

        Shapes: tokens [B, n].
        """
        cache = self.target.new_cache(*tokens.shape)
        with torch.autocast(self.target.device.type, enabled=False):
            scores = self.target.score(tokens, cache, hidden_layers=self.layers, last=True)
        states = {str(layer): scores.hidden[layer].to(self.dtype) for layer in self.layers}
        write(path, states, {"target": self.owner})
