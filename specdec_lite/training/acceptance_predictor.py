"""A predictor of acceptance: how likely the target keeps a drafted token, given the draft's row.

The policy that stops drafting by these weights is `drafters.lengths.Predicted`.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.chain import fit as fit_vocabulary
from specdec_lite.drafters.lengths import CLUES, clues
from specdec_lite.engine.models import CausalLM
from specdec_lite.sampling import Sampling, SeededRng


@torch.no_grad()
def examples(
    target: CausalLM, draft: CausalLM, texts: Sequence[Sequence[int]], sampling: Sampling
) -> tuple[Tensor, Tensor]:
    """Draft one token at every position of every text and return the training examples."""
    rng = SeededRng(0)
    features, acceptance = [], []
    for text in texts:
        rows = [
            model.score(text, model.new_cache()).logits[0].double() for model in (target, draft)
        ]
        for p_logits, q_logits in zip(*rows):
            p = sampling(p_logits)
            logits = fit_vocabulary(q_logits, len(p))
            q = logits.softmax(-1) if sampling.greedy else sampling(logits)
            token = int(q.argmax()) if sampling.greedy else rng.draw(q)
            ratio = p[token] if sampling.greedy else p[token] / q[token]
            features.append(clues(q, token))
            acceptance.append(min(1.0, ratio.item()))
    return (
        torch.tensor(features, dtype=torch.float64),
        torch.tensor(acceptance, dtype=torch.float64),
    )


def fit(features: Tensor, acceptance: Tensor) -> list[float]:
    """Return the weights of a logistic regression of the acceptance on the features.

    Shapes: features [n, clues], acceptance [n].
    """
    weights = torch.zeros(CLUES, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.binary_cross_entropy_with_logits(features @ weights, acceptance)
        value += 1e-6 * weights.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return weights.tolist()
