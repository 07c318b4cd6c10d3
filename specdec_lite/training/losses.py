"""Losses of drafts and heads: divergences of two distributions, and losses on windows of text.

Shapes: B rows, n tokens, d hidden size, V vocabulary. log_p and log_q [..., V] are log-probabilities
of target and draft. Every divergence is [...], in nats except for total variation.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.heads import ExitHead, Heads
from specdec_lite.drafters.self_drafts import LookaheadRows
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer

SHARPNESS = 3.0
DECAY = 0.8
"""Weight of a Medusa head relative to the head before."""
ANCHORS = 24
"""Anchors of a window after which look-ahead rows are trained."""


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


def hybrid(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return λ KL(p‖q) + (1 − λ) TV with λ = exp(−3 α), where TV is total variation.

    Each row has its own λ, which is a constant for the gradient. KL dominates where the acceptance
    rate α is low, total variation where it is high. Source: Samarin et al. 2026, arXiv 2602.23881.

    Shapes: log_p [..., V], log_q [..., V].
    """
    variation = total_variation(log_p, log_q)
    weight = torch.exp(-SHARPNESS * (1 - variation.detach()))
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
    return checks.native("target", target).model


def head_logits(model: Transformer, heads: Heads, hidden: Tensor, index: int) -> Tensor:
    """Return the logits [..., V] of one head.

    Shapes: hidden [..., d].
    """
    return model.head(heads(hidden, slice(index, index + 1))[..., 0, :])


def head_loss(model: Transformer, heads: Heads, hidden: Tensor, rows: Tensor, index: int) -> Tensor:
    """Return the mean cross-entropy of one head in nats.

    The row of token t_j is scored on token t_{j+index+2}. The last rows of a window have no such
    token and are left out.

    Shapes: hidden [B, n, d], rows [B, n + 1].
    """
    logits = head_logits(model, heads, hidden[:, : hidden.shape[1] - index - 1], index)
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, index + 2 :].flatten())


def weighted_loss(model: Transformer, heads: Heads, hidden: Tensor, rows: Tensor) -> Tensor:
    """Return Σ λᵏ · (cross-entropy of head k), k = 1 … K: later heads are less certain, weigh less.

    Head k at the row of token t_j is scored on t_{j+k+1}. Source: Cai et al. 2024, equation 1.

    Shapes: hidden [B, n, d], rows [B, n + 1].
    """
    losses = [
        DECAY ** (index + 1) * head_loss(model, heads, hidden, rows, index)
        for index in range(heads.count)
    ]
    return torch.stack(losses).sum()


def mean_loss(model: Transformer, heads: Heads, hidden: Tensor, rows: Tensor) -> Tensor:
    """Return the mean cross-entropy of all heads.

    Source: Stern et al. 2018, section 6, where one random head of a batch is trained, because the
    mean of all did not fit into memory.

    Shapes: hidden [B, n, d], rows [B, n + 1].
    """
    losses = [head_loss(model, heads, hidden, rows, index) for index in range(heads.count)]
    return torch.stack(losses).mean()


@torch.no_grad()
def exit_states(model: Transformer, tokens: Tensor, layer: int) -> Tensor:
    """Return the hidden states [B, n, d] after a block, through the model's final norm.

    Shapes: tokens [B, n].
    """
    states: dict = {layer: None}
    model(tokens, layers=layer, keep=states, head=False)
    return model.norm(states[layer])


def exit_loss(model: Transformer, adapter: ExitHead, vocabulary: Tensor, rows: Tensor) -> Tensor:
    """Return an exit's mean cross-entropy on the next token.

    Distributions are over `vocabulary` [k], the tokens that occur in the text. Shapes: rows [B, n + 1].
    """
    vocabulary = vocabulary.to(model.head.weight.device)
    label_of = vocabulary.new_zeros(model.config.vocab_size)
    label_of[vocabulary] = torch.arange(len(vocabulary), device=vocabulary.device)
    projection = model.head.weight.detach()[vocabulary]
    labels = label_of[rows[:, 1:].flatten()]
    logits = adapter(exit_states(model, rows[:, :-1], adapter.layers)) @ projection.T
    return F.cross_entropy(logits.float().flatten(0, 1), labels)


def lookahead_chains(anchors: Tensor, length: int, count: int) -> tuple[Tensor, Tensor]:
    """Return positions and attention mask of a text with a chain of look-ahead rows per anchor.

    A chain follows its anchor: it attends to the text up to the anchor and to its own rows.

    Shapes: anchors [A].
    """
    device = anchors.device
    text, ahead = torch.arange(length, device=device), torch.arange(1, count + 1, device=device)
    positions = torch.cat((text, (anchors[:, None] + ahead).flatten()))
    owner = torch.arange(len(anchors), device=device).repeat_interleave(count)
    mask = torch.ones(len(positions), len(positions), dtype=torch.bool, device=device).tril()
    mask[length:, :length] = text <= anchors[owner][:, None]
    mask[length:, length:] &= owner[:, None] == owner
    return positions, mask


def rows_loss(model: Transformer, lookahead: LookaheadRows, rows: Tensor) -> Tensor:
    """Return the mean cross-entropy of look-ahead row j on the token j + 1 after its anchor.

    The anchors of a batch are drawn from the batch itself, so an interrupted run can resume.

    Shapes: rows [B, n].
    """
    count = len(lookahead.rows)
    text = rows[:, : -count - 1]
    length = text.shape[1]
    generator = torch.Generator().manual_seed(int(rows.sum()))
    anchors = torch.randperm(length - 8, generator=generator)[:ANCHORS].sort().values + 8
    anchors = anchors.to(rows.device)
    positions, mask = lookahead_chains(anchors, length, count)
    chains = lookahead.rows.repeat(len(anchors), 1).expand(len(rows), -1, -1)
    embedded = torch.cat((model.embedding(text).detach(), chains), dim=1)
    states: dict = {"final": None}
    ids = rows.new_zeros(embedded.shape[:2])
    model(ids, positions=positions, bias=mask, keep=states, head=False, states=(0, embedded))
    predicted = anchors[:, None] + torch.arange(2, count + 2, device=rows.device)
    logits = model.head(states["final"][:, length:]).float().flatten(0, 1)
    return F.cross_entropy(logits, rows[:, predicted.flatten()].flatten())
