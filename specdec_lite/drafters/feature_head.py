"""One decoder block that goes on from a target's hidden states: what the EAGLE family and
multi-token prediction draft with.

What lives here: the three kinds of block. What does not: drafting with them (`eagle`, `mtp`), their
training (`training.eagle`), their file (`loading.weights`).

A block is fed *pairs*: the state of token t_i and the embedding of token t_{i+1}, at position i, and
says t_{i+2}. What it puts out stands in for the state of t_{i+1} when the next pair is drafted.
Shapes: d hidden size, v tokens of the draft's vocabulary, V of the target's.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.checks import model
from specdec_lite.drafters.words import Words
from specdec_lite.engine.cache import Layer
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Block, Norm, Transformer, TransformerConfig

FIXED = {"num_layers": 1, "tied": False, "window": None, "qkv_bias": False, "qk_norm": False}


class FeatureHead(Words):
    """What all kinds share: a block, a linear layer that fuses, and the draft's vocabulary.

    Args:
        layers: the target's hidden states that it reads.
        vocab_size: v, at most V; `ids` [v] says which of the target's tokens these are.
        shape: the other fields of a `TransformerConfig`.

    What is not trained, the embeddings and (but for an own `head`) the rows of the vocabulary
    projection, is the target's.
    """

    def __init__(self, layers: Sequence[Layer], vocab_size: int, **shape):
        super().__init__(vocab_size)
        self.layers = tuple(layers)
        self.shape = TransformerConfig(vocab_size=vocab_size, **shape | FIXED)
        self.size = self.shape.hidden_size
        self.block = Block(self.shape)
        self.norm: nn.Module = nn.Identity()
        self.head: nn.Linear | None = None
        self.fuse = nn.Linear(2 * self.size, self.size, bias=False)

    @classmethod
    def beside(
        cls,
        target: CausalLM,
        ids: Tensor | None = None,
        layers: Sequence[Layer] | None = None,
        **shape,
    ) -> "FeatureHead":
        """An untrained one for a target, in float32.

        Args:
            target: whose sizes it takes where it is native.
            ids: the tokens [v] that it drafts; None: all.
            layers: None: the kind's own.
            shape: other sizes, as a `TransformerConfig` names them.
        """
        ids = torch.arange(target.vocab_size) if ids is None else ids.cpu().sort().values
        layers = cls.reads(target.num_layers) if layers is None else layers
        own = shape_for(target)
        sizes = asdict(own) | shape
        made = cls(layers, **sizes | {"vocab_size": len(ids)})
        made.ids.copy_(ids)
        return made

    @staticmethod
    def reads(num_layers: int) -> tuple[Layer, ...]:
        """The layers that this kind reads of a target with so many blocks."""
        return ("final",)

    @property
    def config(self) -> dict:
        """What one of these sizes is built with."""
        shape = {name: value for name, value in asdict(self.shape).items() if name not in FIXED}
        return {"layers": list(self.layers), **shape}

    def begin(self, features: Sequence[Tensor]) -> Tensor:
        """The target's states [..., d], one of each layer → the state [..., d] of a pair."""
        return features[0]

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        """The second token's embedding and the first one's state [..., d] → the block's input."""
        raise NotImplementedError

    def leave(self, output: Tensor) -> Tensor:
        """The block's output → the state [..., d] that the next drafted pair is made with."""
        return output[..., -self.size :]

    def logits(self, output: Tensor, rows: Tensor) -> Tensor:
        """The block's output → logits [..., v]; rows [v, d] as `rows` gives them."""
        return F.linear(self.norm(output), rows)

    def rows(self, target: CausalLM) -> Tensor:
        """[v, d]: the rows of the vocabulary projection, its own or the target's."""
        if self.head is not None:
            return self.head.weight
        weight = target.backend.head.weight.detach()
        return weight if len(self.ids) == len(weight) else weight[self.ids]

    def body(self, target: CausalLM) -> CausalLM:
        """The block as a language model of one layer, whose embeddings are given to it as states."""
        width = self.block.qkv.in_features
        with torch.device("meta"):
            model = Transformer(replace(self.shape, hidden_size=width))
        model.embedding = target.backend.embedding
        model.blocks = nn.ModuleList([self.block])
        model.norm = self.norm
        model.head = nn.Linear(*reversed(self.rows(target).shape), bias=False, device="meta")
        model.head.weight = nn.Parameter(self.rows(target), requires_grad=False)
        return CausalLM(model)


class Eagle1Head(FeatureHead):
    """[e; f] → d, then a block without an input norm, whose output is the next feature: what enters
    the vocabulary projection. Source: Li et al. 2024a, section 3; without the bias, as vLLM has it.
    """

    def __init__(self, layers: Sequence[Layer], vocab_size: int, **shape):
        super().__init__(layers, vocab_size, **shape)
        self.block.norm1 = nn.Identity()

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return self.fuse(torch.cat((embedded, state), -1))


class Tail(Norm):
    """The norm of the last entries, as many as it has weights for."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[..., -len(self.weight) :])


class Pair(nn.Module):
    """A norm for either half."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.embedded, self.state = Norm(size, eps), Norm(size, eps)

    def forward(self, x: Tensor) -> Tensor:
        embedded, state = x.chunk(2, -1)
        return torch.cat((self.embedded(embedded), self.state(state)), -1)


class WideBlock(Block):
    """A block on [e; g] (2d) that reads both and writes to g alone."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        self.norm1 = Pair(config.hidden_size, config.norm_eps)
        self.qkv = nn.Linear(2 * config.hidden_size, self.qkv.out_features, bias=False)

    def attention(self, x: Tensor, *args, **options) -> Tensor:
        return self.beside(super().attention(x, *args, **options))

    def mlp(self, x: Tensor) -> Tensor:
        return self.beside(super().mlp(x[..., x.shape[-1] // 2 :]))

    @staticmethod
    def beside(written: Tensor) -> Tensor:
        return F.pad(written, (written.shape[-1], 0))


class Eagle3Head(FeatureHead):
    """Three depths fused into g, [e; g] into a wide block, an own head: a block that owes nobody a
    feature. Source: Li et al. 2025, section 3; depths as in the authors' code.
    """

    def __init__(self, layers: Sequence[Layer], vocab_size: int, **shape):
        super().__init__(layers, vocab_size, **shape)
        self.block = WideBlock(self.shape)
        self.fuse = nn.Linear(len(self.layers) * self.size, self.size, bias=False)
        self.norm = Tail(self.size, self.shape.norm_eps)
        self.head = nn.Linear(self.size, vocab_size, bias=False)

    @staticmethod
    def reads(num_layers: int) -> tuple[Layer, ...]:
        if num_layers > 6:
            return 2, num_layers // 2, num_layers - 3
        return tuple(dict.fromkeys((0, num_layers // 2, "final")))

    def begin(self, features: Sequence[Tensor]) -> Tensor:
        return self.fuse(torch.cat(tuple(features), -1))

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return torch.cat((embedded, state), -1)


class MtpHead(FeatureHead):
    """Both halves normed, the state first, then a whole block and a norm before the vocabulary
    projection; what is normed is recycled. Source: DeepSeek-AI 2024, section 2.2, equations 21–23.
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
    """The sizes of the target's own blocks; for a model of Hugging Face, those of a usual one."""
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
