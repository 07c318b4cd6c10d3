"""Sizes of public models and heads from their configurations, and cards from their datasheets."""

from specdec_lite.simulation.estimate import Hardware, Network


def attention(hidden: int, heads: int, kv_heads: int, size: int, width: int | None = None) -> int:
    """Return the weights of a layer's attention; `width` is that of its input, if not `hidden`."""
    return (width or hidden) * size * (heads + 2 * kv_heads) + heads * size * hidden


def model(
    layers: int,
    hidden: int,
    inner: int,
    heads: int,
    kv_heads: int,
    vocabulary: int,
    size: int = 128,
    experts: int = 1,
    chosen: int = 1,
) -> Network:
    """Return a model in bfloat16, its input embeddings left out; `inner` is the width of an expert."""
    mlp, is_dense = 3 * hidden * inner, experts == 1
    block = attention(hidden, heads, kv_heads, size) + (mlp if is_dense else hidden * experts)
    return Network(
        layers * block + hidden * vocabulary,
        cache_bytes=2 * layers * kv_heads * size * 2,
        experts=experts,
        chosen=chosen,
        expert_parameters=0.0 if is_dense else mlp * layers,
        layers=layers,
    )


def eagle3_head(
    hidden: int, inner: int, heads: int, kv_heads: int = 8, vocabulary: int = 32_000
) -> Network:
    """Return an EAGLE-3 head: one layer whose attention reads twice the width, and its own output."""
    block = attention(hidden, heads, kv_heads, 128, 2 * hidden) + 3 * hidden * inner
    return Network(block + hidden * vocabulary, cache_bytes=2 * kv_heads * 128 * 2, layers=1)


def eagle_head(hidden: int, inner: int, heads: int, kv_heads: int, vocabulary: int) -> Network:
    """Return an EAGLE head: a fusing layer, one block, and the target's own output head."""
    block = attention(hidden, heads, kv_heads, 128) + 3 * hidden * inner + 2 * hidden * hidden
    return Network(block + hidden * vocabulary, cache_bytes=2 * kv_heads * 128 * 2, layers=1)


def block_head(network: Network, layers: int, vocabulary: int, hidden: int) -> Network:
    """Return a one-pass drafter: some of the target's layers over a fused input, and its output head."""
    whole = network.parameters - hidden * vocabulary
    own = layers * whole / network.layers + layers * hidden * hidden + hidden * vocabulary
    cache = layers * network.cache_bytes / network.layers
    return Network(own, cache_bytes=cache, layers=layers, block=True)


LLAMA_WORDS, QWEN_WORDS, APERTUS_WORDS = 128_256, 151_936, 131_072
MODELS = {
    "Llama-3.1-8B": model(32, 4096, 14_336, 32, 8, LLAMA_WORDS),
    "Llama-3-70B": model(80, 8192, 28_672, 64, 8, LLAMA_WORDS),
    "Llama-3.2-1B": model(16, 2048, 8192, 32, 8, LLAMA_WORDS, size=64),
    "Qwen3-0.6B": model(28, 1024, 3072, 16, 8, QWEN_WORDS),
    "Qwen3-1.7B": model(28, 2048, 6144, 16, 8, QWEN_WORDS),
    "Qwen3-4B": model(36, 2560, 9728, 32, 8, QWEN_WORDS),
    "Qwen3-8B": model(36, 4096, 12_288, 32, 8, QWEN_WORDS),
    "Qwen3-14B": model(40, 5120, 17_408, 40, 8, QWEN_WORDS),
    "Qwen3-32B": model(64, 5120, 25_600, 64, 8, QWEN_WORDS),
    "Qwen3-30B-A3B": model(48, 2048, 768, 32, 4, QWEN_WORDS, experts=128, chosen=8),
    "Qwen2.5-7B": model(28, 3584, 18_944, 28, 4, 152_064),
    "Qwen2.5-0.5B": model(24, 896, 4864, 14, 2, QWEN_WORDS, size=64),
    "Apertus-1.5-8B": model(32, 4096, 14_336, 32, 8, APERTUS_WORDS),
    "Apertus-1.5-70B": model(80, 8192, 28_672, 64, 8, APERTUS_WORDS),
    "MiniCPM3-4B": Network(4.07e9, cache_bytes=2 * 62 * (256 + 32), layers=62),
}
"""Targets and draft models; that of MiniCPM3, which compresses its cache, is from its card. Apertus
has two matrices of 3 ÷ 2 times the width where the others have three."""
EAGLE3 = {
    "Llama-3.1-8B": eagle3_head(4096, 14_336, 32),
    "Llama-3-70B": eagle3_head(8192, 28_672, 64),
    "Qwen3-1.7B": eagle3_head(2048, 6144, 16),
    "Qwen3-4B": eagle3_head(2560, 9728, 32),
    "Qwen3-8B": eagle3_head(4096, 12_288, 32),
    "Qwen3-14B": eagle3_head(5120, 17_408, 40),
    "Qwen3-32B": eagle3_head(5120, 25_600, 64),
    "Qwen3-30B-A3B": eagle3_head(2048, 6144, 32, kv_heads=4),
    "MiniCPM3-4B": eagle3_head(2560, 6400, 40),
    "Apertus-1.5-8B": eagle3_head(4096, 14_336, 32, vocabulary=APERTUS_WORDS),
}
"""Heads by their targets: the target's own shapes and a draft vocabulary of 32,000 words."""
EAGLE = {
    "Llama-3.1-8B": eagle_head(4096, 14_336, 32, 8, LLAMA_WORDS),
    "Llama-3-70B": eagle_head(8192, 28_672, 64, 8, LLAMA_WORDS),
}
DSPARK = {
    "Qwen3-4B": block_head(MODELS["Qwen3-4B"], 5, QWEN_WORDS, 2560),
    "Qwen3-8B": block_head(MODELS["Qwen3-8B"], 5, QWEN_WORDS, 4096),
    "Qwen3-14B": block_head(MODELS["Qwen3-14B"], 5, QWEN_WORDS, 5120),
    "Apertus-1.5-8B": block_head(MODELS["Apertus-1.5-8B"], 5, APERTUS_WORDS, 4096),
}
"""One-pass heads of five layers, DSpark's and DFlash's, by their targets."""
CARDS = {
    "GH200": Hardware(4.0e12, 989e12),
    "H100": Hardware(3.35e12, 989e12),
    "H200": Hardware(4.8e12, 989e12),
    "H20": Hardware(4.0e12, 148e12),
    "A100": Hardware(2.04e12, 312e12),
    "RTX 4090": Hardware(1.008e12, 165e12),
}
"""Dense bfloat16 of the datasheets: bytes and operations per second of one card."""
