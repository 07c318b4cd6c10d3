"""Evaluation of the shipped pair on held-out text: bits per byte, acceptance, agreement."""

import math
from collections import Counter
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.engine.transformer import Transformer
from specdec_lite.texts.corpus import held_out_text


@torch.no_grad()
def held_out_logits(
    model: Transformer, tokens: Tensor, context: int = 1024
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (logits [n, V], next tokens [n]) over a long text; each token is scored once.

    Every token has at least context/2 tokens before it, except at the beginning of the text.

    Args:
        model: the model.
        tokens: [n] of the text.
        context: tokens per pass.
    """
    done = 0
    for start in range(0, max(1, len(tokens) - 1), context // 2):
        window = tokens[start : start + context + 1]
        logits = model(window[None, :-1])[0, done - start :]
        yield logits.float(), window[1 + done - start :]
        done = start + len(window) - 1
        if done >= len(tokens) - 1:
            return


def measure(
    target: Transformer, tokenizer, draft: Transformer | None = None
) -> dict[str, dict[str, float]]:
    """Return measures on held-out text, by domain and for "all".

    Args:
        target: the target.
        tokenizer: encodes the texts.
        draft: the draft; None measures the target alone.

    Returns:
        domain → "bits_per_byte" of the target, "tokens" and "bytes"; with a draft also "alpha", the
        mean of Σ min(p, q) at temperature 1, and "argmax_agreement".
    """
    sums = {"all": Counter()}
    for domain, texts in held_out_text().items():
        sums[domain] = Counter()
        for text in texts:
            sums[domain].update(text_sums(target, tokenizer, draft, text))
        sums["all"].update(sums[domain])
    return {domain: averages(total, draft is not None) for domain, total in sums.items()}


def text_sums(target: Transformer, tokenizer, draft: Transformer | None, text: str) -> Counter:
    """Return sums over one text: tokens, bytes, nats, Σ min(p, q), and equal argmaxes."""
    tokens = torch.tensor(tokenizer.encode(text))
    sums: dict[str, float] = dict.fromkeys(("nats", "alpha", "agree", "tokens"), 0)
    sums["bytes"] = len(tokenizer.decode(tokens[1:]).encode())
    windows = zip(held_out_logits(target, tokens), held_out_logits(draft or target, tokens))
    for (logits, next_tokens), (draft_logits, _) in windows:
        overlap = torch.minimum(logits.softmax(-1), draft_logits.softmax(-1)).sum()
        sums["nats"] += F.cross_entropy(logits, next_tokens, reduction="sum").item()
        sums["alpha"] += overlap.item()
        sums["agree"] += (logits.argmax(-1) == draft_logits.argmax(-1)).sum().item()
        sums["tokens"] += len(next_tokens)
    return Counter(sums)  # pyright: ignore[reportArgumentType]


def averages(sums: Counter, with_draft: bool) -> dict[str, float]:
    """Return the report of one domain."""
    report = {
        "bits_per_byte": sums["nats"] / math.log(2) / sums["bytes"],
        "tokens": sums["tokens"],
        "bytes": sums["bytes"],
    }
    if with_draft:
        report["alpha"] = sums["alpha"] / sums["tokens"]
        report["argmax_agreement"] = sums["agree"] / sums["tokens"]
    return report
