"""The layers that block diffusion drafts with: blocks whose attention also reads keys and values made
of the target's states. Shapes: B texts, n tokens, a blocks, s places of a block, d hidden size.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.drafters.feature_head import FIXED, shape_for
from specdec_lite.drafters.parallel import Correction
from specdec_lite.drafters.words import Words
from specdec_lite.engine.cache import Layer
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Norm, Transformer, TransformerConfig, rotate, store

Past = Sequence[tuple[Tensor, Tensor]]
FREE = ("num_layers", "qk_norm")
"""What may differ here of what is fixed for the EAGLE family."""


class BlockHead(Transformer):
    """A small transformer whose one embedding is the mask's, and whose text is the target's states.

    Args:
        layers: the target's hidden states that it reads, fused to one row [d] a token.
        size: places of a block: the last token of the text and s − 1 masks.
        target_vocabulary: of the correction, if there is one.
        rank: of the correction; 0: none.
        words: how many of the target's tokens it says; 0: all.
        shape: the fields of a `TransformerConfig`.

    A place sees the text before its block, and its whole block. What is not trained, the embeddings
    and the vocabulary projection, is the target's.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        size: int,
        target_vocabulary: int,
        rank: int = 0,
        words: int = 0,
        **shape,
    ):
        fixed = {name: value for name, value in FIXED.items() if name not in FREE}
        super().__init__(TransformerConfig(**shape | fixed | {"vocab_size": 1, "tied": True}))
        width = self.config.hidden_size
        self.layers = tuple(layers)
        self.size = size
        self.head = nn.Identity()
        self.fuse = nn.Linear(len(self.layers) * width, width, bias=False)
        self.inputs = Norm(width, self.config.norm_eps)
        self.words = Words(words) if words else None
        said = words or target_vocabulary
        self.correction = Correction(said, rank, others=bool(words)) if rank else None
        self.own = {"size": size, "target_vocabulary": target_vocabulary, "rank": rank}
        self.own |= {"words": words} if words else {}

    @classmethod
    def beside(
        cls,
        target: CausalLM,
        size: int = 8,
        rank: int = 0,
        words: int = 0,
        layers: Sequence[Layer] | None = None,
        **shape,
    ) -> "BlockHead":
        """An untrained one for a target, in float32, of two layers. layers: None: those of `reads`.
        shape: other sizes, as a `TransformerConfig` names them.
        """
        usual = shape_for(target)
        most = {"num_layers": 2, "max_positions": usual.max_positions + size}
        sizes = asdict(replace(usual, **most | shape))
        layers = cls.reads(target.num_layers) if layers is None else layers
        return cls(layers, size, target.vocab_size, rank, words, **sizes)

    @staticmethod
    def reads(num_layers: int) -> tuple[Layer, ...]:
        """Three depths from the first block to the third last one; the last states where there are
        too few blocks.
        """
        if num_layers > 5:
            return 1, (num_layers - 2) // 2, num_layers - 3
        return tuple(dict.fromkeys((0, num_layers // 2, "final")))

    @property
    def sizes(self) -> dict:
        """What one of these sizes is built with."""
        bound = ({*FIXED} - {*FREE}) | {"vocab_size"}
        shape = {name: value for name, value in asdict(self.config).items() if name not in bound}
        return shape | {"layers": list(self.layers)} | self.own

    def inject(
        self, states: Sequence[Tensor], past: Past, cos: Tensor, sin: Tensor, start: int
    ) -> None:
        """Store keys and values of the target's states [B, n, d], one of each layer read, from slot
        `start` on. past: (keys, values) of every block; cos, sin: [n, h] of their positions.
        """
        fused = self.fuse(torch.cat(tuple(states), -1))
        text = self.inputs(fused.to(self.inputs.weight.dtype))
        size, heads = self.config.head_size, self.config.num_kv_heads
        for block, stored in zip(self.blocks, past):
            weight = block.qkv.weight[block.heads * size :]
            pairs = F.linear(text, weight).unflatten(-1, (-1, size)).transpose(1, 2)
            k, v = pairs.split_with_sizes((heads, heads), dim=1)
            k = k if block.k_norm is None else block.k_norm(k)
            store(stored, rotate(k, cos, sin), v, start)

    def fill(
        self,
        anchors: Tensor,
        past: Past,
        cos: Tensor,
        sin: Tensor,
        start: int,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Embeddings [B, a, d] of the tokens before the masks → states [B, a, s − 1, d] that enter the
        vocabulary projection.

        Args:
            past: what `inject` has filled up to slot `start`; the blocks' own is stored behind.
            cos, sin: [a·s, h] of the places' positions.
            bias: mask [a·s, start + a·s], additive or bool; None: each place sees everything.
        """
        masks = self.embedding.weight.expand(*anchors.shape[:2], self.size - 1, -1)
        x = torch.cat((anchors[:, :, None].to(masks.dtype), masks), 2).flatten(1, 2)
        if bias is None:
            bias = x.new_zeros(x.shape[1], start + x.shape[1])
        for block, stored in zip(self.blocks, past):
            x = x + block.attention(x, cos, sin, bias, stored, start)
            x = x + block.mlp(x)
        return self.norm(x).unflatten(1, (-1, self.size))[:, :, 1:]
