"""Evaluation of blockwise heads: loss and accuracy on held-out text, block sizes, changed texts."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from specdec_lite.decoding import Output, generate
from specdec_lite.drafters.heads import BlockwiseDrafter, Heads
from specdec_lite.engine.models import CausalLM
from specdec_lite.texts.corpus import DOMAINS, evaluation_prompts, held_out_text
from specdec_lite.training.losses import final_states, head_logits, native_model

BLOCKS = (1, 2, 4, 6, 8)


def held_out_windows(tokenizer, window: int, longest: int, ahead: int) -> Iterator[Tensor]:
    """Yield the held-out texts in windows [1, ≤ window + 1]; neighbors share one token."""
    for text in (text for domain in DOMAINS for text in held_out_text()[domain]):
        tokens = torch.tensor(tokenizer.encode(text)[:longest])
        for start in range(0, len(tokens) - ahead, window):
            yield tokens[None, start : start + window + 1]


@torch.no_grad()
def evaluate_heads(
    target: CausalLM, heads: Heads, tokenizer, window: int = 512, longest: int = 4096
) -> dict[str, list[float] | int]:
    """Return loss and accuracy on held-out text of the target's own head and of every extra head."""
    model = native_model(target)
    loss = torch.zeros(heads.count + 1, dtype=torch.float64)
    correct = torch.zeros_like(loss)
    count = torch.zeros_like(loss)
    for rows in held_out_windows(tokenizer, window, longest, heads.count + 2):
        rows = rows.to(target.device)
        hidden = final_states(model, rows[:, :-1])[0]
        for index in range(-1, heads.count):
            labels = rows[0, index + 2 :]
            logits = head_logits(model, heads, hidden[: len(labels)], index).float()
            loss[index + 1] += F.cross_entropy(logits, labels, reduction="sum").item()
            correct[index + 1] += (logits.argmax(-1) == labels).sum().item()
            count[index + 1] += len(labels)
    return {
        "loss": (loss / count).tolist(),
        "accuracy": (correct / count).tolist(),
        "tokens": int(count[0]),
    }


def block_sizes(
    target: CausalLM,
    heads: Heads,
    tokenizer,
    blocks: tuple[int, ...] = BLOCKS,
    new_tokens: int = 48,
) -> tuple[dict, list[list[int]]]:
    """Decode the evaluation prompts greedily and return the mean accepted block size τ by k."""
    prompts = [
        (domain, tokenizer.encode(item["text"]))
        for domain, items in evaluation_prompts().items()
        for item in items
    ]
    runs = {}
    for k in tqdm(blocks, desc="block sizes"):
        drafter = BlockwiseDrafter(target, heads, k)
        runs[k] = [
            generate(target, ids, drafter, new_tokens, stop_token_ids=()) for _, ids in prompts
        ]
    texts = {k: [run.tokens.tolist() for run in outputs] for k, outputs in runs.items()}
    sizes: dict = {"k": list(blocks), "new_tokens": new_tokens, "prompts": len(prompts)}
    for name in ("all", *DOMAINS):
        rows = [row for row, (domain, _) in enumerate(prompts) if name in ("all", domain)]
        sizes[name] = [mean_block_size([runs[k][row] for row in rows]) for k in blocks]
    sizes["identical_to_greedy"] = [
        sum(text == plain for text, plain in zip(texts[k], texts[1])) for k in blocks
    ]
    return sizes, texts[1]


def mean_block_size(runs: Sequence[Output]) -> float:
    """Return tokens ÷ target passes: 1 at k = 1.

    A block consists of one token of the target itself and of the drafts accepted with it.
    """
    tokens = sum(run.stats.tokens for run in runs)
    return tokens / sum(run.stats.target_passes for run in runs)


def unchanged_share(text: list[int], original: list[int]) -> float:
    """Return the fraction of a text's tokens before its first difference from the original."""
    for position, (token, its_original) in enumerate(zip(text, original)):
        if token != its_original:
            return position / len(text)
    return 1.0


def text_differences(texts: list[list[int]], originals: list[list[int]]) -> dict[str, float]:
    """Return how much greedy texts changed."""
    shares = [unchanged_share(text, original) for text, original in zip(texts, originals)]
    return {
        "texts_changed": sum(share < 1 for share in shares) / len(shares),
        "tokens_before_the_change": sum(shares) / len(shares),
    }
