"""A draft of your own: a small model distilled from a target on text that the target wrote.

    python -m specdec_lite.training draft --target smollm2 --text my_notes.txt --out my_draft

About half of the work is the target's: it continues prompts once, and its hidden states are stored
once. An interrupted run resumes.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.pairs import load_pair, save_model
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.loading.weights import fingerprint
from specdec_lite.texts.corpus import training_text
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan, initialize, train
from specdec_lite.training.losses import DIVERGENCES, forward_kl, log_acceptance, reverse_kl
from specdec_lite.training.own_text import own_text, token_hash
from specdec_lite.training.texts import batch_order

HEAD_SIZE = 64
MAX_CHARACTERS = 12
"""Characters per token: an upper bound of the mean over a window, for any vocabulary."""
PROMPT = 64
"""Tokens of a prompt."""
HELD_OUT = 16
"""Number of texts that the draft is evaluated on."""

LogProbs = Callable[[Tensor], Tensor]
"""tokens [B, n] → log-probabilities [B, n, V]."""


def small_model(target: CausalLM, hidden_size: int = 128, num_layers: int = 1) -> Transformer:
    """Return a fresh model with the target's vocabulary, on its device."""
    heads, remainder = divmod(checks.whole("hidden_size", hidden_size, HEAD_SIZE), HEAD_SIZE)
    if remainder:
        raise ValueError(f"hidden_size={hidden_size}: must be a multiple of {HEAD_SIZE}")
    config = TransformerConfig(
        vocab_size=target.vocab_size,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_layers=checks.whole("num_layers", num_layers, 1),
        num_heads=heads,
        num_kv_heads=heads,
        head_size=HEAD_SIZE,
        max_positions=target.max_positions,
    )
    return initialize(Transformer(config)).to(target.device)


def text_windows(texts: Sequence[str], tokenizer, count: int, length: int) -> Tensor:
    """Return random windows of texts [count, length], each from the beginning of a line."""
    rng = np.random.default_rng(0)
    characters = MAX_CHARACTERS * length
    rows: list[list[int]] = []
    for _ in range(20 * count):
        text = texts[int(rng.integers(len(texts)))]
        start = text.rfind("\n", 0, int(rng.integers(max(1, len(text) - characters // 3)))) + 1
        row = tokenizer.encode(text[start : start + characters])[:length]
        rows += [row] if len(row) == length else []
        if len(rows) == count:
            return torch.tensor(rows)
    raise ValueError(f"texts: contain too few windows of {length} tokens for count={count}")


def target_log_probs(target: CausalLM, folder: Path) -> LogProbs:
    """Return a function from tokens [B, n] to the target's log-probabilities [B, n, V]."""
    features = Features(target, folder, dtype=torch.float32)

    @torch.no_grad()
    def log_probs(tokens: Tensor) -> Tensor:
        with torch.autocast(target.device.type, enabled=False):
            return target.head(features(tokens)["final"]).float().log_softmax(-1)

    return log_probs


def distill(
    draft: Transformer,
    log_probs: LogProbs | None,
    texts: Tensor,
    start: int,
    divergence: Callable[[Tensor, Tensor], Tensor],
    plan: Plan,
    path: Path,
) -> float:
    """Train a draft on the target's distributions and return the seconds.

    Shapes: texts [N, n].
    """
    data = texts.split(plan.batch)
    order = batch_order(len(data), plan.steps)

    def loss(rows: Tensor) -> Tensor:
        log_q = draft(rows[:, :-1])[:, start - 1 :].float().log_softmax(-1)
        if log_probs is None:
            return -log_q.gather(-1, rows[:, start:, None]).mean()
        return divergence(log_probs(rows)[:, start - 1 : -1], log_q).mean()

    def source(first: int):
        return (data[number] for number in order[first:])

    path.parent.mkdir(parents=True, exist_ok=True)
    return train(draft, loss, {"texts": texts}, plan, path, source=source)


@torch.no_grad()
def compare(
    draft: Transformer, log_probs: LogProbs, texts: Tensor, start: int, batch: int = 8
) -> dict[str, Tensor]:
    """Compare the distributions of draft and target on texts.

    Shapes: texts [N, n].
    """
    parts: dict[str, list[Tensor]] = {}
    for rows in texts.split(batch):
        log_p = log_probs(rows)[:, start - 1 : -1]
        log_q = draft(rows[:, :-1].to(log_p.device))[:, start - 1 :].float().log_softmax(-1)
        next_tokens = rows[:, start:, None].to(log_p.device)
        measures = {
            "alpha": log_acceptance(log_p, log_q).exp(),
            "agrees": (log_p.argmax(-1) == log_q.argmax(-1)).float(),
            "forward KL": forward_kl(log_p, log_q),
            "reverse KL": reverse_kl(log_p, log_q),
            "nats": -log_q.gather(-1, next_tokens)[..., 0],
        }
        for name, values in measures.items():
            parts.setdefault(name, []).append(values.mean(-1).cpu())
    return {name: torch.cat(values) for name, values in parts.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m specdec_lite.training draft`."""
    parser.add_argument("--target", default="pair", help="pair, smollm2, a hub id or a folder")
    parser.add_argument("--text", type=Path, nargs="*", help="files to take prompts from")
    parser.add_argument("--count", type=int, default=512, help="number of texts to train on")
    parser.add_argument("--new", type=int, default=128, help="tokens the target adds to a prompt")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=128, help="hidden size of the draft")
    parser.add_argument("--layers", type=int, default=1, help="blocks of the draft")
    parser.add_argument("--loss", choices=list(DIVERGENCES), default="total variation")


def load_target(name: str, device: str) -> tuple[CausalLM, object]:
    """Return a target in float32 and its tokenizer."""
    if name == "pair":
        pair = load_pair(device=device, dtype="float32")
        return pair.target, pair.tokenizer
    if name == "smollm2":
        return load_smollm2(device, "float32")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    model = model.to(device)  # pyright: ignore[reportArgumentType]
    return CausalLM(model), AutoTokenizer.from_pretrained(name)


def run(options: argparse.Namespace) -> None:
    """Let the target write texts, distill the draft on them, print its measures, and save it."""
    target, tokenizer = load_target(options.target, options.device)
    target.model.requires_grad_(False)
    documents = training_text()["library"]
    if options.text:
        documents = [path.read_text(encoding="utf-8") for path in options.text]
    prompts = list(text_windows(documents, tokenizer, options.count + HELD_OUT, PROMPT))
    texts = torch.stack(own_text(target, prompts, options.new, options.work / "text", 64, 1.0))
    training, held_out = texts[:-HELD_OUT], texts[-HELD_OUT:]
    draft = small_model(target, options.hidden, options.layers)
    log_probs = target_log_probs(target, options.work / "features")
    plan = Plan(options.epochs * -(-options.count // 8), 2e-3, warmup=20)
    run_name = token_hash(texts, fingerprint(target), draft.config, plan, options.loss)
    divergence = DIVERGENCES[options.loss]
    distill(draft, log_probs, training, PROMPT, divergence, plan, options.work / f"{run_name}.pt")
    for name, values in compare(draft, log_probs, held_out, PROMPT).items():
        print(f"{name:12s} {values.mean():.3f} on {len(held_out)} held-out texts")
    save_model(options.out or Path("draft"), draft, tokenizer)  # pyright: ignore[reportArgumentType]
