"""The target's hidden states, stored once for all heads that are trained on them.

What lives here: windows of tokens → hidden states of named layers, computed or read back. What does
not: the windows (`text`, `loop`, `own_text`), and the losses.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specdec_lite.engine.cache import Layer
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import fingerprint, write
from specdec_lite.training.own_text import digest


class Features:
    """The target's hidden states at batches of tokens: computed the first time, read ever after.

    Every batch is a file in `folder`, named after the target, its dtype, the layers, `dtype` and
    the tokens, so that what an interrupted run stored is read by the next one, and another target
    or text is never taken for this one. Train a second head on the same batches (`loop.batches` is
    a function of seed and step) and the target makes no pass at all.

    Args:
        target: a `CausalLM`; its weights must stay as they are.
        folder: for the files, an ignored one: n · d · len(layers) numbers a window.
        layers: 0 the embedding, b after block b, "final" what enters the vocabulary projection.
        dtype: what is stored, bfloat16 or float32.
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
        """Where the states at tokens [B, n] lie, or will."""
        name = digest(tokens, self.owner, str(self.target.dtype), self.layers, str(self.dtype))
        return self.folder / f"{name}.safetensors"

    def __call__(self, tokens: Tensor) -> dict[Layer, Tensor]:
        """tokens [B, n] → hidden states [B, n, d] by layer, on the target's device and in its dtype,
        rounded to what is stored.
        """
        path = self.path(tokens)
        if not path.exists():
            self.store(tokens, path)
        return self.read(path)

    @torch.inference_mode()
    def store(self, tokens: Tensor, path: Path) -> None:
        """One pass of the target over tokens [B, n], each row from its beginning."""
        cache = self.target.new_cache(*tokens.shape)
        with torch.autocast(self.target.device.type, enabled=False):
            scores = self.target.score(tokens, cache, hidden_layers=self.layers, last=True)
        states = {str(layer): scores.hidden[layer].to(self.dtype) for layer in self.layers}
        write(path, states, {"target": self.owner})

    def read(self, path: Path) -> dict[Layer, Tensor]:
        """The states in a file. ValueError where it is broken, or of another target."""
        try:
            with safe_open(path, "pt") as opened:
                owner = (opened.metadata() or {}).get("target")
                states = {layer: opened.get_tensor(str(layer)) for layer in self.layers}
        except SafetensorError as error:
            raise ValueError(f"{path}: holds no features of these layers ({error})") from None
        if owner != self.owner:
            raise ValueError(
                f"{path}: features of another target (fingerprint {owner}, this target's is"
                f" {self.owner}): delete the file"
            )
        return {
            layer: rows.to(self.target.device, self.target.dtype) for layer, rows in states.items()
        }
