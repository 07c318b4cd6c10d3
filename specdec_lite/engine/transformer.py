"""A Llama-family decoder that is fast at batch 1 and short enough to read in one sitting.

The architecture has RMSNorm, rotary positions, grouped queries and SwiGLU, with optional q/k/v
bias, q/k norm, sliding window and tied embeddings. `native` runs its passes over a cache, `hf_state`
translates its weights to and from Hugging Face's.

Shapes: B batch, n tokens fed, m tokens already stored, d hidden size, H query heads, G key/value
heads, h head size.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.engine.cache import aligned


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """The sizes and options of a Llama-family model.

    Attributes:
        vocab_size: V.
        hidden_size: d.
        intermediate_size: width of the MLP.
        num_layers: number of blocks.
        num_heads: H.
        num_kv_heads: G, a divisor of H.
        head_size: h.
        rope_theta: base of the rotary frequencies.
        norm_eps: added to the mean square in RMSNorm.
        max_positions: context length.
        qkv_bias: whether queries, keys and values have a bias.
        qk_norm: whether queries and keys are normalized.
        tied: whether the head's weights are the embedding's.
        window: a token attends to itself and window - 1 positions before; None: to all.
        rope_scaling: Hugging Face's `rope_parameters` of an extended context.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    max_positions: int = 2048
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = True
    window: int | None = None
    rope_scaling: dict | None = field(default=None, hash=False)


def scaled(config: TransformerConfig, device) -> tuple[Tensor, float]:
    """Return the rotary frequencies [h/2] of an extended context, and the factor of cos and sin.

    Slow frequencies are divided by a factor. Sources: Grattafiori et al. 2024 (Llama 3); Peng et al.
    2023 (YaRN, arXiv 2309.00071).
    """
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope: dict[str, Any] = {**(config.rope_scaling or {}), "rope_theta": config.rope_theta}
    theirs = LlamaConfig(
        head_dim=config.head_size,
        max_position_embeddings=config.max_positions,
        rope_parameters=rope,
    )
    return ROPE_INIT_FUNCTIONS[rope["rope_type"]](theirs, device)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return queries or keys after rotary position embedding.

    The layout is Llama's: the first half of the features is paired with the second half.

    Shapes: x [B, heads, n, h], cos [n, h], sin [n, h].
    """
    # The first half of sin is negated (see `rotary`), so that one roll replaces two slices, a minus
    # and a concatenation.
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


def store(
    past: tuple[Tensor, Tensor], k: Tensor, v: Tensor, start: int | Tensor
) -> tuple[Tensor, Tensor]:
    """Write new keys and values to a layer's storage, and return those that attention reads.

    Shapes: k [B, G, n, h], v [B, G, n, h].
    """
    keys, values = past
    # A tensor `start` is for recorded passes and ragged batches: their shapes must not depend on the
    # length, so attention reads the whole storage and the mask hides the rest.
    if isinstance(start, Tensor) and start.dim() == 2:
        slots = start[:, None, :, None].expand_as(k)
        return keys.scatter_(2, slots, k), values.scatter_(2, slots, v)
    if isinstance(start, Tensor):
        return keys.index_copy_(2, start, k), values.index_copy_(2, start, v)
    end = start + k.shape[2]
    keys[:, :, start:end], values[:, :, start:end] = k, v
    return keys[:, :, :end], values[:, :, :end]


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    """Return the attention output [B, H, n, h].

    If G < H and there is a mask, the query heads that share a key head become rows of one head.
    Then every fused kernel takes the mask. For grouped queries with a mask, PyTorch may choose a
    kernel that reads the keys several times.

    Shapes: k [B, G, m+n, h], v [B, G, m+n, h].
    """
    batch, heads, n, size = q.shape
    groups = k.shape[1]
    if groups == heads or causal:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=causal, enable_gqa=groups != heads
        )
    rows = q.reshape(batch, groups, heads // groups * n, size)
    if bias is not None and bias.shape[-2] == n:  # else `forward` has repeated it for all layers
        bias = repeated(bias, heads // groups)
    return F.scaled_dot_product_attention(rows, k, v, attn_mask=bias).reshape(q.shape)


def attend_by_row(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Return the attention output [1, H, n, h], every row computed as if it were the only one.

    A kernel that takes several rows together may add up in another order. Here each row is a batch
    entry of its own, so a row's result does not depend on the number of rows. It does not depend on
    w either, if w is a multiple of `LANES`: masked keys then add zeros to complete vectors. Several
    rows take up to three times as long as together.

    Shapes: k [1, G, w, h], v [1, G, w, h].
    """
    _, heads, n, size = q.shape
    groups = k.shape[1]
    rows = q.view(groups, heads // groups, n, size).permute(2, 0, 1, 3)
    mask = bias[:, None, None].expand(-1, 1, heads // groups, -1)
    k, v = (entries.expand(n, -1, -1, -1) for entries in (k, v))
    mixed = F.scaled_dot_product_attention(rows, k, v, attn_mask=mask)
    return mixed.permute(1, 2, 0, 3).reshape(q.shape)


def repeated(bias: Tensor, times: int) -> Tensor:
    """Return a mask repeated for the query heads that share a key head: `aligned` [..., times·n, m].

    Shapes: bias [..., n, m].
    """
    if times == 1:
        return bias
    *outer, n, m = bias.shape
    rows = aligned((*outer, times, n, m), bias.dtype, bias.device)
    return rows.copy_(bias.unsqueeze(-3)).flatten(-3, -2)


LANES = 16
"""A multiple of the float32 numbers that a CPU adds at a time."""
FEW = 4096
"""Number of elements up to which a CPU spends more time on calling kernels than in them."""


class Norm(nn.Module):
    """Root-mean-square normalization."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        """Return x [..., size] normalized; the mean is taken in float32 or finer."""
        is_small = x.device.type == "cpu" and x.numel() <= FEW
        # In bfloat16 the two ways round differently: a row would depend on the number of rows.
        if torch.is_grad_enabled() or not is_small or x.dtype == torch.bfloat16:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        # On a CPU, rms_norm takes nine kernels and layer_norm takes one. (x, −x) has mean 0, and
        # its variance is the mean square of x.
        both = torch.cat((x, -x), dim=-1)
        scaled = F.layer_norm(both, both.shape[-1:], eps=self.eps)
        return scaled[..., : x.shape[-1]] * self.weight


class Block(nn.Module):
    """One decoder layer: attention, then a gated MLP, each added to the residual stream."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.heads = config.num_heads
        self.kv_heads = config.num_kv_heads
        self.head_size = config.head_size
        self.norm1, self.norm2 = (Norm(config.hidden_size, config.norm_eps) for _ in range(2))
        width = (config.num_heads + 2 * config.num_kv_heads) * config.head_size
        self.qkv = nn.Linear(config.hidden_size, width, bias=config.qkv_bias)
        self.out = nn.Linear(config.num_heads * config.head_size, config.hidden_size, bias=False)
        self.gate_up = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.q_norm, self.k_norm = (
            (Norm(config.head_size, config.norm_eps) if config.qk_norm else None) for _ in range(2)
        )

    def attention(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        bias: Tensor | None,
        past=None,
        start: int | Tensor = 0,
        width: int | None = None,
    ) -> Tensor:
        """Return the attention sublayer's output [B, n, d], without the residual.

        Shapes: cos [n, h], sin [n, h].
        """
        batch, n, _ = x.shape
        q, k, v = self.rotated(x, cos, sin)
        if past is not None:
            k, v = store(past, k, v, start)
        if width is None or past is None or bias is None:
            mixed = attend(q, k, v, bias, causal=bias is None and n > 1)
        else:
            k, v = (entries[:, :, :width] for entries in past)
            mixed = attend_by_row(q, k, v, bias)
        return self.out(mixed.transpose(1, 2).reshape(batch, n, -1))

    def rotated(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [B, H, n, h], keys and values [B, G, n, h], after rotary embedding."""
        # One product for queries, keys and values: a small pass is bound by the number of kernels.
        qkv = self.qkv(self.norm1(x)).view(*x.shape[:2], -1, self.head_size).transpose(1, 2)
        heads = (self.heads, self.kv_heads)
        if self.q_norm is None or self.k_norm is None:
            qk, v = qkv.split_with_sizes((sum(heads), self.kv_heads), dim=1)
            q, k = rotate(qk, cos, sin).split_with_sizes(heads, dim=1)
        else:
            q, k, v = qkv.split_with_sizes((*heads, self.kv_heads), dim=1)
            q, k = rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)
        return q, k, v

    def queries(self, x: Tensor) -> Tensor:
        """Return the query heads [..., H, h] of the attention, before rotary embedding.

        Shapes: x [..., d].
        """
        q = self.qkv(self.norm1(x)).unflatten(-1, (-1, self.head_size))[..., : self.heads, :]
        return q if self.q_norm is None else self.q_norm(q)

    def mlp(self, x: Tensor) -> Tensor:
        """Return the MLP sublayer's output [B, n, d], without the residual."""
        # Both projections in one product, as for queries, keys and values.
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Transformer(nn.Module):
    """Embedding, blocks, final norm and head.

    It equals Hugging Face's `LlamaForCausalLM` to rounding. Source: Touvron et al. 2023.

    Attributes:
        rows_alone: number of rows up to which a chain's rows do not depend on each other's number
            (see `attend_by_row`). This is worth its time only if the linear layers behave so too.
        decoder: runs whole blocks on such chains (see `int4.decode`); None if there is none.
    """

    decoder: Callable[..., Tensor | None] | None

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        size = (config.vocab_size, config.hidden_size)
        if torch.get_default_device().type == "meta":  # drawing weights there imports a compiler
            self.embedding = nn.Embedding.from_pretrained(torch.empty(size), freeze=False)
        else:
            self.embedding = nn.Embedding(*size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = Norm(config.hidden_size, config.norm_eps)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tied:  # one matrix in memory
            self.head.weight = self.embedding.weight
        self.rows_alone = 0
        self.decoder = None
        self._tables: dict = {}

    def __getstate__(self) -> dict:
        """Return the state of a copy, which computes its own tables when it needs them."""
        return self.__dict__ | {"_tables": {}}

    def rotary(self, device, dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin [max_positions, h] for `rotate`; the first half of sin is negated.

        The angles are computed in float32 for every dtype: bfloat16 angles are wrong angles.
        """
        if (device, dtype) not in self._tables:
            # No inference tensors: a training pass may need the tables later.
            with torch.inference_mode(False), torch.no_grad():
                config, factor = self.config, 1.0
                steps = torch.arange(config.max_positions, device=device).float()
                pairs = torch.arange(0, config.head_size, 2, device=device).float()
                frequencies = 1.0 / config.rope_theta ** (pairs / config.head_size)
                if config.rope_scaling is not None:
                    frequencies, factor = scaled(config, device)
                angles = torch.outer(steps, frequencies)
                cos, sin = factor * angles.cos(), factor * angles.sin()
                tables = cos.repeat(1, 2), torch.cat((-sin, sin), -1)
                self._tables[device, dtype] = tuple(table.to(dtype) for table in tables)
        return self._tables[device, dtype]

    def forward(
        self,
        tokens: Tensor,
        storage: Any = None,
        start: int | Tensor = 0,
        positions: Tensor | None = None,
        bias: Tensor | None = None,
        layers: int | None = None,
        keep: dict | None = None,
        last: bool = False,
        *,
        states: tuple[int, Tensor] | None = None,
        skip: Collection[tuple[int, str]] = (),
        head: bool = True,
        width: int | None = None,
    ) -> Tensor:
        """Run a pass and return its logits.

        Shapes: tokens [B, n].
        """
        first, x = (0, self.embedding(tokens)) if states is None else states
        rows = slice(start, start + tokens.shape[1]) if positions is None else positions
        cos, sin = self.rotary(x.device, x.dtype)
        cos, sin = cos[rows], sin[rows]
        if cos.dim() == 3:
            cos, sin = cos[:, None], sin[:, None]
        # `width` is given for a short chain only; everything else takes the usual kernel.
        if bias is not None and not width:
            bias = repeated(bias, self.config.num_heads // self.config.num_kv_heads)
        keep = {} if keep is None else keep
        if first in keep:  # the keys of `keep` are the layers asked for; it returns their states
            keep[first] = x
        # A slice of the module list would build a new module in every pass.
        for index, block in enumerate(islice(self.blocks, first, layers), start=first):
            past = None if storage is None else storage.layers[index]
            after = None
            if self.decoder is not None and width and not skip:
                after = self.decoder(block, x, (cos, sin), past, start)
            if after is None:
                after = x
                if (index, "attention") not in skip:
                    after = x + block.attention(x, cos, sin, bias, past, start, width)  # pyright: ignore[reportCallIssue]
                if (index, "mlp") not in skip:
                    after = after + block.mlp(after)  # pyright: ignore[reportCallIssue]
            x = after
            if index + 1 in keep:
                keep[index + 1] = x
        x = self.norm(x)
        if "final" in keep:
            keep["final"] = x
        if not head:
            return x.new_empty(len(x), 0, self.config.vocab_size)
        return self.head(x[:, -1:] if last else x)
