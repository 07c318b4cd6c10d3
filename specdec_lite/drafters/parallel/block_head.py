"""The layers of block diffusion, whose attention also reads keys and values of target states.

Shapes: B texts, n tokens, a draft blocks per text, s positions per block, d hidden size.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.drafters.eagle.feature_head import FIXED, shape_for
from specdec_lite.drafters.heads.vocabulary import DraftVocabulary
from specdec_lite.drafters.parallel.parallel import Correction
from specdec_lite.engine.cache import Layer, aligned
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import (
    Block,
    Norm,
    Transformer,
    TransformerConfig,
    rotate,
    store,
)

Past = Sequence[tuple[Tensor, Tensor]]
FREE = ("num_layers", "qk_norm")
"""Fields that may differ here although they are fixed for the EAGLE family."""


class BlockHead(Transformer):
    """A small transformer over the target's states whose only own embedding is that of the mask.

    A position attends to the text before its block and to its whole block. Embeddings and
    vocabulary projection are the target's.

    Args:
        layers: the target's hidden states that it reads, fused to one row [d] per token.
        size: positions s per block: the last token of the text and s − 1 masks.
        target_vocabulary: the target's V.
        rank: rank of the correction; 0 for no correction.
        words: size of the draft vocabulary; 0 for all tokens.
        shape: fields of a `TransformerConfig`.
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
        self.words = DraftVocabulary(words) if words else None
        tokens = words or target_vocabulary
        self.correction = Correction(tokens, rank, others=bool(words)) if rank else None
        self.own = {"size": size, "target_vocabulary": target_vocabulary, "rank": rank}
        self.own |= {"words": words} if words else {}

    @classmethod
    def for_target(
        cls,
        target: CausalLM,
        size: int = 8,
        rank: int = 0,
        words: int = 0,
        layers: Sequence[Layer] | None = None,
        **shape,
    ) -> "BlockHead":
        """Build an untrained head of two layers for a target, in float32."""
        usual = shape_for(target)
        most = {"num_layers": 2, "max_positions": usual.max_positions + size}
        sizes = asdict(replace(usual, **most | shape))
        layers = cls.default_layers(target.num_layers) if layers is None else layers
        return cls(layers, size, target.vocab_size, rank, words, **sizes)

    @staticmethod
    def default_layers(num_layers: int) -> tuple[Layer, ...]:
        """Return three depths, from the first block to the third last."""
        if num_layers > 5:
            return 1, (num_layers - 2) // 2, num_layers - 3
        return tuple(dict.fromkeys((0, num_layers // 2, "final")))

    @property
    def sizes(self) -> dict:
        """The arguments of the constructor."""
        bound = ({*FIXED} - {*FREE}) | {"vocab_size"}
        shape = {name: value for name, value in asdict(self.config).items() if name not in bound}
        return shape | {"layers": list(self.layers)} | self.own

    def inject(
        self, states: Sequence[Tensor], past: Past, cos: Tensor, sin: Tensor, start: int
    ) -> None:
        """Store keys and values of target states.

        Shapes: cos [n, h], sin [n, h].
        """
        fused = self.fuse(torch.cat(tuple(states), -1))
        text = self.inputs(fused.to(self.inputs.weight.dtype))
        size, heads = self.config.head_size, self.config.num_kv_heads
        for module, stored in zip(self.blocks, past):
            block = cast(Block, module)
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
        """Return the states [B, a, s − 1, d] that enter the vocabulary projection.

        Shapes: anchors [B, a, d], cos [a·s, h], sin [a·s, h], bias [a·s, start + a·s].
        """
        masks = self.embedding.weight.expand(*anchors.shape[:2], self.size - 1, -1)
        x = torch.cat((anchors[:, :, None].to(masks.dtype), masks), 2).flatten(1, 2)
        if bias is None:
            bias = aligned((x.shape[1], start + x.shape[1]), x.dtype, x.device).zero_()
        for module, stored in zip(self.blocks, past):
            block = cast(Block, module)
            x = x + block.attention(x, cos, sin, bias, stored, start)
            x = x + block.mlp(x)
        return self.norm(x).unflatten(1, (-1, self.size))[:, :, 1:]
