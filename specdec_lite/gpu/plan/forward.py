"""A pass whose keys and values have a fixed length, as fast as PyTorch's kernels allow.

Engines attend with a kernel that splits a long context over the whole card. PyTorch's flash
attention does so too, if it gets no mask. So the rows of a pass see each other here, and the heads of
one key head are rows of one head. The bytes are those of a causal pass, and the arithmetic differs
by less than k in a thousand. Timings depend on shapes alone, and nothing here is decoded.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.engine.models import steady_attention
from specdec_lite.engine.transformer import Block, Transformer, TransformerConfig, store
from specdec_lite.gpu.plan.bench import NoRoom

Mlp = Callable[[int, Block, Tensor], Tensor]


class Layers:
    """Keys and values [B, G, length, h] of every layer, as views of one buffer.

    If the layers do not fit, they take turns with as many views as fit. Together these are far
    larger than any cache of the card, so every layer reads them from memory.
    """

    def __init__(self, buffer: Tensor, config: TransformerConfig, batch: int, length: int):
        shape = (batch, config.num_kv_heads, length, config.head_size)
        size = batch * config.num_kv_heads * length * config.head_size
        count = min(config.num_layers, buffer.numel() // (2 * size))
        if not count:
            raise NoRoom(f"{2 * size * buffer.itemsize} bytes per layer of keys and values")
        halves = buffer[: 2 * count * size].view(count, 2, *shape)
        self.pairs = [(keys, values) for keys, values in halves]

    def __getitem__(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.pairs[layer % len(self.pairs)]


def attention(
    block: Block, x: Tensor, past: tuple[Tensor, Tensor], start: int, tables: tuple[Tensor, Tensor]
) -> Tensor:
    """Return the attention sublayer's output [B, n, d], and store the new keys and values."""
    batch, n, _ = x.shape
    q, k, v = block.rotated(x, *tables)
    shared = block.heads // block.kv_heads
    rows = q.reshape(batch, block.kv_heads, shared * n, block.head_size)
    mixed = F.scaled_dot_product_attention(rows, *store(past, k, v, start))
    # Kernels return other strides than they are given, so the heads are split without a view of all.
    mixed = mixed.unflatten(2, (shared, n)).permute(0, 3, 1, 2, 4)
    return block.out(mixed.reshape(batch, n, -1))


def forward(
    model: Transformer,
    x: Tensor,
    layers: Layers,
    start: int,
    depth: int | None = None,
    mlp: Mlp | None = None,
) -> Tensor:
    """Return the logits [B, n, V] after `depth` layers; None means all.

    x: ids [B, n], or hidden states [B, n, d]. mlp: (layer, block, x) → the MLP's output.
    """
    if not x.is_floating_point():
        x = model.embedding(x)
    tables = tuple(table[start : start + x.shape[1]] for table in model.rotary(x.device, x.dtype))
    with steady_attention(x.device):
        for index, block in enumerate(list(model.blocks)[:depth]):
            x = x + attention(block, x, layers[index], start, tables)  # pyright: ignore[reportArgumentType]
            x = x + (block.mlp(x) if mlp is None else mlp(index, block, x))  # pyright: ignore[reportCallIssue, reportArgumentType]
        return model.head(model.norm(x))


def pass_of(
    model: Transformer,
    layers: Layers,
    batch: int,
    k: int,
    start: int,
    depth: int | None = None,
    mlp: Mlp | None = None,
) -> Callable[[], tuple]:
    """Return a run of one pass over k tokens of each of B sequences."""
    device = model.embedding.weight.device
    ids = torch.randint(model.config.vocab_size, (batch, k)).to(device)
    return lambda: (forward(model, ids, layers, start, depth, mlp),)
