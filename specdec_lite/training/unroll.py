"""Unrolled training of EAGLE-like heads: a head runs over a whole text as it runs when it drafts.

Shapes: B texts, n tokens, m = n − steps − 1 rows, d hidden size, w width of a head's stream, v
tokens of the draft vocabulary, V tokens of the target.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.eagle import FeatureHead
from specdec_lite.engine.cache import Layer, additive
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig


@cache
def rotary_tables(config: TransformerConfig, device: torch.device, dtype: torch.dtype):
    """Return cos and sin [positions, h] of a transformer of this configuration."""
    with torch.device("meta"):
        model = Transformer(config)
    return model.rotary(device, dtype)


def unroll(
    head: FeatureHead,
    features: dict[Layer, Tensor],
    embedded: Tensor,
    steps: int,
    detach: bool = False,
) -> Iterator[Tensor]:
    """Yield the outputs [B, m, w] of pass 0, 1, … of a head over texts.

    Row i of pass j equals the output of a drafting session at depth j, if the session has the true
    pairs 0 … i. Its input is the output of pass j − 1 in the same row and token t_{i+1+j}. Its
    position is i + j. It attends to the true pairs up to i and to the later pairs of its own row.
    It predicts token t_{i+2+j}.

    Source: Li et al. 2025, section 3.2 (training-time test). Zhang et al. 2024 (HASS) is the same
    computation, with the rows numbered by the token that they predict.
    """
    rows = embedded.shape[1] - steps - 1
    state = head.begin([features[layer][:, :rows] for layer in head.layers])
    shape = (len(embedded), head.shape.num_kv_heads, 0, head.shape.head_size)
    past = (state.new_zeros(shape), state.new_zeros(shape))
    cos, sin = rotary_tables(head.shape, state.device, state.dtype)
    ones = torch.ones(rows, rows, dtype=torch.bool, device=state.device)
    mask = ones[:, :0]
    for step in range(steps):
        mask = torch.cat((mask, ones.tril() if step == 0 else ones.tril().triu()), 1)
        past = tuple(F.pad(entries, (0, 0, 0, rows)) for entries in past)
        positions = slice(step, step + rows)
        x = head.enter(embedded[:, step + 1 : step + 1 + rows], state)
        bias = additive(mask, x.dtype)
        x = x + head.block.attention(x, cos[positions], sin[positions], bias, past, step * rows)
        x = x + head.block.mlp(x)
        yield x
        state = head.leave(x.detach() if detach else x)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The loss of a head: weights of its terms, and the passes that it is summed over.

    Attributes:
        feature: weight of the smooth L1 distance to the target's next feature.
        distillation: weight of the cross-entropy to the target's distribution over the draft
            vocabulary.
        data: weight of the cross-entropy to the next token.
        likeliest: weight of −Σ p log q over the target's ten likeliest tokens (HASS).
        steps: number of passes.
        late: fraction of the training before which there is one pass only.
        decay: weight of a pass relative to the pass before.
        detach: whether to stop the gradient between two passes.
    """

    feature: float = 0.0
    distillation: float = 0.0
    data: float = 0.0
    likeliest: float = 0.0
    steps: int = 1
    late: float = 0.0
    decay: float = 1.0
    detach: bool = False


RECIPES = {
    "1": Recipe(feature=1.0, distillation=0.1, steps=3, late=0.7),
    "hass": Recipe(feature=1.0, distillation=0.1, likeliest=1.0, steps=3, detach=True),
    "3": Recipe(distillation=1.0, steps=4, decay=0.8),
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
    """Return the mean loss over the tokens that count, summed over the passes.

    Shapes: tokens [B, n], counted [B, n].
    """
    projection = target.projection[head.ids].to(features["final"].dtype)
    rows = head.rows(target).to(projection.dtype)
    embedded = target.embed(tokens).to(projection.dtype)
    total = tokens.new_zeros((), dtype=projection.dtype)
    count = tokens.shape[1] - steps - 1
    scored = counted.clone()
    scored[:, :2] = False
    distributions = None
    if recipe.distillation or recipe.likeliest:
        # All passes need nearly the same rows: compute them once.
        states = features["final"][:, :-1][scored[:, 1:]]
        distributions = (states @ projection.T).float().softmax(-1)
    for step, output in enumerate(unroll(head, features, embedded, steps, recipe.detach)):
        predicted = slice(step + 2, step + 2 + count)
        where = scored[:, predicted]
        output = output[where]
        logits = head.logits(output, rows).float()
        loss = total.new_zeros(())
        if recipe.feature:
            feature = features["final"][:, step + 1 : step + 1 + count][where]
            loss = loss + recipe.feature * F.smooth_l1_loss(head.leave(output), feature)
        if distributions is not None:
            inside = torch.zeros_like(scored)
            inside[:, predicted] = True
            p = distributions[inside[scored]]
            loss = loss + recipe.distillation * F.cross_entropy(logits, p)
            if recipe.likeliest:
                loss = loss - recipe.likeliest * top_log_likelihood(logits, p)
        if recipe.data:
            labels = head.number(tokens[:, predicted][where])
            loss = loss + recipe.data * F.cross_entropy(logits, labels, ignore_index=len(head.ids))
        total = total + recipe.decay**step * loss
    return total


def top_log_likelihood(logits: Tensor, p: Tensor) -> Tensor:
    """Return Σ p log q over the target's ten likeliest tokens, averaged over the rows (HASS).

    Shapes: logits [N, v], p [N, v].
    """
    top = p.topk(min(10, p.shape[-1]))
    log_q = logits.log_softmax(-1).gather(-1, top.indices)
    return (top.values * log_q).sum(-1).mean()
