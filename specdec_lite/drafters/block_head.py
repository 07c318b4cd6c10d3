"""The modules of drafts in one pass: block diffusion's layers, and corrections of its rows.

Shapes: B texts, n tokens, a draft blocks per text, s positions per block, d hidden size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.checks import instance
from specdec_lite.drafters.eagle_head import FIXED, shape_for
from specdec_lite.drafters.heads import DraftVocabulary, OutputHead
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

# Parts of block heads ---------------------------------------------------------------------------
# What published block heads add to DFlash. Sources: DSpark, Cheng et al. 2026 (the anchor's own
# row, the confidence); DFlash 2, vllm-project/vllm#52816 (convolutions); `speculators` (windows,
# causal layers).


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
    """A block with a convolution on both sides of each sublayer."""

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


# Corrections of rows by the token before --------------------------------------------------------
# Sources: Cheng et al. 2026 (DSpark), the Markov head; DFlash 2 (vllm-project/vllm#52816), the
# selector.


class Correction(nn.Module):
    """The logits that a token adds to the row after it: a V × V table of rank r.

    A new correction adds nothing.

    Args:
        vocab_size: V, or the size v of the draft vocabulary.
        rank: rank r.
        others: add one input row for all tokens outside the draft vocabulary.
        inputs: number of input rows if every token of the target has one; 0: the draft
            vocabulary's tokens have one each.
    """

    def __init__(self, vocab_size: int, rank: int = 32, others: bool = False, inputs: int = 0):
        super().__init__()
        self.inputs = inputs
        self.before = nn.Embedding(inputs or vocab_size + others, rank)
        self.after = nn.Linear(rank, vocab_size, bias=False)
        nn.init.zeros_(self.after.weight)
        more = {"inputs": inputs} if inputs else {"others": True} if others else {}
        self.config = {"vocab_size": vocab_size, "rank": rank} | more

    def index(self, tokens: Tensor, words: DraftVocabulary | None) -> Tensor:
        """Return the input row of each of the target's tokens."""
        return tokens if words is None or self.inputs else words.number(tokens)

    def forward(self, index: Tensor) -> Tensor:
        """Return the logits [..., V] to add to the rows after some tokens."""
        return self.after(self.before(index))

    def correct(self, rows: Tensor, index: Tensor, states: Tensor) -> Tensor:
        """Return the logits [..., V] from which the tokens after some tokens are drawn.

        Args:
            rows: [..., V], the logits that do not know the token before.
            index: [...], the input row of the token before.
            states: [..., d], what the logits were made from.
        """
        return rows + self(index)


class Selector(Correction):
    """Score pairs of neighboring tokens, and leave only the likeliest of each row.

    A token b of the k likeliest has the score row[b] + ⟨A[a] · G h, B[b]⟩ after token a, where h
    is the row's state; all other tokens have −∞. A new selector only cuts the rows to k tokens.

    Args:
        vocab_size: V, or the size v of the draft vocabulary.
        rank: rank r of A and B.
        others: as for `Correction`.
        inputs: as for `Correction`.
        candidates: number k of tokens left in a row.
        width: size d of the states that weigh the r products; 0: all weigh the same.
    """

    def __init__(
        self,
        vocab_size: int,
        rank: int = 32,
        others: bool = False,
        inputs: int = 0,
        candidates: int = 16,
        width: int = 0,
    ):
        super().__init__(vocab_size, rank, others, inputs)
        self.candidates = min(candidates, vocab_size)
        self.gate = nn.Linear(width, rank, bias=False) if width else None
        self.config |= {"candidates": self.candidates} | ({"width": width} if width else {})

    def scores(self, values: Tensor, tokens: Tensor, index: Tensor, states: Tensor) -> Tensor:
        """Return the scores [..., k] of candidates after the token before.

        Args:
            values: [..., k], the candidates' logits.
            tokens: [..., k], the candidates.
            index: [...], the input row of the token before.
            states: [..., d], what the logits were made from.
        """
        pair = self.before(index)
        if self.gate is not None:
            pair = pair * self.gate(states)
        after = F.embedding(tokens, self.after.weight)
        return values + (after @ pair[..., None])[..., 0]

    def correct(self, rows: Tensor, index: Tensor, states: Tensor) -> Tensor:
        values, tokens = rows.topk(self.candidates, -1)
        scores = self.scores(values, tokens, index, states)
        return torch.full_like(rows, float("-inf")).scatter(-1, tokens, scores)


def stored_correction(**config) -> Correction:
    """Build an untrained correction, or a selector if the config states its candidates."""
    return Selector(**config) if "candidates" in config else Correction(**config)


def check_correction(correction: Correction, target: CausalLM | OutputHead) -> None:
    """Check that a correction fits the rows it is added to."""
    instance("correction", correction, Correction)
    if correction.config["vocab_size"] != target.vocab_size:
        raise ValueError(
            f"correction is for {correction.config['vocab_size']} tokens: the rows are of"
            f" {target.vocab_size}"
        )


# The layers of block diffusion ------------------------------------------------------------------

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

    def extra_repr(self) -> str:
        """Return what the head reads and predicts, for its repr."""
        return f"layers={list(self.layers)}, size={self.size}, most={self.most}"

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
