"""The layers of block diffusion, whose attention also reads keys and values of target states.

Shapes: B texts, n tokens, a draft blocks per text, s positions per block, d hidden size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.drafters.eagle.feature_head import FIXED, shape_for
from specdec_lite.drafters.heads.vocabulary import DraftVocabulary
from specdec_lite.drafters.parallel.block_parts import BlockParts, ConvolvedBlock
from specdec_lite.drafters.parallel.parallel import Correction, Selector
from specdec_lite.engine.cache import Layer, additive, aligned
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
        parts: fields of `BlockParts`.
        shape: fields of a `TransformerConfig`.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        size: int,
        target_vocabulary: int,
        rank: int = 0,
        words: int = 0,
        parts: Mapping | None = None,
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
        self.parts = BlockParts(**(parts or {}))
        self.own: dict[str, Any] = {
            "size": size,
            "target_vocabulary": target_vocabulary,
            "rank": rank,
        }
        self.own |= {"words": words} if words else {}
        self.own |= {"parts": self.parts.stated} if self.parts.stated else {}
        if self.parts.taps:
            blocks = (ConvolvedBlock(self.config, self.parts, size) for _ in self.blocks)
            self.blocks = nn.ModuleList(blocks)
        self.correction = self.new_correction(rank) if rank else None
        self.confidence: nn.Linear | None = None
        if self.parts.confidence:
            inputs = width + (rank if self.parts.confidence == "state and token" else 0)
            self.confidence = nn.Linear(inputs, 1)
            nn.init.zeros_(self.confidence.bias)

    def new_correction(self, rank: int) -> Correction:
        """Return an untrained correction, or a selector if the parts name its candidates."""
        words, inputs = self.own.get("words", 0), 0
        if self.parts.all_tokens:
            inputs = self.own["target_vocabulary"]
        tokens, others = words or self.own["target_vocabulary"], bool(words) and not inputs
        if not self.parts.candidates:
            return Correction(tokens, rank, others, inputs)
        width = self.config.hidden_size
        return Selector(tokens, rank, others, inputs, self.parts.candidates, width)

    @property
    def most(self) -> int:
        """The number of tokens that a block predicts."""
        return self.size if self.parts.from_anchor else self.size - 1

    @classmethod
    def for_target(
        cls,
        target: CausalLM,
        size: int = 8,
        rank: int = 0,
        words: int = 0,
        layers: Sequence[Layer] | None = None,
        parts: Mapping | None = None,
        **shape,
    ) -> "BlockHead":
        """Build an untrained head of two layers for a target, in float32."""
        usual = shape_for(target)
        most = {"num_layers": 2, "max_positions": usual.max_positions + size}
        sizes = asdict(replace(usual, **most | shape))
        layers = cls.default_layers(target.num_layers) if layers is None else layers
        return cls(layers, size, target.vocab_size, rank, words, parts, **sizes)

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
        mask: Tensor | None = None,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return the states [B, a, most, d] that enter the vocabulary projection.

        The mask says which keys are an anchor's text or block, and the distance how far before
        the query they are. Both may be left out for one block after the whole text.

        Shapes: anchors [B, a, d], cos [a·s, h], sin [a·s, h], mask and distance [a·s, start + a·s].
        """
        masks = self.embedding.weight.expand(*anchors.shape[:2], self.size - 1, -1)
        x = torch.cat((anchors[:, :, None].to(masks.dtype), masks), 2).flatten(1, 2)
        for module, stored, bias in zip(self.blocks, past, self.biases(x, start, mask, distance)):
            block = cast(Block, module)
            x = x + block.attention(x, cos, sin, bias, stored, start)
            x = x + block.mlp(x)
        return self.norm(x).unflatten(1, (-1, self.size))[:, :, self.size - self.most :]

    def biases(
        self, x: Tensor, start: int, mask: Tensor | None, distance: Tensor | None
    ) -> list[Tensor]:
        """Return every layer's mask [n, start + n], for attention to text and block."""
        shape = (x.shape[1], start + x.shape[1])
        whole = aligned(shape, x.dtype, x.device).zero_() if mask is None else mask
        if not (self.parts.windows or self.parts.causal):
            return [whole] * len(self.blocks)
        if distance is None:
            keys = torch.arange(shape[1], device=x.device)
            distance = keys[start:, None] - keys
        hidden = [self.parts.hidden(layer, distance) for layer in range(len(self.blocks))]
        if mask is not None:
            return [mask if part is None else mask & ~part for part in hidden]
        return [whole if part is None else additive(~part, x.dtype) for part in hidden]
