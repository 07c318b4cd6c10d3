"""Pairs of the Hugging Face hub, by the memory they need: shapes and licences as published, sizes
computed from them.

The list is `hub_pairs.json`. Nothing in it has been run by this project, which is what `verified`
says.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from specdec_lite.engine.transformer import TransformerConfig
from specdec_lite.loading.memory import MARGIN, Size, native_size

CARDS = (8, 16, 24, 80)
"""Memory of common cards, in GB."""


@dataclass(frozen=True, slots=True)
class HubPair:
    """target, draft: hub ids. licences, sizes, layers: of both. verified: run by this project?"""

    target: str
    draft: str
    licences: tuple[str, str]
    sizes: tuple[Size, Size]
    layers: tuple[int, int]
    verified: bool = False

    def bytes(self, context: int = 4096, dtype: torch.dtype = torch.bfloat16) -> int:
        """Memory for weights and for caches of `context` tokens, with a margin to work in."""
        return round(MARGIN * sum(size.bytes(dtype, context) for size in self.sizes))

    @property
    def card(self) -> int:
        """The smallest of CARDS, in GB, that holds the pair in bfloat16 with 4096 tokens of
        context.
        """
        return next(card for card in CARDS if self.bytes() <= card * 1e9)


@lru_cache
def hub_pairs() -> tuple[HubPair, ...]:
    """The pairs, smallest first."""
    listed = json.loads((Path(__file__).parent / "hub_pairs.json").read_text(encoding="utf-8"))

    def of(name: str) -> tuple[str, Size, int]:
        shape = dict(listed["models"][name])
        licence, family = shape.pop("licence"), shape.pop("family")
        return (
            licence,
            native_size(
                TransformerConfig(qkv_bias=family == "qwen2", qk_norm=family == "qwen3", **shape)
            ),
            shape["num_layers"],
        )

    made = []
    for target, draft in listed["pairs"]:
        made.append(HubPair(target, draft, *zip(of(target), of(draft))))
    return tuple(sorted(made, key=HubPair.bytes))


def largest_that_fits(free: int, context: int = 4096) -> HubPair | None:
    """The pair with the largest target that `free` bytes hold in two bytes a weight; None where
    none does.
    """
    return max(
        (pair for pair in hub_pairs() if pair.bytes(context) <= free),
        key=lambda pair: pair.sizes[0].parameters,
        default=None,
    )
