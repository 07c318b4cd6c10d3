"""A Llama-family decoder that is quick at batch 1 and short enough to read in one sitting.

What lives here: the architecture (RMSNorm, rotary positions, grouped queries, SwiGLU; optional
q/k/v bias, q/k norm, sliding window, tied embeddings), its preallocated key/value storage, and the
translation to and from Hugging Face weights. What does not: sampling, caches that are cut back
(`passes.Cache`), decoding. Shapes: B batch, n tokens fed, m tokens already stored, d hidden size, H
query heads, G key/value heads, h head size.
"""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """The shape of a Llama-family model. `window=None` means full attention."""

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


class Storage:
    """Preallocated keys and values of every layer: two tensors [layers, B, G, capacity, h]."""

    def __init__(self, config: TransformerConfig, batch: int, capacity: int, device, dtype):
        shape = (config.num_layers, batch, config.num_kv_heads, capacity, config.head_size)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.layers = list(zip(self.keys, self.values))

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]

    def row(self, index: int) -> "Storage":
        """One sequence's part of the same memory: [layers, 1, G, capacity, h]."""
        other = object.__new__(Storage)
        other.keys = self.keys[:, index : index + 1]
        other.values = self.values[:, index : index + 1]
        other.layers = list(zip(other.keys, other.values))
        return other


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding in the Llama layout (halves, not interleaved pairs). x: [B, heads,
    n, h]; cos, sin: [n, h] (see `Transformer.rotary`).
    """
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


def store(
    past: tuple[Tensor, Tensor], k: Tensor, v: Tensor, start: int | Tensor
) -> tuple[Tensor, Tensor]:
    """Write k, v [B, G, n, h] into a layer's storage, and return the keys and values that attention
    reads.

    start: the first slot, and what is stored up to the last one is returned; or the slots
    themselves [n], a tensor on the device, and the whole capacity is returned: shapes that never
    change, which a captured graph needs (`graphs`); or slots of each row [B, n], and what is stored
    up to the last of them is returned.
    """
    keys, values = past
    if isinstance(start, Tensor) and start.dim() == 2:
        end = int(start.max()) + 1
        slots = start[:, None, :, None].expand_as(k)
        return keys.scatter_(2, slots, k)[:, :, :end], values.scatter_(2, slots, v)[:, :, :end]
    if isinstance(start, Tensor):
        return keys.index_copy_(2, start, k), values.index_copy_(2, start, v)
    end = start + k.shape[2]
    keys[:, :, start:end], values[:, :, start:end] = k, v
    return keys[:, :, :end], values[:, :, :end]


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    """Attention of q [B, H, n, h] over k, v [B, G, m+n, h], with an additive mask [n, m+n] (or
    [H/G·n, m+n], repeated for the heads of a group once for all layers; or either with [B, 1] before
    it), the causal one, or none.

    Where G < H, the query heads that share a key head become rows of one head: then every fused
    kernel takes the mask, where for grouped queries with a mask some leave it to one that reads the
    keys several times.
    """
    batch, heads, n, size = q.shape
    groups = k.shape[1]
    if groups == heads or causal:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=causal, enable_gqa=groups != heads
        )
    rows = q.reshape(batch, groups, heads // groups * n, size)
    if bias is not None and bias.shape[-2] == n:
        bias = repeated(bias, heads // groups)
    return F.scaled_dot_product_attention(rows, k, v, attn_mask=bias).reshape(q.shape)


def repeated(bias: Tensor, times: int) -> Tensor:
    """An additive mask [..., n, m] once for every head of a group: [..., times·n, m]."""
    return bias if times == 1 else bias.repeat(*(1,) * (bias.dim() - 2), times, 1)


def steady_attention(device: torch.device) -> AbstractContextManager:
    """On a GPU, attention without cuDNN: it builds a plan for every exact shape, and a growing
    cache is a new shape every token. Elsewhere, and where no other fused kernel is switched on (see
    `torch.nn.attention.sdpa_kernel`), nothing is changed.
    """
    cuda = torch.backends.cuda
    if device.type != "cuda" or not cuda.cudnn_sdp_enabled():
        return nullcontext()
    others = cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled()
    return _without_cudnn() if others else nullcontext()


@contextmanager
def _without_cudnn() -> Iterator[None]:
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


FEW = 4096
"""Numbers up to which a CPU spends more on calling kernels than in them."""


class Norm(nn.Module):
    """Root-mean-square normalisation."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., size] → [..., size]; the mean is taken in float32 at least."""
        if torch.is_grad_enabled() or x.device.type != "cpu" or x.numel() > FEW:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        # On a CPU rms_norm is nine kernels and layer_norm one. (x, −x) has the mean 0, and its
        # variance is the mean square of x.
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
    ) -> Tensor:
        """x: [B, n, d]; cos, sin: [n, h]; bias: additive [n, m+n], or None: one token sees every
        key, and several, of which none is stored yet, see the plain causal mask. past: this layer's
        (keys, values) [B, G, capacity, h], written at `start` (see `store`).
        """
        batch, n, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, n, -1, self.head_size).transpose(1, 2)
        heads = (self.heads, self.kv_heads)
        if self.q_norm is None:
            qk, v = qkv.split_with_sizes((sum(heads), self.kv_heads), dim=1)
            q, k = rotate(qk, cos, sin).split_with_sizes(heads, dim=1)
        else:
            q, k, v = qkv.split_with_sizes((*heads, self.kv_heads), dim=1)
            q, k = rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)
        if past is not None:
            k, v = store(past, k, v, start)
        seen = attend(q, k, v, bias, causal=bias is None and n > 1)
        return self.out(seen.transpose(1, 2).reshape(batch, n, -1))

    def queries(self, x: Tensor) -> Tensor:
        """x: [..., d] → the query heads [..., H, h] that its attention asks with, not yet turned to
        their position.
        """
        q = self.qkv(self.norm1(x)).unflatten(-1, (-1, self.head_size))[..., : self.heads, :]
        return q if self.q_norm is None else self.q_norm(q)

    def mlp(self, x: Tensor) -> Tensor:
        """x: [B, n, d] → [B, n, d]."""
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Transformer(nn.Module):
    """Embedding, blocks, final norm, head. Source: Touvron et al. 2023; Hugging Face
    `LlamaForCausalLM` to within rounding.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = Norm(config.hidden_size, config.norm_eps)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        self._tables: dict = {}

    def rotary(self, device, dtype) -> tuple[Tensor, Tensor]:
        """cos and sin [max_positions, h], the first half of sin negative: what `rotate` multiplies
        by. Computed in float32 whatever the model's dtype: bf16 angles are wrong angles.
        """
        if (device, dtype) not in self._tables:
            # A pass that trains may need them later.
            with torch.inference_mode(False), torch.no_grad():
                size = self.config.head_size
                steps = torch.arange(self.config.max_positions, device=device).float()
                frequencies = 1.0 / self.config.rope_theta ** (
                    torch.arange(0, size, 2, device=device).float() / size
                )
                angles = torch.outer(steps, frequencies)
                cos, sin = angles.cos().repeat(1, 2), torch.cat((-angles.sin(), angles.sin()), -1)
                self._tables[device, dtype] = cos.to(dtype), sin.to(dtype)
        return self._tables[device, dtype]

    def forward(
        self,
        tokens: Tensor,
        storage: Storage | None = None,
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
    ) -> Tensor:
        """tokens [B, n] → logits [B, n, V] (or [B, 1, V] with `last`: a prefill needs only its last
        row).

        Args:
            storage: where keys and values live, written at `start` (a number, or slots [n] with
                positions and bias: see `store`); None: plain causal attention over `tokens` alone.
            positions: [n] or [B, n] position ids, default start … start+n-1.
            bias: additive attention mask [n, start+n] or [B, 1, n, start+n], needed for several
                tokens after stored ones.
            layers: stop after that many blocks (early exit).
            keep: a dict whose keys (0 = embedding, b = after block b, "final" = after the final
                norm) are filled with hidden states [B, n, d].
            states: (b, rows [B, n, d]): begin behind block b with these rows; b = 0 stands in for
                the embedding.
            skip: sublayers to leave out, as (block from 0, "attention" or "mlp").
            head: False leaves the vocabulary projection out: logits without rows.
        """
        first, x = (0, self.embedding(tokens)) if states is None else states
        cos, sin = self.rotary(x.device, x.dtype)
        cos, sin = (
            t[start : start + tokens.shape[1]] if positions is None else t[positions]
            for t in (cos, sin)
        )
        if cos.dim() == 3:
            cos = cos[:, None]
            sin = sin[:, None]
        if bias is not None:
            bias = repeated(bias, self.config.num_heads // self.config.num_kv_heads)
        keep = {} if keep is None else keep
        if first in keep:
            keep[first] = x
        # A slice of the list would build a module, at every pass.
        for index, block in enumerate(islice(self.blocks, first, layers), start=first):
            past = None if storage is None else storage.layers[index]
            if (index, "attention") not in skip:
                x = x + block.attention(x, cos, sin, bias, past, start)
            if (index, "mlp") not in skip:
                x = x + block.mlp(x)
            if index + 1 in keep:
                keep[index + 1] = x
        x = self.norm(x)
        if "final" in keep:
            keep["final"] = x
        if not head:
            return x.new_empty(len(x), 0, self.config.vocab_size)
        return self.head(x[:, -1:] if last else x)


# Hugging Face weights. Each of our fused matrices is the concatenation of theirs, in this order.
FUSED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
    "norm1": ("input_layernorm",),
    "norm2": ("post_attention_layernorm",),
    "q_norm": ("self_attn.q_norm",),
    "k_norm": ("self_attn.k_norm",),
}


def from_hf_state(state: dict[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """A Hugging Face Llama, Qwen2, Qwen3 or Mistral state dict under our names, matrices fused.

    `state` loses what is taken from it, so that no weight is held twice. KeyError for what it
    lacks.
    """
    ours = {
        "embedding.weight": state.pop("model.embed_tokens.weight"),
        "norm.weight": state.pop("model.norm.weight"),
    }
    ours["head.weight"] = ours["embedding.weight"] if config.tied else state.pop("lm_head.weight")
    for layer in range(config.num_layers):
        for name, theirs in FUSED.items():
            for kind in ("weight", "bias"):
                parts = [
                    state.pop(key)
                    for part in theirs
                    if (key := f"model.layers.{layer}.{part}.{kind}") in state
                ]
                if parts:
                    ours[f"blocks.{layer}.{name}.{kind}"] = (
                        torch.cat(parts) if len(parts) > 1 else parts[0]
                    )
    return ours


def to_hf_state(model: Transformer) -> dict[str, Tensor]:
    """The inverse of `from_hf_state`: what a checkpoint that plain `transformers` loads must hold."""
    config, ours = model.config, model.state_dict()
    state = {
        "model.embed_tokens.weight": ours["embedding.weight"],
        "model.norm.weight": ours["norm.weight"],
    }
    if not config.tied:
        state["lm_head.weight"] = ours["head.weight"]
    heads = config.num_heads
    groups = config.num_kv_heads
    size = config.head_size
    splits = {
        "qkv": [heads * size, groups * size, groups * size],
        "gate_up": [config.intermediate_size] * 2,
    }
    for layer in range(config.num_layers):
        for name, theirs in FUSED.items():
            for kind in ("weight", "bias"):
                fused = ours.get(f"blocks.{layer}.{name}.{kind}")
                if fused is not None:
                    parts = fused.split(splits[name]) if name in splits else [fused]
                    state |= {
                        f"model.layers.{layer}.{part}.{kind}": t.contiguous()
                        for part, t in zip(theirs, parts)
                    }
    return state
