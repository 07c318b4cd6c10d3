"""What every kind of head says behind the same anchors of a text: one loss and one measure for all.

An *anchor* is the place a of the last committed token. A head may read the target's states up to
a − 1 and the tokens up to a, and says the tokens a + 1 … a + K; a sequential one also reads those
of them that come before. What lives here: the rows of each kind, the loss, α by depth. What does
not: texts and the command (`training.heads`). Shapes: B texts, n tokens, A anchors, K depths, d
hidden size, V vocabulary.
"""

from functools import singledispatch

import torch
from torch import Tensor, nn

from specdec_lite.drafters.block_head import BlockHead
from specdec_lite.drafters.feature_head import FeatureHead
from specdec_lite.drafters.heads import Heads, HydraHeads
from specdec_lite.drafters.mlp_state import MlpSpeculator
from specdec_lite.drafters.words import Speaker, Words, speaker
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.training.pass_rows import chains
from specdec_lite.training.unroll import unroll


@singledispatch
def rows(
    head: nn.Module | CausalLM,
    target: CausalLM | Speaker,
    tokens: Tensor,
    states: dict,
    anchors: Tensor,
    depths: int,
) -> Tensor:
    """Logits [B, A, K, V] behind anchors [A] (each ≥ 1) of texts [B, n]; over the head's words,
    where it says no others and `target` is their `Speaker`.

    states: the target's hidden states [B, n, d] by layer. TypeError for a head of no known kind.
    """
    raise TypeError(f"head is a {type(head).__name__}: no rows are known for it")


@rows.register
def _(head: CausalLM, target, tokens, states, anchors, depths):
    """An ordinary draft model, to be judged only: no gradient passes through it."""
    logits = head.score(tokens, head.new_cache(*tokens.shape)).logits
    return logits[:, anchors[:, None] + torch.arange(depths), : target.vocab_size]


@rows.register
def _(head: Heads, target, tokens, states, anchors, depths):
    return target.head(head(states["final"][:, anchors - 1], slice(depths)))


@rows.register
def _(head: nn.ModuleDict, target, tokens, states, anchors, depths):
    """A parallel head ("rows") with its correction ("correction"), as `drafters.markov` has them."""
    made = rows(head["rows"], target, tokens, states, anchors, depths)
    return made + head["correction"](heard(tokens, anchors, depths, words(head)))


@rows.register
def _(head: MlpSpeculator, target, tokens, states, anchors, depths):
    known = before(tokens, anchors, depths)
    state = head.begin(states["final"][:, anchors - 1])
    made = []
    for depth in range(depths):
        state = head(head.again(state) if depth else state, known[..., depth])
        made.append(head.head(state))
    return torch.stack(made, 2)


@rows.register
def _(head: HydraHeads, target, tokens, states, anchors, depths):
    state = states["final"][:, anchors - 1]
    embedded = target.embed(before(tokens, anchors, depths))
    made = [head(i, state, embedded[:, :, : i + 1]) for i in range(depths)]
    return target.head(torch.stack(made, 2))


@rows.register
def _(head: FeatureHead, target, tokens, states, anchors, depths):
    outputs = unroll(head, states, target.embed(tokens), depths)
    shown = head.rows(target)
    logits = [head.logits(output[:, anchors - 1], shown) for output in outputs]
    return head.spread(torch.stack(logits, 2), target.vocab_size)


@rows.register
def _(head: Transformer, target, tokens, states, anchors, depths):
    """PARD's draft: behind every anchor a chain of masks, which sees the text up to there."""
    count = tokens.shape[1]
    positions, mask = chains(anchors, count, depths - 1)
    masks = tokens.new_full((len(tokens), len(positions) - count), head.config.vocab_size - 1)
    kept: dict = {"final": None}
    fed = torch.cat((tokens, masks), 1)
    head(fed, positions=positions, bias=mask, keep=kept, head=False)
    first = kept["final"][:, anchors, None]
    others = kept["final"][:, count:].unflatten(1, (len(anchors), depths - 1))
    return head.head(torch.cat((first, others), 2))[..., : target.vocab_size]


@rows.register
def _(head: BlockHead, target, tokens, states, anchors, depths):
    count = tokens.shape[1]
    size = head.size
    places = (anchors[:, None] + torch.arange(size)).flatten()
    mask = torch.zeros(len(places), count + len(places), dtype=torch.bool)
    mask[:, :count] = torch.arange(count) < anchors.repeat_interleave(size)[:, None]
    owner = torch.arange(len(anchors)).repeat_interleave(size)
    mask[:, count:] = owner[:, None] == owner
    some = states[head.layers[0]]
    cos, sin = head.rotary(some.device, some.dtype)
    shape = (len(tokens), head.config.num_kv_heads, mask.shape[1], head.config.head_size)
    past = [(some.new_zeros(shape), some.new_zeros(shape)) for _ in head.blocks]
    head.inject([states[layer] for layer in head.layers], past, cos[:count], sin[:count], 0)
    roots = target.embed(tokens[:, anchors])
    filled = head.fill(roots, past, cos[places], sin[places], count, mask)[:, :, :depths]
    made = target.head(filled)
    if head.correction is None:
        return made
    return made + head.correction(heard(tokens, anchors, depths, head.words))


def words(head: nn.Module | CausalLM) -> Words | None:
    """The words that a head says where it says not all tokens."""
    return getattr(head["rows"] if isinstance(head, nn.ModuleDict) else head, "words", None)


def heard(tokens: Tensor, anchors: Tensor, depths: int, words: Words | None) -> Tensor:
    """What a correction hears [B, A, K]: the tokens before those said, or their numbers."""
    known = before(tokens, anchors, depths)
    return known if words is None else words.number(known)


def before(tokens: Tensor, anchors: Tensor, depths: int) -> Tensor:
    """The tokens [B, A, K] just before those that are said."""
    return tokens[:, anchors[:, None] + torch.arange(depths)]


def laws(target: CausalLM | Speaker, states: dict, anchors: Tensor, depths: int) -> Tensor:
    """The target's own laws [B, A, K, V] of the tokens a + 1 … a + K, at temperature 1."""
    after = states["final"][:, anchors[:, None] + torch.arange(depths)]
    return target.head(after).float().softmax(-1)


def anchored_loss(
    head: nn.Module,
    target: CausalLM,
    tokens: Tensor,
    states: dict,
    anchors: Tensor,
    depths: int,
    decay: float,
    counted: Tensor | None = None,
) -> Tensor:
    """Mean cross-entropy of the rows to the target's laws in nats, both over the head's words;
    depth k weighs decay^k. counted: which tokens [B, n] count; None: all.
    """
    said = speaker(target, words(head))
    p = laws(said, states, anchors, depths)
    logits = rows(head, said, tokens, states, anchors, depths).float()
    each = -(p * logits.log_softmax(-1)).sum(-1)
    weights = (decay ** torch.arange(depths)).expand_as(each)
    if counted is not None:
        weights = weights * spoken_of(counted, anchors, depths)
    return (weights * each).sum() / weights.sum()


def spoken_of(counted: Tensor, anchors: Tensor, depths: int) -> Tensor:
    """counted [B, n] at the tokens a + 1 … a + K: [B, A, K]."""
    return counted[:, anchors[:, None] + torch.arange(1, depths + 1)]


@torch.inference_mode()
def acceptance(
    head: nn.Module, target: CausalLM, tokens: Tensor, states: dict, anchors: Tensor, depths: int
) -> dict[str, Tensor]:
    """At every anchor and depth [B, A, K]: "alpha" Σ min(p, q) at temperature 1 behind the text as it
    stands, "agrees" whether p and q have the same likeliest token.
    """
    said = speaker(target, words(head))
    p = laws(target, states, anchors, depths)
    q = rows(head, said, tokens, states, anchors, depths).float().softmax(-1)
    best = q.argmax(-1)
    if said is not target:
        best = words(head).ids[best]
    inside = p if said is target else p[..., words(head).ids]
    return {"alpha": torch.minimum(inside, q).sum(-1), "agrees": (p.argmax(-1) == best).float()}
