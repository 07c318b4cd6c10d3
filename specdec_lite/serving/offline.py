"""Acceptance without decoding: both models read one text, and their rows are compared.

What lives here: the rows of a text and what they say about a draft. What does not: the loop
(`decoding`), whose acceptance at the first node of each round must agree with this one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lite.drafters.chain import fit
from specdec_lite.engine.models import CausalLM
from specdec_lite.sampling import Sampling

CHUNK = 64
"""Rows that are scored at a time: V numbers each, twice."""


@dataclass(frozen=True, slots=True)
class Offline:
    """What a draft's rows are worth at every position of a text, all [n − 1].

    drawn: Σ min(p, q), the chance that a token drawn from q is kept. chosen: p of q's likeliest
    token, the chance of a token that was chosen. greedy: 1 where both argmaxes agree. kept: min(1,
    q/p) of the text's next token, the chance that it is an accepted draft if it was drawn.
    """

    drawn: Tensor
    chosen: Tensor
    greedy: Tensor
    kept: Tensor

    def at(self, temperature: float) -> Tensor:
        return self.drawn if temperature else self.greedy


def rows(model: CausalLM, tokens: Tensor) -> Iterator[Tensor]:
    """The logits behind every token of a text but the last, [≤ CHUNK, V'] at a time."""
    cache = model.new_cache(capacity=len(tokens))
    for part in tokens[:-1].split(CHUNK):
        yield model.score(part.clamp(max=model.vocab_size - 1), cache).logits[0]


@torch.inference_mode()
def offline(
    target: CausalLM,
    draft: CausalLM,
    tokens: Tensor,
    temperature: float = 1.0,
    shown: Tensor | None = None,
    shift: int = 0,
) -> Offline:
    """Compare the two models on a text.

    Args:
        target, draft: of one vocabulary, padded or not.
        tokens: ids [n], n ≥ 2.
        temperature: of `drawn` and `chosen`, above 0.
        shown: ids [n] that the draft reads in the text's place (a control: it must do badly).
        shift: compare the draft's row with the target's so many positions later (another).
    """
    adjusted = Sampling(temperature)
    seen = tokens if shown is None else shown
    parts: dict[str, list[Tensor]] = {"drawn": [], "chosen": [], "greedy": [], "kept": []}
    for p_logits, q_logits, following in zip(
        rows(target, tokens), rows(draft, seen), tokens[1:].split(CHUNK)
    ):
        q_logits = fit(q_logits.to(p_logits.device), target.vocab_size)
        p_logits = p_logits[shift:]
        q_logits = q_logits[: len(p_logits)]
        p = adjusted(p_logits)
        q = adjusted(q_logits)
        guess = q_logits.argmax(-1)
        own = following[shift:, None].to(p.device)
        parts["drawn"].append(torch.minimum(p, q).sum(-1).cpu())
        parts["chosen"].append(p.gather(-1, guess[:, None])[:, 0].cpu())
        parts["greedy"].append((guess == p_logits.argmax(-1)).double().cpu())
        parts["kept"].append((q.gather(-1, own) / p.gather(-1, own)).clamp(max=1)[:, 0].cpu())
    return Offline(**{name: torch.cat(values).double() for name, values in parts.items()})
