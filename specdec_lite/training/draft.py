"""A draft of one's own: a small model that learns a target's laws on text that the target wrote.

    python -m specdec_lite.training draft --target smollm2 --text my_notes.txt --out my_draft

Half the work is the target's: it continues prompts, once, and its states are stored, once. An
interrupted run goes on where it stopped. What lives here: the windows, the loop over them, what is
measured. What does not: the divergences (`losses`).
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
from specdec_lite.loading.corpus import training_text
from specdec_lite.loading.pairs import load_pair, save_model
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.loading.weights import fingerprint
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan, initialise, train
from specdec_lite.training.losses import DIVERGENCES, forward_kl, log_acceptance, reverse_kl
from specdec_lite.training.own_text import digest, own_text

HEAD = 64
CHARACTERS = 12
"""A token of a vocabulary holds fewer characters than this, on average over a window."""

Law = Callable[[Tensor], Tensor]


def small_model(target: CausalLM, hidden_size: int = 128, num_layers: int = 1) -> Transformer:
    """A fresh model with the target's vocabulary. hidden_size: a multiple of 64."""
    heads, rest = divmod(checks.whole("hidden_size", hidden_size, HEAD), HEAD)
    if rest:
        raise ValueError(f"hidden_size={hidden_size}: must be a multiple of {HEAD}")
    shape = TransformerConfig(
        vocab_size=target.vocab_size,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_layers=checks.whole("num_layers", num_layers, 1),
        num_heads=heads,
        num_kv_heads=heads,
        head_size=HEAD,
        max_positions=target.max_positions,
    )
    return initialise(Transformer(shape)).to(target.device)


def pieces(texts: Sequence[str], tokenizer, count: int, length: int, seed: int = 0) -> Tensor:
    """Windows of texts [count, length], each from a line's beginning of a text drawn at random.

    ValueError where the texts are too short for so many.
    """
    rng = np.random.default_rng(seed)
    room = CHARACTERS * length
    rows: list[list[int]] = []
    for _ in range(20 * count):
        text = texts[rng.integers(len(texts))]
        start = text.rfind("\n", 0, int(rng.integers(max(1, len(text) - room // 3)))) + 1
        row = tokenizer.encode(text[start : start + room])[:length]
        rows += [row] if len(row) == length else []
        if len(rows) == count:
            return torch.tensor(rows)
    raise ValueError(f"texts: hold too few windows of {length} tokens for count={count}")


def target_law(target: CausalLM, folder: Path) -> Law:
    """tokens [B, n] → the target's log-probabilities [B, n, V], from states stored in a folder."""
    features = Features(target, folder, dtype=torch.float32)

    @torch.no_grad()
    def law(tokens: Tensor) -> Tensor:
        with torch.autocast(target.device.type, enabled=False):
            return target.head(features(tokens)["final"]).float().log_softmax(-1)

    return law


def distil(
    draft: Transformer,
    law: Law | None,
    texts: Tensor,
    start: int,
    divergence: Callable[[Tensor, Tensor], Tensor],
    plan: Plan,
    path: Path,
) -> float:
    """Train a draft on texts [N, n], N a multiple of the plan's batch; returns the seconds.

    Args:
        draft: float32, its parameters with `requires_grad`.
        law: the target's; None takes each text's next token for the law.
        texts: in every step the next `plan.batch` of them, shuffled anew when all were seen.
        start: from this place on their words count.
        divergence: of `losses`, averaged over the words that count.
        path: of the checkpoint, which an interrupted run goes on from.
    """
    data = texts.split(plan.batch)
    turns = [
        turn
        for epoch in range(-(-plan.steps // len(data)))
        for turn in np.random.default_rng((plan.seed, epoch)).permutation(len(data))
    ]

    def loss(rows: Tensor) -> Tensor:
        log_q = draft(rows[:, :-1])[:, start - 1 :].float().log_softmax(-1)
        if law is None:
            return -log_q.gather(-1, rows[:, start:, None]).mean()
        return divergence(law(rows)[:, start - 1 : -1], log_q).mean()

    def source(first: int):
        return (data[turn] for turn in turns[first : plan.steps])

    path.parent.mkdir(parents=True, exist_ok=True)
    return train(draft, loss, {"texts": texts}, plan, path, source=source)


@torch.no_grad()
def apart(draft: Transformer, law: Law, texts: Tensor, start: int, batch: int = 8) -> dict:
    """What lies between draft and target on texts [N, n], each figure [N], a mean over the places
    from `start` on: alpha (T = 1), agrees (of the likeliest tokens), both KLs, and the draft's nats.
    """
    found: dict[str, list[Tensor]] = {}
    for rows in texts.split(batch):
        log_p = law(rows)[:, start - 1 : -1]
        log_q = draft(rows[:, :-1].to(log_p.device))[:, start - 1 :].float().log_softmax(-1)
        came = rows[:, start:, None].to(log_p.device)
        for name, each in {
            "alpha": log_acceptance(log_p, log_q).exp(),
            "agrees": (log_p.argmax(-1) == log_q.argmax(-1)).float(),
            "forward KL": forward_kl(log_p, log_q),
            "reverse KL": reverse_kl(log_p, log_q),
            "nats": -log_q.gather(-1, came)[..., 0],
        }.items():
            found.setdefault(name, []).append(each.mean(-1).cpu())
    return {name: torch.cat(parts) for name, parts in found.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m specdec_lite.training draft`."""
    parser.add_argument("--target", default="pair", help="pair, smollm2, a hub id or a folder")
    parser.add_argument("--text", type=Path, nargs="*", help="files to take prompts from")
    parser.add_argument("--out", type=Path, default=Path("draft"), help="folder for the draft")
    parser.add_argument("--work", type=Path, default=Path(".work/draft"), help="what is resumed")
    parser.add_argument("--count", type=int, default=512, help="texts that the target writes")
    parser.add_argument("--new", type=int, default=128, help="tokens that each goes on for")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--loss", choices=list(DIVERGENCES), default="hybrid")
    parser.add_argument("--device", default="cpu")


def loaded(name: str, device: str) -> tuple[CausalLM, object]:
    """A target by its name, in float32, and its tokenizer."""
    if name == "pair":
        pair = load_pair(device=device, dtype="float32")
        return pair.target, pair.tokenizer
    if name == "smollm2":
        return load_smollm2(device, "float32")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    return CausalLM(model.to(device)), AutoTokenizer.from_pretrained(name)


def run(chosen: argparse.Namespace) -> None:
    """Let the target write, train the draft on its laws, print what was reached, and store it."""
    target, tokenizer = loaded(chosen.target, chosen.device)
    target.model.requires_grad_(False)
    documents = training_text()["library"]
    if chosen.text:
        documents = [path.read_text(encoding="utf-8") for path in chosen.text]
    prompts = pieces(documents, tokenizer, chosen.count + 16, 64)
    texts = torch.stack(own_text(target, list(prompts), chosen.new, chosen.work / "text", 64, 1.0))
    training, held_out = texts[:-16], texts[-16:]
    draft = small_model(target, chosen.hidden, chosen.layers)
    law = target_law(target, chosen.work / "features")
    plan = Plan(chosen.epochs * -(-chosen.count // 8), 2e-3, warmup=20)
    path = chosen.work / f"{digest(texts, fingerprint(target), draft.config, plan, chosen.loss)}.pt"
    distil(draft, law, training, 64, DIVERGENCES[chosen.loss], plan, path)
    for name, each in apart(draft, law, held_out, 64).items():
        print(f"{name:12s} {each.mean():.3f} on {len(held_out)} texts that it was not trained on")
    save_model(chosen.out, draft, tokenizer)
