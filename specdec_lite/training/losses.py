"""What drafts and heads are scored on: how far a draft's law is from the target's, and the loss of
a head on the target's last hidden state.

What lives here: divergences of two laws, row by row; hidden states of a window, one head's logits
and its loss. What does not: on which text (`text`, `own_text`), which heads count how much
(`blockwise`, `medusa`), and states that are stored (`features`). Shapes: B rows, n tokens, d hidden
size, V vocabulary; log_p and log_q [..., V] are log-probabilities of target and draft, and every
divergence is [...], in nats but for total variation.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.heads import Heads
from specdec_lite.engine.transformer import Transformer

SHARPNESS = 3.0


def forward_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p‖q) = Σ p log(p/q): large where the draft misses what the target may say."""
    return F.kl_div(log_q, log_p.exp(), reduction="none").sum(-1)


def reverse_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(q‖p) = Σ q log(q/p): large where the draft says what the target does not; infinite where
    the target cannot say it.
    """
    return F.kl_div(log_p, log_q.exp(), reduction="none").sum(-1)


def log_acceptance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """log α = log Σ min(p, q), summed as logarithms: finite, with a gradient, where α underflows."""
    return torch.minimum(log_p, log_q).logsumexp(-1)


def total_variation(log_p: Tensor, log_q: Tensor) -> Tensor:
    """½ Σ |p − q| = 1 − Σ min(p, q): the rate of rejection itself, in [0, 1].

    Its gradient is a sum over the tokens of which the draft says too little, weighted by q, so it
    vanishes where the two hardly overlap.
    """
    return (log_p.exp() - log_q.exp()).abs().sum(-1) / 2


def negative_log_acceptance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """−log Σ min(p, q): total variation's gradient times 1/α, which does not vanish.

    Source: Samarin et al. 2026, arXiv 2602.23881.
    """
    return -log_acceptance(log_p, log_q)


def hybrid(log_p: Tensor, log_q: Tensor, sharpness: float = SHARPNESS) -> Tensor:
    """λ KL(p‖q) + (1 − λ) TV with λ = exp(−sharpness · α), each row's own and held constant: KL
    where little is accepted, total variation where much is.

    Source: Samarin et al. 2026, arXiv 2602.23881.
    """
    variation = total_variation(log_p, log_q)
    weight = torch.exp(-sharpness * (1 - variation.detach()))
    return weight * forward_kl(log_p, log_q) + (1 - weight) * variation


DIVERGENCES = {
    "forward KL": forward_kl,
    "reverse KL": reverse_kl,
    "total variation": total_variation,
    "−log α": negative_log_acceptance,
    "hybrid": hybrid,
}


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
