"""The recurrent network of the MLP speculator: a state of fixed size, updated with every token.

Scales and weight tying are those of the authors' code: one E, one norm and one H for all depths.
Source: Wertheimer et al. 2024, arXiv 2404.19124.
"""

import math

import torch.nn.functional as F
from torch import Tensor, nn


class MlpSpeculator(nn.Module):
    """state ← GELU(norm(P·state + weight · E[token])), read by one projection H at every depth.

    Args:
        hidden_size: size d of the target's states.
        vocab_size: size V of its own embeddings E and projection H.
        width: size w of its state.
        depth: number of drafted tokens it is made for; determines `weight`.
    """

    def __init__(self, hidden_size: int, vocab_size: int, width: int, depth: int):
        super().__init__()
        self.config = dict(hidden_size=hidden_size, vocab_size=vocab_size, width=width, depth=depth)
        self.first = nn.Linear(hidden_size, width, bias=False)
        self.again = nn.Linear(width, width, bias=False)
        self.embedding = nn.Embedding(vocab_size, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        share = 0.5 ** (0.5 / depth)
        self.weight = math.sqrt((1 - share**2) * width / 2) / share

    def begin(self, hidden: Tensor) -> Tensor:
        """Return the first state [..., w]."""
        return self.first(F.layer_norm(hidden, hidden.shape[-1:]) / math.sqrt(2))

    def forward(self, state: Tensor, tokens: Tensor) -> Tensor:
        """Return the next state [..., w], which `head` reads."""
        return F.gelu(self.norm(state + self.weight * self.embedding(tokens)))
