"""Acceptance without decoding: both models read one text, and their rows are compared.

The acceptance of the first node of each round of a real loop must agree with this one.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from specdec_lite.drafters.chain import fit
from specdec_lite.engine.models import CausalLM
from specdec_lite.sampling import Sampling

CHUNK = 64
"""Rows that are scored at a time; each holds V numbers, for both models."""


def rows(model: CausalLM, tokens: Tensor) -> Iterator[Tensor]:
    """Yield the logits after every token of a text but the last, [≤ CHUNK, V'] at a time.

    Shapes: tokens [n].
    """
    cache = model.new_cache(capacity=len(tokens))
    for part in tokens[:-1].split(CHUNK):
        yield model.score(part.clamp(max=model.vocab_size - 1), cache).logits[0]


@torch.inference_mode()
def offline(
    target: CausalLM,
    draft: CausalLM,
    tokens: Tensor,
    temperature: float = 1.0,
    draft_tokens: Tensor | None = None,
    shift: int = 0,
) -> dict[str, Tensor]:
    """Return the acceptance probabilities at every position of a text, each [n − 1].

    "drawn": Σ min(p, q), that of a token drawn from q. "chosen": p of q's likeliest token, that of a
    chosen token. "greedy": 1 if both argmaxes agree, else 0.

    Shapes: tokens [n], draft_tokens [n].
    """
    adjusted = Sampling(temperature)
    read = tokens if draft_tokens is None else draft_tokens
    parts: dict[str, list[Tensor]] = {"drawn": [], "chosen": [], "greedy": []}
    for p_logits, q_logits in zip(rows(target, tokens), rows(draft, read)):
        q_logits = fit(q_logits.to(p_logits.device), target.vocab_size)
        p_logits = p_logits[shift:]
        q_logits = q_logits[: len(p_logits)]
        p = adjusted(p_logits)
        q = adjusted(q_logits)
        guess = q_logits.argmax(-1)
        parts["drawn"].append(torch.minimum(p, q).sum(-1).cpu())
        parts["chosen"].append(p.gather(-1, guess[:, None])[:, 0].cpu())
        parts["greedy"].append((guess == p_logits.argmax(-1)).double().cpu())
    return {name: torch.cat(values).double() for name, values in parts.items()}
