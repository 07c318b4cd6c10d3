"""List pairs of the Hugging Face hub by the memory they need.

The list is `hub_pairs.json`. It contains published model sizes and licenses; memory is computed
from the sizes. This project has run none of the pairs.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from specdec_lite.engine.transformer import TransformerConfig
from specdec_lite.loading.memory import MARGIN, Size, native_size

CARDS = (8, 16, 24, 80)
"""Memory of common GPUs, in GB."""


@dataclass(frozen=True, slots=True)
class HubPair:
    """A target and a draft on the hub.

    Attributes:
        target: hub id of the target.
        draft: hub id of the draft.
        licenses: names of the licenses of target and draft.
        sizes: sizes of target and draft.
        layers: number of layers of target and draft.
    """

    target: str
    draft: str
    licenses: tuple[str, str]
    sizes: tuple[Size, Size]
    layers: tuple[int, int]

    def bytes(self) -> int:
        """Return the bytes of weights and caches of 4,096 tokens in bfloat16, with a margin for
        working memory.
        """
        return round(MARGIN * sum(size.bytes(torch.bfloat16, 4096) for size in self.sizes))

    @property
    def card(self) -> int:
        """Smallest GPU memory in CARDS, in GB, that fits the pair."""
        return next(card for card in CARDS if self.bytes() <= card * 1e9)


@lru_cache
def hub_pairs() -> tuple[HubPair, ...]:
    """Return the listed pairs, smallest first."""
    listing = json.loads((Path(__file__).parent / "hub_pairs.json").read_text(encoding="utf-8"))
    pairs = []
    for target, draft in listing["pairs"]:
        entries = [listing["models"][name] for name in (target, draft)]
        licenses, sizes, layers = zip(*map(_facts, entries))
        pairs.append(HubPair(target, draft, licenses, sizes, layers))
    return tuple(sorted(pairs, key=HubPair.bytes))


def _facts(entry: dict) -> tuple[str, Size, int]:
    """Return license, size and number of layers of a model in the list."""
    shape = dict(entry)
    license, family = shape.pop("license"), shape.pop("family")
    config = TransformerConfig(qkv_bias=family == "qwen2", qk_norm=family == "qwen3", **shape)
    return license, native_size(config), config.num_layers
