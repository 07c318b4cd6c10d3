"""Rotary frequencies of models whose context was extended after training: Llama 3's and YaRN's."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

NEEDED = {"llama3": {"factor", "low_freq_factor", "high_freq_factor"}, "yarn": {"factor"}}
"""`rope_type` → the entries of a Hugging Face `rope_parameters` that it must have."""


def read_scaling(config: dict, rope: Mapping) -> dict | None:
    """Return the `rope_scaling` of a `TransformerConfig`, or None if it cannot be run natively."""
    kind = rope.get("rope_type", rope.get("type"))
    given = {name for name, value in rope.items() if value is not None}
    if kind not in NEEDED or not NEEDED[kind] <= given:
        return None
    original = (
        config.get("original_max_position_embeddings")
        or rope.get("original_max_position_embeddings")
        or config.get("max_position_embeddings", 2048)
    )
    parts = {name: rope[name] for name in given - {"type", "rope_theta"}}
    return parts | {"rope_type": kind, "original_max_position_embeddings": original}


def scaled(frequencies: Tensor, theta: float, scaling: Mapping) -> tuple[Tensor, float]:
    """Return scaled rotary frequencies, and the factor of cos and sin.

    Shapes: frequencies [h/2].
    """
    return {"llama3": llama3, "yarn": yarn}[scaling["rope_type"]](frequencies, theta, scaling)


def llama3(frequencies: Tensor, theta: float, scaling: Mapping) -> tuple[Tensor, float]:
    """Return Llama 3's frequencies: slow ones are divided by a factor, with a smooth transition.

    Source: Grattafiori et al. 2024 (Llama 3), as in Hugging Face's `modeling_rope_utils`.

    Shapes: frequencies [h/2].
    """
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * frequencies / scaling["factor"] + share * frequencies, 1.0


def yarn(frequencies: Tensor, theta: float, scaling: Mapping) -> tuple[Tensor, float]:
    """Return YaRN's frequencies: slow ones are divided by a factor, with a linear transition.

    Source: Peng et al. 2023 (arXiv 2309.00071), as in Hugging Face's `modeling_rope_utils`.

    Shapes: frequencies [h/2].
    """
    size, factor = 2 * len(frequencies), scaling["factor"]

    def dimension(turns: float) -> float:
        """Return the (fractional) pair index that makes this many turns in the original context."""
        positions = scaling["original_max_position_embeddings"]
        return size * math.log(positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first = dimension(scaling.get("beta_fast") or 32)
    last = dimension(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    pairs = torch.arange(len(frequencies), device=frequencies.device).float()
    slow = ((pairs - first) / ((last - first) or 0.001)).clamp(0, 1)
    return slow * frequencies / factor + (1 - slow) * frequencies, _attention_factor(scaling)


def _attention_factor(scaling: Mapping) -> float:
    """Return YaRN's factor of cos and sin, which scales the attention's logits by its square."""
    if scaling.get("attention_factor") is not None:
        return scaling["attention_factor"]

    def temperature(scale: float = 1.0) -> float:
        factor = scaling["factor"]
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0

    mscale, all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if mscale and all_dim:
        return temperature(mscale) / temperature(all_dim)
    return temperature()
