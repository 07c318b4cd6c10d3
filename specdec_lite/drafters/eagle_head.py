"""One decoder block that continues from a target's hidden states, for EAGLE and MTP drafts.

A block is fed *pairs*: the state of token t_i and the embedding of token t_{i+1}, at position i. It
predicts t_{i+2}, and its output replaces the state of t_{i+1} when the next pair is drafted.
Shapes: d hidden size, v tokens of the draft's vocabulary, V of the target's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.checks import model
from specdec_lite.drafters.heads import DraftVocabulary
from specdec_lite.engine.cache import Layer
from specdec_lite.engine.int4 import can_decode, is_int4, let_rows_alone, product, round_layers
from specdec_lite.engine.linear import pack
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Block, Norm, Transformer, TransformerConfig

BITS = 4
"""Bits of the weights of a head whose target multiplies by 4-bit weights, and of its vocabulary rows."""
FIXED = {"num_layers": 1, "tied": False, "window": None, "qkv_bias": False, "qk_norm": False}
"""Fields of the config that are the same for all heads of the EAGLE family."""


class FeatureHead(DraftVocabulary):
    """Base class: a block, a linear layer that fuses its inputs, and the draft's vocabulary.

    Embeddings are the target's, and so is the vocabulary projection unless there is a `head`.

    Args:
        layers: the target's hidden states that the head reads.
        vocab_size: size v of the draft's vocabulary, ≤ V; `ids` [v] are these tokens.
        shape: other fields of a `TransformerConfig`.
    """

    def __init__(self, layers: Sequence[Layer], vocab_size: int, **shape):
        super().__init__(vocab_size)
        self.layers = tuple(layers)
        self.shape = TransformerConfig(vocab_size=vocab_size, **shape | FIXED)
        self.size = self.shape.hidden_size
        own = {name: value for name, value in asdict(self.shape).items() if name not in FIXED}
        self.config: dict = {"layers": list(self.layers), **own}
        self.block = Block(self.shape)
        self.norm: nn.Module = nn.Identity()
        self.head: nn.Linear | None = None
        self.fuse = nn.Linear(2 * self.size, self.size, bias=False)

    @classmethod
    def for_target(
        cls,
        target: CausalLM,
        ids: Tensor | None = None,
        layers: Sequence[Layer] | None = None,
        **shape,
    ) -> "FeatureHead":
        """Build an untrained head for a target, in float32."""
        ids = torch.arange(target.vocab_size) if ids is None else ids.cpu().sort().values
        layers = cls.default_layers(target.num_layers) if layers is None else layers
        sizes = asdict(shape_for(target)) | shape
        head = cls(layers, **sizes | {"vocab_size": len(ids)})
        head.ids.copy_(ids)
        return head

    @staticmethod
    def default_layers(num_layers: int) -> tuple[Layer, ...]:
        """Return the hidden states that this class reads by default."""
        return ("final",)

    def extra_repr(self) -> str:
        """Return what the head reads and writes, for its repr."""
        return f"layers={list(self.layers)}, tokens={len(self.ids)}"

    def begin(self, features: Sequence[Tensor]) -> Tensor:
        """Return the state [..., d] of a pair."""
        return features[0]

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        """Return the block's input.

        Shapes: embedded [..., d], state [..., d].
        """
        raise NotImplementedError

    def leave(self, output: Tensor) -> Tensor:
        """Return the state [..., d] of the next drafted pair."""
        return output[..., -self.size :]

    def logits(self, output: Tensor, rows: Tensor) -> Tensor:
        """Return logits [..., v].

        Shapes: rows [v, d].
        """
        return F.linear(self.norm(output), rows)

    def rows(self, target: CausalLM) -> Tensor:
        """Return the rows [v, d] of the vocabulary projection, the head's own or the target's."""
        if self.head is not None:
            return self.head.weight
        weight = target.projection
        # The whole matrix is shared with the target; a reduced vocabulary needs a copy of its rows.
        return weight if len(self.ids) == len(weight) else weight[self.ids]

    @property
    def blocks(self) -> list[Block]:
        """The blocks, in order."""
        return [self.block]

    def body(self, target: CausalLM) -> CausalLM:
        """Return the blocks as a language model, which is fed states, not tokens."""
        width, blocks = self.block.qkv.in_features, self.blocks
        # Built without memory: every weight is replaced by one of the head's or the target's.
        with torch.device("meta"):
            model = Transformer(replace(self.shape, hidden_size=width, num_layers=len(blocks)))
        model.embedding = target.backend.embedding
        model.blocks = nn.ModuleList(blocks)
        model.norm = self.norm  # pyright: ignore[reportAttributeAccessIssue]
        model.head = nn.Linear(*reversed(self.rows(target).shape), bias=False, device="meta")
        model.head.weight = nn.Parameter(self.rows(target), requires_grad=False)
        if is_int4(target.model) and product() is not None:
            round_layers(self.fuse, BITS)
            round_layers(model, BITS)
            if all(map(can_decode, blocks)):
                let_rows_alone(model)
            return CausalLM(model)
        pack(self.fuse)
        return CausalLM(pack(model))


class Eagle1Head(FeatureHead):
    """EAGLE-1: [e; f] → d, then a block without an input norm, whose output is the next feature.

    Features are the states that enter the vocabulary projection. Source: Li et al. 2024a, section
    3; without the bias, as in vLLM.
    """

    def __init__(self, layers: Sequence[Layer], vocab_size: int, **shape):
        super().__init__(layers, vocab_size, **shape)
        self.block.norm1 = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return self.fuse(torch.cat((embedded, state), -1))


class Tail(Norm):
    """Normalize the last entries of a vector, as many as there are weights."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[..., -len(self.weight) :])


class Pair(nn.Module):
    """Normalize the two halves of a vector separately.

    Args:
        size: entries per half.
        eps: the norms' ε.
    """

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.embedded: nn.Module = Norm(size, eps)
        self.state: nn.Module = Norm(size, eps)

    def forward(self, x: Tensor) -> Tensor:
        embedded, state = x.chunk(2, -1)
        return torch.cat((self.embedded(embedded), self.state(state)), -1)


class WideBlock(Block):
    """A block on [e; g] (2d) that reads both halves and changes only g."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        self.norm1 = Pair(config.hidden_size, config.norm_eps)
        self.qkv = nn.Linear(2 * config.hidden_size, self.qkv.out_features, bias=False)

    def attention(self, x: Tensor, *args, **options) -> Tensor:
        # Zeros on the left: the residual sum leaves the embedding's half as it is.
        return self.pad_left(super().attention(x, *args, **options))

    def mlp(self, x: Tensor) -> Tensor:
        return self.pad_left(super().mlp(x[..., x.shape[-1] // 2 :]))

    @staticmethod
    def pad_left(written: Tensor) -> Tensor:
        """Return [0; written] of tensors [..., d]."""
        return F.pad(written, (written.shape[-1], 0))


class Eagle3Head(FeatureHead):
    """EAGLE-3: states of three depths fused into g, a wide block on [e; g], and its own head.

    Its output need not match any feature. Source: Li et al. 2025, section 3; depths as in the
    authors' code. EAGLE-3.1 is `fc_norm` with `norm_output`. Without them the states grow from
    depth to depth, and attention drifts to the head's own outputs. Source: arXiv 2605.09992; the
    options are those of `speculators`.

    Args:
        layers: the target's hidden states that the head reads.
        vocab_size: size v of the draft's vocabulary.
        norm_before_residual: whether the block adds to the normed g instead of g.
        norm_before_fc: whether the states are normed together before they are fused.
        fc_norm: whether each of them is normed by itself.
        norm_output: whether the next pair continues from the normed output.
        shape: other fields of a `TransformerConfig`.

    Raises:
        ValueError: norm_before_fc and fc_norm are both set.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        vocab_size: int,
        norm_before_residual: bool = False,
        norm_before_fc: bool = False,
        fc_norm: bool = False,
        norm_output: bool = False,
        **shape,
    ):
        super().__init__(layers, vocab_size, **shape)
        if norm_before_fc and fc_norm:
            raise ValueError("norm_before_fc and fc_norm: must not both be true")
        self.options = {
            "norm_before_residual": norm_before_residual,
            "norm_before_fc": norm_before_fc,
            "fc_norm": fc_norm,
            "norm_output": norm_output,
        }
        self.config |= {name: True for name, is_set in self.options.items() if is_set}
        count, eps = len(self.layers), self.shape.norm_eps
        self.together: nn.Module = Norm(count * self.size, eps) if norm_before_fc else nn.Identity()
        self.each = nn.ModuleList(Norm(self.size, eps) for _ in range(count)) if fc_norm else None
        self.block = WideBlock(self.shape)
        self.before: nn.Module = nn.Identity()
        if norm_before_residual:
            # Normed once before the block, so that the residual adds to the normed state.
            self.before, self.block.norm1.state = self.block.norm1.state, nn.Identity()
        self.fuse = nn.Linear(len(self.layers) * self.size, self.size, bias=False)
        self.norm = Tail(self.size, self.shape.norm_eps)
        self.head = nn.Linear(self.size, vocab_size, bias=False)

    @staticmethod
    def default_layers(num_layers: int) -> tuple[Layer, ...]:
        if num_layers > 6:
            return 2, num_layers // 2, num_layers - 3
        return tuple(dict.fromkeys((0, num_layers // 2, "final")))

    def begin(self, features: Sequence[Tensor]) -> Tensor:
        if self.each is not None:
            features = [norm(state) for norm, state in zip(self.each, features, strict=True)]
        return self.fuse(self.together(torch.cat(tuple(features), -1)))

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return torch.cat((embedded, self.before(state)), -1)

    def leave(self, output: Tensor) -> Tensor:
        return self.norm(output) if self.options["norm_output"] else super().leave(output)


class MtpHead(FeatureHead):
    """Multi-token prediction: both inputs normed, a full block, and a norm before the projection.

    The state comes first in the input, and the normed output is the next state. Source:
    DeepSeek-AI 2024, section 2.2, equations 21–23.
    """

    def __init__(self, layers: Sequence[Layer], vocab_size: int, **shape):
        super().__init__(layers, vocab_size, **shape)
        self.inputs = Pair(self.size, self.shape.norm_eps)
        self.norm = Norm(self.size, self.shape.norm_eps)

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        embedded, state = self.inputs(torch.cat((embedded, state), -1)).chunk(2, -1)
        return self.fuse(torch.cat((state, embedded), -1))

    def leave(self, output: Tensor) -> Tensor:
        return self.norm(output)


def shape_for(target: CausalLM) -> TransformerConfig:
    """Return the sizes of the target's blocks; for a Hugging Face model, typical sizes."""
    if model("target", target).native:
        return replace(target.model.config, **FIXED)
    size = target.hidden_size
    heads = max(1, size // 64)
    return TransformerConfig(
        vocab_size=target.vocab_size,
        hidden_size=size,
        intermediate_size=3 * size,
        num_layers=1,
        num_heads=heads,
        num_kv_heads=heads,
        head_size=size // heads,
        max_positions=min(target.max_positions, 8192),
    )


# P-EAGLE ----------------------------------------------------------------------------------------
# Source: Hui et al. 2026, arXiv 2602.01469; formats of `speculators`, SpecForge and vLLM.


class TailBlock(Block):
    """A block on the second half of its input [e; g]; the first half stays as it is."""

    def attention(self, x: Tensor, *args, **options) -> Tensor:
        return WideBlock.pad_left(super().attention(tail(x), *args, **options))

    def mlp(self, x: Tensor) -> Tensor:
        return WideBlock.pad_left(super().mlp(tail(x)))


def tail(x: Tensor) -> Tensor:
    """Return the second half of vectors."""
    return x[..., x.shape[-1] // 2 :]


class ParallelEagleHead(Eagle3Head):
    """EAGLE-3 with more blocks, and with a pair of its own for tokens that are not drafted yet.

    A mask pairs a learned state, which stands for the target's states and is fused like them, with
    the embedding of the mask's token.

    Args:
        layers: the target's hidden states that the head reads.
        vocab_size: size v of the draft's vocabulary.
        depth: number of blocks.
        mask_id: the mask's token.
        embeddings: rows of the head's own embedding; 0: it reads the target's.
        options: the options of `Eagle3Head`, and fields of a `TransformerConfig`.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        vocab_size: int,
        depth: int = 1,
        mask_id: int = 0,
        embeddings: int = 0,
        **options,
    ):
        super().__init__(layers, vocab_size, **options)
        self.mask_id = mask_id
        self.config |= {"depth": depth, "mask_id": mask_id, "embeddings": embeddings}
        self.more = nn.ModuleList(TailBlock(self.shape) for _ in range(depth - 1))
        self.mask = nn.Parameter(torch.zeros(len(self.layers) * self.size))
        self.embedding = nn.Embedding(embeddings, self.size) if embeddings else None

    @property
    def blocks(self) -> list[Block]:
        return [self.block, *cast(Iterable[Block], self.more)]

    def mask_state(self) -> Tensor:
        """Return the state [d] of a mask, fused and normed as the target's states are."""
        return self.begin(self.mask.split(self.size))

    def embed(self, tokens: Tensor, target: CausalLM) -> Tensor:
        """Return the embeddings [n, d] of tokens, the head's own or the target's."""
        return target.embed(tokens) if self.embedding is None else self.embedding(tokens)
