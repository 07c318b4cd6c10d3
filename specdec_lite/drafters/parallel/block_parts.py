"""What published block heads add to DFlash: windows, causal layers, convolutions, a confidence.

Sources: DSpark, Cheng et al. 2026 (the anchor's own row, the confidence); DFlash 2,
vllm-project/vllm#52816 (convolutions); `speculators` (windows, causal layers).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.engine.transformer import Block, Norm, TransformerConfig


@dataclass(frozen=True, slots=True)
class BlockParts:
    """The parts of a block head that DFlash's first form does not have.

    Attributes:
        windows: per layer, a position attends to positions less than this far away, None: to all;
            empty: no layer has a window.
        causal: per layer, whether a position attends to no later position of its block; empty: no
            layer is causal.
        from_anchor: whether the row of the block's first position, the last token of the text,
            predicts the next token, and each mask the token after its own position.
        taps: positions that each convolution around a sublayer reads; 0: there are none.
        group: channels of a convolution that share what it predicts from its input.
        candidates: k of the selector that replaces the correction; 0: there is none.
        confidence: what predicts the acceptance of a position's token: "" (nothing does), "state",
            or "state and token", the row of the correction for the token before.
        all_tokens: whether the correction has a row for each of the target's tokens although the
            head has a draft vocabulary.
    """

    windows: tuple[int | None, ...] = ()
    causal: tuple[bool, ...] = ()
    from_anchor: bool = False
    taps: int = 0
    group: int = 16
    candidates: int = 0
    confidence: str = ""
    all_tokens: bool = False

    @property
    def stated(self) -> dict:
        """The arguments of the constructor that differ from their defaults."""
        usual = asdict(BlockParts())
        own = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in own.items()}

    def hidden(self, layer: int, distance: Tensor) -> Tensor | None:
        """Return which keys a layer does not attend to although they are its text or block.

        Shapes: distance [n, m], position of a query minus position of a key.
        """
        window = self.windows[layer] if self.windows else None
        later = distance < 0 if self.causal and self.causal[layer] else None
        if window is None:
            return later
        far = distance.abs() >= window
        return far if later is None else far | later


class Convolution(nn.Module):
    """A norm, and two convolutions over the positions of a block: before a sublayer and after it.

    A coefficient is a learned number per channel plus a number per group of channels that is
    predicted from the normed input. A position reads itself and earlier positions of its block. A
    new convolution changes nothing.

    Args:
        size: number of channels d.
        taps: positions that are read.
        group: channels per group.
        block: positions per block.
        eps: the norm's ε.
    """

    def __init__(self, size: int, taps: int, group: int, block: int, eps: float):
        super().__init__()
        self.norm = Norm(size, eps)
        self.group = group
        self.block = block
        base = torch.zeros(2, taps, size)
        base[:, 0] = 1
        self.base = nn.Parameter(base)
        self.predict = nn.Linear(size, 2 * taps * (size // group), bias=False)
        nn.init.zeros_(self.predict.weight)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the sublayer's output [B, n, d] between the two convolutions."""
        x = self.norm(x)
        side = (2, self.base.shape[1], -1)
        predicted = self.predict(x).unflatten(-1, side).repeat_interleave(self.group, -1)
        first, second = (self.base + predicted).unbind(-3)
        return self.mix(sublayer(self.mix(x, first)), second)

    def mix(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Return the sum over taps of earlier positions times their coefficients.

        Shapes: x [B, n, d], kernel [B, n, taps, d].
        """
        blocks = x.unflatten(1, (-1, self.block))
        # Before the first position of a block there are zeros, not the block before it.
        shifted = [
            F.pad(blocks, (0, 0, tap, 0))[:, :, : self.block] for tap in range(kernel.shape[2])
        ]
        return (torch.stack(shifted, 3).flatten(1, 2) * kernel).sum(2)


class ConvolvedBlock(Block):
    """A block with a convolution on both sides of each sublayer.

    Args:
        config: the block's sizes.
        parts: taps and groups.
        block: positions per draft block.
    """

    def __init__(self, config: TransformerConfig, parts: BlockParts, block: int):
        super().__init__(config)
        size, eps = config.hidden_size, config.norm_eps
        self.around_attention = Convolution(size, parts.taps, parts.group, block, eps)
        self.around_mlp = Convolution(size, parts.taps, parts.group, block, eps)
        # The norms are the convolutions': their coefficients are predicted from normed inputs.
        self.norm1 = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
        self.norm2 = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]

    def attention(self, x: Tensor, *args, **options) -> Tensor:
        attend = super().attention
        return self.around_attention(x, lambda mixed: attend(mixed, *args, **options))

    def mlp(self, x: Tensor) -> Tensor:
        return self.around_mlp(x, super().mlp)
