"""What heads on the target's last hidden state are scored on: the same for every way of training.

What lives here: hidden states of a window, one head's logits and its loss. What does not: which
heads count how much (`blockwise`, `medusa`), and states that are stored (`features`). Shapes: B
rows, n tokens, d hidden size, V vocabulary.
"""

import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.heads import Heads
from specdec_lite.engine.transformer import Transformer


def final_states(model: Transformer, tokens: Tensor) -> Tensor:
    """tokens [B, n] → the hidden states [B, n, d] that enter the vocabulary projection."""
    kept: dict = {"final": None}
    model(tokens, keep=kept, last=True)
    return kept["final"]


def head_logits(model: Transformer, heads: Heads, hidden: Tensor, index: int) -> Tensor:
    """hidden [..., d] → logits [..., V] of extra head `index`; −1 is the model's own head."""
    return model.head(hidden if index < 0 else heads(hidden, slice(index, index + 1))[..., 0, :])


def head_loss(model: Transformer, heads: Heads, hidden: Tensor, rows: Tensor, index: int) -> Tensor:
    """Mean cross-entropy in nats of head `index` over windows rows [B, n+1], whose first n tokens
    gave hidden [B, n, d].

    The row of token t_j is scored on t_{j+index+2}; the last rows of a window have no such token
    and are left out.
    """
    logits = head_logits(model, heads, hidden[:, : hidden.shape[1] - index - 1], index)
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, index + 2 :].flatten())
