"""The trained embeddings of PaSS, which ask the target for tokens ahead."""

import torch
from torch import nn


class LookaheadRows(nn.Module):
    """Embeddings [L, d] of L look-ahead tokens, the only trained weights.

    Args:
        hidden_size: the target's d.
        count: number L of look-ahead tokens.
    """

    def __init__(self, hidden_size: int, count: int):
        super().__init__()
        self.rows = nn.Parameter(torch.zeros(count, hidden_size))

    @property
    def config(self) -> dict[str, int]:
        """The arguments of the constructor."""
        return {"hidden_size": self.rows.shape[1], "count": len(self.rows)}
