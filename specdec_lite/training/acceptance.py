"""How likely a drafted token is to be kept, predicted from the row it was drawn from.

What lives here: the examples, and the fit of a handful of weights, which takes a second. What does
not: the policy that uses them (`drafters.lengths.Predicted`).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.checks import whole
from specdec_lite.drafters.chain import fit as fitted
from specdec_lite.drafters.lengths import CLUES, clues
from specdec_lite.engine.models import CausalLM
from specdec_lite.sampling import Sampling, SeededRng


@torch.no_grad()
def examples(
    target: CausalLM,
    draft: CausalLM,
    texts: Sequence[Sequence[int]],
    sampling: Sampling,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """At every place of every text one drafted token: what the draft shows of it [n, clues], and the
    chance min(1, p/q) that the target keeps it [n], both float64.

    Greedy sampling drafts the argmax, which the target keeps or not. texts: rows of ids, best the
    target's own.
    """
    rng = SeededRng(seed)
    shown, kept = [], []
    for text in texts:
        both = [
            model.score(text, model.new_cache()).logits[0].double() for model in (target, draft)
        ]
        for p_logits, q_logits in zip(*both):
            p = sampling(p_logits)
            logits = fitted(q_logits, len(p))
            q = logits.softmax(-1) if sampling.greedy else sampling(logits)
            token = int(q.argmax()) if sampling.greedy else rng.draw(q)
            shown.append(clues(q, token))
            kept.append(min(1.0, (p[token] / (1.0 if sampling.greedy else q[token])).item()))
    return torch.tensor(shown, dtype=torch.float64), torch.tensor(kept, dtype=torch.float64)


def fit(shown: Tensor, kept: Tensor, refusals: float = 1.0, steps: int = 200) -> list[float]:
    """The weights of a logistic regression of `kept` [n] on `shown` [n, clues].

    refusals: how much more an example counts as far as it was refused; above 1 the policy stops
    earlier.
    """
    whole("steps", steps, 1)
    weights = torch.zeros(CLUES, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=steps, line_search_fn="strong_wolfe")
    each = kept + refusals * (1 - kept)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.binary_cross_entropy_with_logits(shown @ weights, kept, reduction="none")
        value = (each * value).mean() + 1e-6 * weights.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return weights.tolist()
