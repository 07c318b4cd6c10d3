"""A block on the target's features, run over a whole text as it will be run when it drafts.

What lives here: the unrolled passes, the losses on them, and α by depth. What does not: the blocks
(`drafters.feature_head`), texts and the command (`training.eagle`). Shapes: B texts, n tokens, m = n
− steps − 1 rows, d hidden size, w width of a block's stream, v tokens of the draft, V of the target.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.feature_head import FeatureHead
from specdec_lite.engine.cache import Layer, additive
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig


@cache
def angles(shape: TransformerConfig, device: torch.device, dtype: torch.dtype):
    """cos and sin [positions, h], as a transformer of this shape has them."""
    with torch.device("meta"):
        model = Transformer(shape)
    return model.rotary(device, dtype)


def unroll(
    head: FeatureHead,
    features: dict[Layer, Tensor],
    embedded: Tensor,
    steps: int,
    detach: bool = False,
) -> Iterator[Tensor]:
    """The outputs [B, m, w] of pass 0, 1, … over texts whose states and embeddings are given.

    Row i of pass j is what a session that knows the true pairs 0 … i puts out at depth j: it is
    fed the output of pass j − 1 in the same row and token t_{i+1+j}, stands at position i + j, and
    sees the true pairs up to i and its own row's later ones. It speaks of token t_{i+2+j}.

    Args:
        head: what drafts.
        features: the target's states [B, n, d] of its layers.
        embedded: the target's embeddings [B, n, d] of the tokens.
        steps: passes.
        detach: no gradient goes from one pass into the one before (HASS).

    Source: Li et al. 2025, section 3.2 (training-time test); Zhang et al. 2024 (HASS) is the same
    computation with the rows numbered by the token they speak of.
    """
    rows = embedded.shape[1] - steps - 1
    state = head.begin([features[layer][:, :rows] for layer in head.layers])
    shape = (len(embedded), head.shape.num_kv_heads, 0, head.shape.head_size)
    past = (state.new_zeros(shape), state.new_zeros(shape))
    cos, sin = angles(head.shape, state.device, state.dtype)
    one = torch.ones(rows, rows, dtype=torch.bool, device=state.device)
    seen = one[:, :0]
    for step in range(steps):
        seen = torch.cat((seen, one.tril() if step == 0 else one.tril().triu()), 1)
        past = tuple(F.pad(stored, (0, 0, 0, rows)) for stored in past)
        place = slice(step, step + rows)
        x = head.enter(embedded[:, step + 1 : step + 1 + rows], state)
        bias = additive(seen, x.dtype)
        x = x + head.block.attention(x, cos[place], sin[place], bias, past, step * rows)
        x = x + head.block.mlp(x)
        yield x
        state = head.leave(x.detach() if detach else x)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a head is trained for.

    feature: weight of the smooth L1 distance to the target's own feature. law: of the cross-entropy
    to the target's law over the draft's vocabulary. data: of that to the next token. likeliest: of
    −Σ p log q over the ten likeliest tokens (HASS). steps: passes, from `late` of the training on;
    1 before. decay: factor a pass. detach: see `unroll`.
    """

    feature: float = 0.0
    law: float = 0.0
    data: float = 0.0
    likeliest: float = 0.0
    steps: int = 1
    late: float = 0.0
    decay: float = 1.0
    detach: bool = False


RECIPES = {
    "1": Recipe(feature=1.0, law=0.1, steps=3, late=0.7),
    "hass": Recipe(feature=1.0, law=0.1, likeliest=1.0, steps=3, detach=True),
    "3": Recipe(law=1.0, steps=4, decay=0.8),
    "mtp": Recipe(data=1.0),
}


def unrolled_loss(
    head: FeatureHead,
    target: CausalLM,
    tokens: Tensor,
    features: dict[Layer, Tensor],
    counted: Tensor,
    recipe: Recipe,
    steps: int,
) -> Tensor:
    """The mean loss over the rows that count, summed over the passes.

    Args:
        head: what is trained.
        target: whose embeddings and vocabulary projection are used.
        tokens: [B, n].
        features: states [B, n, d] of the head's layers and of "final".
        counted: [B, n] bool, the tokens whose prediction counts.
        recipe: the weights.
        steps: passes.
    """
    truth = target.backend.head.weight.detach()[head.ids].to(features["final"].dtype)
    rows = head.rows(target).to(truth.dtype)
    embedded = target.embed(tokens).to(truth.dtype)
    total = tokens.new_zeros((), dtype=truth.dtype)
    count = tokens.shape[1] - steps - 1
    asked = counted.clone()
    asked[:, :2] = False
    if recipe.law or recipe.likeliest:
        # Every pass asks for nearly the same laws.
        laws = (features["final"][:, :-1][asked[:, 1:]] @ truth.T).float().softmax(-1)
    for step, output in enumerate(unroll(head, features, embedded, steps, recipe.detach)):
        place = slice(step + 2, step + 2 + count)
        where = asked[:, place]
        output = output[where]
        logits = head.logits(output, rows).float()
        loss = total.new_zeros(())
        if recipe.feature:
            feature = features["final"][:, step + 1 : step + 1 + count][where]
            loss = loss + recipe.feature * F.smooth_l1_loss(head.leave(output), feature)
        if recipe.law or recipe.likeliest:
            inside = torch.zeros_like(asked)
            inside[:, place] = True
            p = laws[inside[asked]]
            loss = loss + recipe.law * F.cross_entropy(logits, p)
        if recipe.likeliest:
            top = p.topk(min(10, p.shape[-1]))
            found = logits.log_softmax(-1).gather(-1, top.indices)
            loss = loss - recipe.likeliest * (top.values * found).sum(-1).mean()
        if recipe.data:
            known = head.number(tokens[:, place][where])
            loss = loss + recipe.data * F.cross_entropy(logits, known, ignore_index=len(head.ids))
        total = total + recipe.decay**step * loss
    return total


@torch.inference_mode()
def acceptance_by_depth(
    head: FeatureHead, target: CausalLM, tokens: Tensor, counted: Tensor, steps: int
) -> list[dict[str, Tensor]]:
    """What becomes of a token drafted at depth 0 … steps − 1 behind the text as it stands, for every
    counted one [N]: α at temperature 1, Σ min(p, q); whether p and q agree on the likeliest token;
    what of p the draft's vocabulary covers; q of that token; and row and text of each.
    """
    scores = target.score(tokens, target.new_cache(*tokens.shape), hidden_layers=head.layers)
    logits = scores.logits.float()
    likeliest = logits.argmax(-1)
    inside = (logits[..., head.ids] - logits.logsumexp(-1, keepdim=True)).exp()
    embedded = target.embed(tokens)
    count = tokens.shape[1] - steps - 1
    depths = []
    for step, output in enumerate(unroll(head, scores.hidden, embedded, steps)):
        where = counted[:, step + 2 : step + 2 + count]
        before = slice(step + 1, step + 1 + count)
        p = inside[:, before][where]
        q = head.logits(output[where], head.rows(target)).float().softmax(-1)
        text, row = where.nonzero().T
        depths.append(
            {
                "alpha": torch.minimum(p, q).sum(-1),
                "agrees": head.ids[q.argmax(-1)] == likeliest[:, before][where],
                "covered": p.sum(-1),
                "confidence": q.amax(-1),
                "text": text,
                "row": row,
            }
        )
    return depths
