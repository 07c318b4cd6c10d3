"""A table of the likeliest tokens after each token, read from the target's logits."""

import torch
from torch import Tensor

SUCCESSORS = 8
"""Successors stored per token."""


@torch.inference_mode()
def update(table: dict[int, list[int]], tokens: list[int], logits: Tensor) -> None:
    """Store the likeliest successors of some tokens. A later row replaces an earlier one.

    Shapes: logits [n, V].
    """
    best = logits.topk(min(SUCCESSORS, logits.shape[-1])).indices.tolist()
    table.update(zip(tokens, best))
