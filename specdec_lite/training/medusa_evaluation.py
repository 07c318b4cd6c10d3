"""Evaluation of Medusa's heads: accuracy by rank on held-out text and on the target's own text."""

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.heads import Heads
from specdec_lite.engine.models import CausalLM
from specdec_lite.texts.corpus import DOMAINS, evaluation_prompts, held_out_text, make_prompts
from specdec_lite.training.own_text import continue_prompts

RANKS = 10
OWN_TEXT = {"greedy": 0.0, "sampled": 1.0}
"""Kind of the target's own text → its temperature."""


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


def accuracies(ranks: Tensor, guesses: int = RANKS) -> list[list[float]]:
    """Return how often guess r of head k was the true token, as a table [heads][guesses].

    Shapes: ranks [positions, K].
    """
    return [
        [(ranks[:, level] == rank).float().mean().item() for rank in range(guesses)]
        for level in range(ranks.shape[1])
    ]


def calibration_prompts(tokenizer, length: int = 96) -> Tensor:
    """Return prompts [B, length] from the held-out documents, without the evaluation prompts."""
    evaluated = {item["text"] for items in evaluation_prompts().values() for item in items}
    texts = dict.fromkeys(
        item["text"]
        for items in make_prompts(each=40).values()
        for item in items
        if item["text"] not in evaluated
    )
    rows = [tokenizer.encode(text)[:length] for text in texts]
    return torch.tensor([row for row in rows if len(row) == length])


def held_out_rows(tokenizer, length: int = 256) -> Tensor:
    """Return the held-out text [B, length] in windows that do not overlap."""
    texts = [
        torch.tensor(tokenizer.encode(text))
        for domain in DOMAINS
        for text in held_out_text()[domain]
    ]
    return torch.cat([text[: len(text) // length * length].view(-1, length) for text in texts])


def measure(
    target: CausalLM, heads: Heads, tokenizer, new: int = 128
) -> dict[str, list[list[float]]]:
    """Return the accuracies [heads][guesses] on three kinds of text."""
    prompts = calibration_prompts(tokenizer)
    table = {"text": rank_table(target, heads, held_out_rows(tokenizer), 2)}
    for name, temperature in OWN_TEXT.items():
        text = continue_prompts(target, prompts, new, temperature)
        table[name] = rank_table(target, heads, text, prompts.shape[1])
    return table


def rank_table(target: CausalLM, heads: Heads, ids: Tensor, first: int) -> list[list[float]]:
    """Return the accuracies [heads][guesses] on one set of texts.

    Shapes: ids [B, n].
    """
    parts = ids.to(target.device).split(32)
    return accuracies(torch.cat([hit_ranks(target, heads, rows, first) for rows in parts]))


@torch.inference_mode()
def held_out_loss(target: CausalLM, tokenizer) -> float:
    """Return the target's own loss on held-out text, which joint training must not raise."""
    rows = held_out_rows(tokenizer)
    nats = 0.0
    for part in rows.to(target.device).split(8):
        logits = target.model(part[:, :-1]).float().flatten(0, 1)
        nats += F.cross_entropy(logits, part[:, 1:].flatten(), reduction="sum").item()
    return nats / (len(rows) * (rows.shape[1] - 1))
