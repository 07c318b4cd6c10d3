"""Evaluation on held-out text: of the shipped pair, and of Medusa's heads by rank."""

import math
from collections import Counter
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.heads import Heads
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.texts.corpus import held_out_text
from specdec_lite.training.own_text import continue_prompts
from specdec_lite.training.texts import calibration_prompts, held_out_rows
from specdec_lite.tree import TokenTree

RANKS = 10
NODES = 16
"""Nodes of the tree that is stored beside Medusa's heads."""
OWN_TOKENS = 128
"""Tokens of each of the target's own texts."""
OWN_TEXT = {"greedy": 0.0, "sampled": 1.0}
"""Kind of the target's own text → its temperature."""

# The pair -----------------------------------------------------------------------------------------


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


def measure(target: Transformer, tokenizer, draft: Transformer) -> dict[str, dict[str, float]]:
    """Return measures on held-out text, by domain and for "all".

    Args:
        target: the target.
        tokenizer: encodes the texts.
        draft: the draft.

    Returns:
        domain → "bits_per_byte" of the target, "tokens", "bytes", "alpha", which is the mean of
        Σ min(p, q) at temperature 1, and "argmax_agreement".
    """
    sums: dict[str, Counter] = {"all": Counter()}
    for domain, texts in held_out_text().items():
        each = (text_sums(target, tokenizer, draft, text) for text in texts)
        sums[domain] = sum(each, Counter())
        sums["all"] += sums[domain]
    return {domain: averages(total) for domain, total in sums.items()}


def text_sums(target: Transformer, tokenizer, draft: Transformer, text: str) -> Counter:
    """Return sums over one text: tokens, bytes, nats, Σ min(p, q), and equal argmaxes."""
    tokens = torch.tensor(tokenizer.encode(text))
    sums: dict[str, float] = dict.fromkeys(("nats", "alpha", "agree", "tokens"), 0)
    sums["bytes"] = len(tokenizer.decode(tokens[1:]).encode())
    windows = zip(held_out_logits(target, tokens), held_out_logits(draft, tokens))
    for (logits, next_tokens), (draft_logits, _) in windows:
        overlap = torch.minimum(logits.softmax(-1), draft_logits.softmax(-1)).sum()
        sums["nats"] += F.cross_entropy(logits, next_tokens, reduction="sum").item()
        sums["alpha"] += overlap.item()
        sums["agree"] += (logits.argmax(-1) == draft_logits.argmax(-1)).sum().item()
        sums["tokens"] += len(next_tokens)
    return Counter(sums)  # pyright: ignore[reportArgumentType]


def averages(sums: Counter) -> dict[str, float]:
    """Return the report of one domain."""
    return {
        "bits_per_byte": sums["nats"] / math.log(2) / sums["bytes"],
        "tokens": sums["tokens"],
        "bytes": sums["bytes"],
        "alpha": sums["alpha"] / sums["tokens"],
        "argmax_agreement": sums["agree"] / sums["tokens"],
    }


# Medusa's heads -----------------------------------------------------------------------------------


def medusa_report(target: CausalLM, heads: Heads, tokenizer) -> dict:
    """Return the accuracies [heads][guesses] on three kinds of text, and the best tree for them."""
    prompts = calibration_prompts(tokenizer)
    table = {"text": rank_table(target, heads, held_out_rows(tokenizer), 2)}
    for name, temperature in OWN_TEXT.items():
        text = continue_prompts(target, prompts, OWN_TOKENS, temperature)
        table[name] = rank_table(target, heads, text, prompts.shape[1])
    tree = TokenTree.best(table["greedy"], NODES)
    stored = {"tokens": tree.tokens.tolist(), "parents": list(tree.parents)}
    return {"accuracies": table, "tree": stored}


def rank_table(target: CausalLM, heads: Heads, ids: Tensor, first: int) -> list[list[float]]:
    """Return how often guess r of head k was the true token, as a table [heads][guesses].

    Shapes: ids [B, n].
    """
    parts = ids.to(target.device).split(32)
    ranks = torch.cat([hit_ranks(target, heads, rows, first) for rows in parts])
    return [
        [(ranks[:, level] == rank).float().mean().item() for rank in range(RANKS)]
        for level in range(ranks.shape[1])
    ]


@torch.inference_mode()
def hit_ranks(target: CausalLM, heads: Heads, ids: Tensor, first: int = 2) -> Tensor:
    """Return the rank at which each head put the true token, 0 for its likeliest guess.

    Shapes: ids [B, n].
    """
    cache = target.new_cache(*ids.shape)
    hidden = target.score(ids, cache, hidden_layers=("final",), last=True).hidden["final"]
    count = heads.count
    logits = target.head(heads(hidden[:, first - 2 : ids.shape[1] - count - 1])).float()
    true_tokens = ids[:, first:].unfold(1, count, 1)[:, : logits.shape[1], :, None]
    return (logits > logits.gather(-1, true_tokens)).sum(-1).flatten(0, 1)
