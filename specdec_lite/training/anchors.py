"""One loss and one measure for all kinds of heads: what they predict after the same anchors.

An *anchor* is the position a of the last committed token. A head may read the target's states up to
a − 1 and the tokens up to a, and predicts tokens a + 1 … a + K. A sequential head also reads the
predicted tokens before its own. Shapes: B texts, n tokens, A anchors, K depths, d hidden size, V
vocabulary.
"""

from functools import singledispatch
from typing import cast

import torch
from torch import Tensor, nn

from specdec_lite.drafters.block_diffusion import BlockHead
from specdec_lite.drafters.eagle import FeatureHead, ParallelEagleHead
from specdec_lite.drafters.heads import (
    DraftVocabulary,
    Heads,
    HydraHeads,
    MlpSpeculator,
    OutputHead,
    output_head,
)
from specdec_lite.drafters.parallel import Correction
from specdec_lite.engine.cache import additive
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.training.losses import lookahead_chains
from specdec_lite.training.unroll import rotary_tables, unroll


@singledispatch
def anchor_logits(
    head: nn.Module,
    target: CausalLM | OutputHead,
    tokens: Tensor,
    states: dict,
    anchors: Tensor,
    depths: int,
) -> Tensor:
    """Return the logits [B, A, K, V] of a head after anchors.

    Shapes: tokens [B, n], anchors [A].
    """
    raise TypeError(f"head is a {type(head).__name__}: no rows are known for it")


@anchor_logits.register
def _(head: Heads, target, tokens, states, anchors, depths):
    return target.head(head(states["final"][:, anchors - 1], slice(depths)))


@anchor_logits.register
def _(head: nn.ModuleDict, target, tokens, states, anchors, depths):
    """Add the correction to a parallel head, as `drafters.markov` does."""
    heads, correction = cast(Heads, head["rows"]), cast(Correction, head["correction"])
    rows = heads(states["final"][:, anchors - 1], slice(depths))
    index = correction.index(previous_tokens(tokens, anchors, depths), heads.words)
    return correction.correct(target.head(rows), index, rows)


@anchor_logits.register
def _(head: MlpSpeculator, target, tokens, states, anchors, depths):
    previous = previous_tokens(tokens, anchors, depths)
    state = head.begin(states["final"][:, anchors - 1])
    logits = []
    for depth in range(depths):
        state = head(head.again(state) if depth else state, previous[..., depth])
        logits.append(head.head(state))
    return torch.stack(logits, 2)


@anchor_logits.register
def _(head: HydraHeads, target, tokens, states, anchors, depths):
    state = states["final"][:, anchors - 1]
    embedded = target.embed(previous_tokens(tokens, anchors, depths))
    outputs = [head(i, state, embedded[:, :, : i + 1]) for i in range(depths)]
    return target.head(torch.stack(outputs, 2))


@anchor_logits.register
def _(head: FeatureHead, target, tokens, states, anchors, depths):
    outputs = unroll(head, states, target.embed(tokens), depths)
    rows = head.rows(target)
    logits = [head.logits(output[:, anchors - 1], rows) for output in outputs]
    return head.spread(torch.stack(logits, 2), target.vocab_size)


@anchor_logits.register
def _(head: ParallelEagleHead, target, tokens, states, anchors, depths):
    """Run P-EAGLE: masks follow the pair of every anchor and attend to the pairs up to it."""
    count = tokens.shape[1] - 1
    positions, mask = lookahead_chains(anchors - 1, count, depths - 1)
    masks = tokens.new_full((len(tokens), len(positions) - count), head.mask_id)
    embedded = head.embed(torch.cat((tokens[:, 1:], masks), 1), target)
    own = head.begin([states[layer][:, :-1] for layer in head.layers])
    learned = head.mask_state().expand(*masks.shape, -1)
    x = head.enter(embedded, torch.cat((own, learned), 1))
    cos, sin = (table[positions] for table in rotary_tables(head.shape, x.device, x.dtype))
    bias = additive(mask, x.dtype)
    for block in head.blocks:
        x = x + block.attention(x, cos, sin, bias)
        x = x + block.mlp(x)
    first = x[:, anchors - 1, None]
    others = x[:, count:].unflatten(1, (len(anchors), depths - 1))
    logits = head.logits(torch.cat((first, others), 2), head.rows(target))
    return head.spread(logits, target.vocab_size)


@anchor_logits.register
def _(head: Transformer, target, tokens, states, anchors, depths):
    """Run PARD's draft: a chain of masks follows every anchor and attends to the text up to it."""
    count = tokens.shape[1]
    positions, mask = lookahead_chains(anchors, count, depths - 1)
    masks = tokens.new_full((len(tokens), len(positions) - count), head.config.vocab_size - 1)
    own_states: dict = {"final": None}
    inputs = torch.cat((tokens, masks), 1)
    head(inputs, positions=positions, bias=mask, keep=own_states, head=False)
    first = own_states["final"][:, anchors, None]
    others = own_states["final"][:, count:].unflatten(1, (len(anchors), depths - 1))
    return head.head(torch.cat((first, others), 2))[..., : target.vocab_size]


@anchor_logits.register
def _(head: BlockHead, target, tokens, states, anchors, depths):
    """Fill one block per anchor: it attends to the text before the anchor and to itself."""
    count = tokens.shape[1]
    size = head.size
    positions, device = _ahead(anchors, size).flatten(), anchors.device
    mask = torch.zeros(len(positions), count + len(positions), dtype=torch.bool, device=device)
    text = torch.arange(count, device=device)
    mask[:, :count] = text < anchors.repeat_interleave(size)[:, None]
    owner = torch.arange(len(anchors), device=device).repeat_interleave(size)
    mask[:, count:] = owner[:, None] == owner
    example = states[head.layers[0]]
    cos, sin = head.rotary(example.device, example.dtype)
    shape = (len(tokens), head.config.num_kv_heads, mask.shape[1], head.config.head_size)
    past = [(example.new_zeros(shape), example.new_zeros(shape)) for _ in head.blocks]
    head.inject([states[layer] for layer in head.layers], past, cos[:count], sin[:count], 0)
    roots = target.embed(tokens[:, anchors])
    distance = positions[:, None] - torch.cat((text, positions))
    filled = head.fill(roots, past, cos[positions], sin[positions], count, mask, distance)
    filled = filled[:, :, :depths]
    logits = target.head(filled)
    if head.correction is None:
        return logits
    index = head.correction.index(previous_tokens(tokens, anchors, depths), head.words)
    return head.correction.correct(logits, index, filled)


def _ahead(anchors: Tensor, count: int) -> Tensor:
    """Return the positions [A, count] of each anchor and of the tokens after it."""
    return anchors[:, None] + torch.arange(count, device=anchors.device)


def draft_vocabulary(head: nn.Module) -> DraftVocabulary | None:
    """Return the tokens that a head drafts, or None if it drafts all tokens."""
    return getattr(head["rows"] if isinstance(head, nn.ModuleDict) else head, "words", None)


def previous_tokens(tokens: Tensor, anchors: Tensor, depths: int) -> Tensor:
    """Return the tokens [B, A, K] just before the predicted ones.

    Shapes: tokens [B, n], anchors [A].
    """
    return tokens[:, _ahead(anchors, depths)]


def target_probs(
    target: CausalLM | OutputHead, states: dict, anchors: Tensor, depths: int
) -> Tensor:
    """Return the target's distributions [B, A, K, V] of tokens a + 1 … a + K at temperature 1.

    Shapes: anchors [A].
    """
    final = states["final"][:, _ahead(anchors, depths)]
    return target.head(final).float().softmax(-1)


def anchor_loss(
    head: nn.Module,
    target: CausalLM,
    tokens: Tensor,
    states: dict,
    anchors: Tensor,
    depths: int,
    decay: float,
    counted: Tensor | None = None,
) -> Tensor:
    """Return the mean cross-entropy to the target's distributions, in nats.

    Both distributions are over the head's draft vocabulary.

    Shapes: tokens [B, n], anchors [A], counted [B, n].
    """
    output = output_head(target, draft_vocabulary(head))
    p = target_probs(output, states, anchors, depths)
    logits = anchor_logits(head, output, tokens, states, anchors, depths).float()
    # A selector leaves a few tokens of each row: the others have no logit to learn.
    log_q = logits.log_softmax(-1).masked_fill(logits.isneginf(), 0)
    losses = -(p * log_q).sum(-1)
    weights = (decay ** torch.arange(depths, device=losses.device)).expand_as(losses)
    if counted is not None:
        weights = weights * counted_predictions(counted, anchors, depths)
    return (weights * losses).sum() / weights.sum()


def counted_predictions(counted: Tensor, anchors: Tensor, depths: int) -> Tensor:
    """Return which of the predicted tokens a + 1 … a + K count, [B, A, K].

    Shapes: counted [B, n], anchors [A].
    """
    return counted[:, _ahead(anchors, depths) + 1]


@torch.inference_mode()
def anchor_acceptance(
    head: nn.Module, target: CausalLM, tokens: Tensor, states: dict, anchors: Tensor, depths: int
) -> dict[str, Tensor]:
    """Return how well a head agrees with its target at every anchor and depth.

    Shapes: tokens [B, n], anchors [A].
    """
    vocabulary = draft_vocabulary(head)
    output = output_head(target, vocabulary)
    p = target_probs(target, states, anchors, depths)
    q = anchor_logits(head, output, tokens, states, anchors, depths).float().softmax(-1)
    best = q.argmax(-1)
    reduced = p
    if vocabulary is not None:
        best = vocabulary.ids[best]
        reduced = p[..., vocabulary.ids]
    return {"alpha": torch.minimum(reduced, q).sum(-1), "agrees": (p.argmax(-1) == best).float()}
