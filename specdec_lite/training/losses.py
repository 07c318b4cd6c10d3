"""Losses of drafts and heads: divergences of two distributions, and the loss of a Medusa-like head.

Shapes: B rows, n tokens, d hidden size, V vocabulary. log_p and log_q [..., V] are log-probabilities
of target and draft. Every divergence is [...], in nats except for total variation.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.heads import Heads
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer

SHARPNESS = 3.0


def forward_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p‖q) = Σ p log(p/q): large where the draft misses likely tokens of the target.

    Shapes: log_p [..., V], log_q [..., V].
    """
    return F.kl_div(log_q, log_p.exp(), reduction="none").sum(-1)


def reverse_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(q‖p) = Σ q log(q/p): large where the draft proposes unlikely tokens of the target.

    It is infinite if the draft proposes a token of probability 0.

    Shapes: log_p [..., V], log_q [..., V].
    """
    return F.kl_div(log_p, log_q.exp(), reduction="none").sum(-1)


def log_acceptance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return log α = log Σ min(p, q), summed in log space: finite, with a gradient, for tiny α.

    Shapes: log_p [..., V], log_q [..., V].
    """
    return torch.minimum(log_p, log_q).logsumexp(-1)


def total_variation(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return ½ Σ |p − q| = 1 − Σ min(p, q): the rate of rejection itself, in [0, 1].

    Its gradient is a sum, weighted by q, over the tokens that the draft underrates, so it vanishes
    if the two distributions hardly overlap.

    Shapes: log_p [..., V], log_q [..., V].
    """
    return (log_p.exp() - log_q.exp()).abs().sum(-1) / 2


def negative_log_acceptance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return −log Σ min(p, q): its gradient is 1/α times total variation's and does not vanish.

    Source: Samarin et al. 2026, arXiv 2602.23881.

    Shapes: log_p [..., V], log_q [..., V].
    """
    return -log_acceptance(log_p, log_q)


def hybrid(log_p: Tensor, log_q: Tensor, sharpness: float = SHARPNESS) -> Tensor:
    """Return λ KL(p‖q) + (1 − λ) TV with λ = exp(−sharpness · α), where TV is total variation.

    Each row has its own λ, which is a constant for the gradient. KL dominates where the acceptance
    rate α is low, total variation where it is high. Source: Samarin et al. 2026, arXiv 2602.23881.

    Shapes: log_p [..., V], log_q [..., V].
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


def native_model(target: CausalLM) -> Transformer:
    """Return the transformer of a native target."""
    if not isinstance(target.model, Transformer):
        kind = type(target.model).__name__
        raise TypeError(f"target: wraps a {kind}, must be a native model")
    return target.model


def final_states(model: Transformer, tokens: Tensor) -> Tensor:
    """Return the hidden states [B, n, d] that enter the vocabulary projection.

    Shapes: tokens [B, n].
    """
    states: dict = {"final": None}
    model(tokens, keep=states, last=True)
    return states["final"]


def head_logits(model: Transformer, heads: Heads, hidden: Tensor, index: int) -> Tensor:
    """Return the logits [..., V] of one head.

    Shapes: hidden [..., d].
    """
    return model.head(hidden if index < 0 else heads(hidden, slice(index, index + 1))[..., 0, :])


def head_loss(model: Transformer, heads: Heads, hidden: Tensor, rows: Tensor, index: int) -> Tensor:
    """Return the mean cross-entropy of one head in nats.

    The row of token t_j is scored on token t_{j+index+2}. The last rows of a window have no such
    token and are left out.

    Shapes: hidden [B, n, d], rows [B, n + 1].
    """
    logits = head_logits(model, heads, hidden[:, : hidden.shape[1] - index - 1], index)
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, index + 2 :].flatten())
