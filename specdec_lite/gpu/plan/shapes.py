"""The shapes that are timed: published models by their sizes, with random weights."""

from dataclasses import dataclass, replace

from specdec_lite.engine.transformer import TransformerConfig

POSITIONS = 8448
"""Context length of every shape: the longest timed context, a block, and room."""


def shape(
    vocabulary: int,
    hidden: int,
    feed: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_size: int = 128,
    **more,
) -> TransformerConfig:
    """Return a configuration with an output head of its own."""
    sizes = (vocabulary, hidden, feed, layers, heads, kv_heads, head_size)
    return TransformerConfig(*sizes, **{"tied": False, "max_positions": POSITIONS} | more)


LLAMA_8B = shape(128256, 4096, 14336, 32, 32, 8)
LLAMA_70B = shape(128256, 8192, 28672, 80, 64, 8)
MODELS = {
    "Llama-3.1-8B": LLAMA_8B,
    "Llama-3.2-3B": shape(128256, 3072, 8192, 28, 24, 8, tied=True),
    "Llama-3.2-1B": shape(128256, 2048, 8192, 16, 32, 8, 64, tied=True),
    "Qwen3-0.6B": shape(151936, 1024, 3072, 28, 16, 8, qk_norm=True, tied=True),
    "Llama-3.3-70B, 20 layers": replace(LLAMA_70B, num_layers=20),
    # One of four GPUs holds a quarter of the heads, of the MLP and of the output head.
    "Llama-3.3-70B, a quarter": shape(32064, 8192, 7168, 80, 16, 2),
    "head, 32k rows": replace(LLAMA_8B, num_layers=1, vocab_size=32000),
    "head, 128k rows": replace(LLAMA_8B, num_layers=1),
    "block": replace(LLAMA_8B, num_layers=5),
}
"""Shapes by name. A quarter of the 70B model is timed without the exchange between the GPUs."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A stack of mixture-of-experts layers with its attention: by default Qwen3-30B-A3B's.

    Attributes:
        attention: shape of the layers; its MLP is replaced.
        experts: number of experts in a layer.
        chosen: number of experts of a token.
        width: width of one expert.
        whole: number of layers of the whole model.
    """

    attention: TransformerConfig
    experts: int = 128
    chosen: int = 8
    width: int = 768
    whole: int = 48


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of everything that is measured.

    Attributes:
        target: name of the shape that is timed whole.
        models: shapes by name.
        depths: numbers of layers of the 70B slices.
        experts: the stack of experts.
        batches: batch sizes.
        ks: tokens per sequence in a pass, the most useful first.
        contexts: tokens in the cache.
        cache_bytes: size of the buffer for keys and values. Layers share it if they do not fit.
        gammas: draft lengths of synthetic rounds.
        read_bytes: size of the arrays that are read and multiplied.
        square: rows of the largest product.
        prompts: number of prompts of the shipped pair.
        prompt_tokens: most tokens of each prompt.
        new_tokens: tokens per text.
        turns: paired turns of each contender.
        repeats: most repetitions of a timed job.
        seconds: longest time for the repetitions of one job.
    """

    target: str
    models: dict[str, TransformerConfig]
    depths: tuple[int, ...] = (20, 10)
    experts: Experts = Experts(shape(151936, 2048, 768, 8, 32, 4, qk_norm=True))
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    ks: tuple[int, ...] = (1, 4, 8, 2, 16, 6)
    contexts: tuple[int, ...] = (512, 8192)
    cache_bytes: int = 12 << 30
    gammas: tuple[int, ...] = (4, 2, 8, 1, 6, 3)
    read_bytes: int = 4 << 30
    square: int = 8192
    prompts: int = 4
    prompt_tokens: int = 192
    new_tokens: int = 96
    turns: int = 24
    repeats: int = 12
    seconds: float = 0.12


FULL = Scale("Llama-3.1-8B", MODELS)
SMALL = replace(
    FULL,
    target="Llama-3.2-3B",
    batches=(1, 2, 4, 8, 16, 32),
    contexts=(512, 2048),
    cache_bytes=2 << 30,
    read_bytes=1 << 30,
    square=4096,
    turns=20,
)
"""For a card of 16 GB, such as a T4."""


def tiny(config: TransformerConfig) -> TransformerConfig:
    """Return a shape with the same ratio of heads and the same ties, in miniature."""
    groups = max(1, config.num_heads // config.num_kv_heads)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_layers": min(2, config.num_layers)}
    heads = {"num_heads": groups, "num_kv_heads": 1, "head_size": 16}
    return replace(config, vocab_size=config.vocab_size // 500, max_positions=256, **sizes, **heads)


TINY = Scale(
    "Llama-3.1-8B",
    {name: tiny(config) for name, config in MODELS.items()},
    depths=(2, 1),
    experts=Experts(tiny(FULL.experts.attention), experts=4, chosen=2, width=16, whole=4),
    batches=(1, 4),
    ks=(1, 3),
    contexts=(16, 32),
    cache_bytes=1 << 16,
    gammas=(2,),
    read_bytes=1 << 20,
    square=64,
    prompts=1,
    prompt_tokens=24,
    new_tokens=6,
    turns=2,
    repeats=2,
    seconds=0.01,
)
"""To see that every step runs."""
