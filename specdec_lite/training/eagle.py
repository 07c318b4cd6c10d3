"""One-block heads on the target's features: EAGLE 1 (and 2), EAGLE 3, HASS, multi-token prediction.

They are trained on text that the target wrote: `--target smollm2` reads the answers that
`training.smollm2_text` stored, `--target pair` writes its text first. The target's hidden states
are stored once; an interrupted run resumes.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from specdec_lite.drafters.eagle_head import Eagle1Head, Eagle3Head, FeatureHead, MtpHead
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Norm
from specdec_lite.loading.memory import has_bfloat16
from specdec_lite.loading.pairs import load_pair
from specdec_lite.loading.smollm2 import cache_folder, load_smollm2
from specdec_lite.loading.weights import SHIPPED, fingerprint, load, save
from specdec_lite.measure import stamps
from specdec_lite.training.commands import add_device, add_folders, command_line
from specdec_lite.training.features import Features
from specdec_lite.training.head_texts import (
    Sample,
    Texts,
    batch_by_length,
    most_frequent_tokens,
    pair_texts,
    smollm2_texts,
    train_on_batches,
)
from specdec_lite.training.loop import Plan
from specdec_lite.training.unroll import RECIPES, Recipe, acceptance_by_depth, unrolled_loss

KINDS = {"1": Eagle1Head, "2": Eagle1Head, "hass": Eagle1Head, "3": Eagle3Head, "mtp": MtpHead}
"""Version → class of the head; EAGLE-2 drafts with EAGLE-1's head."""
NAMES = {"1": "eagle1", "2": "eagle1", "hass": "hass", "3": "eagle3", "mtp": "mtp"}
"""Version → folder among the shipped weights."""
VOCABULARY = {"pair": 2048, "smollm2": 12_000}
"""Target → default size of the draft vocabulary."""
DEPTHS = 4
"""Number of depths that are evaluated."""


def initialize_head(head: FeatureHead, target: CausalLM) -> FeatureHead:
    """Draw the matrices of a head from Normal(0, .02) and return the head.

    Matrices that write to the residual stream get half this width. A vocabulary projection of the
    head's own starts as a copy of the target's, and so does the norm before a projection.
    """
    generator = torch.Generator().manual_seed(0)
    for name, weight in head.named_parameters():
        if weight.dim() == 2:
            scale = 0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
            nn.init.normal_(weight, std=0.02 * scale, generator=generator)
    with torch.no_grad():
        if isinstance(head.norm, Norm) and target.native:
            head.norm.weight.copy_(target.model.norm.weight)
        if head.head is not None:
            head.head.weight.copy_(target.projection[head.ids.to(target.device)])
    return head


def fit(
    head: FeatureHead,
    target: CausalLM,
    data: list[tuple[Tensor, Tensor]],
    features: Callable[[Tensor], dict],
    recipe: Recipe,
    plan: Plan,
    path: Path,
) -> float:
    """Train a head and return the seconds, earlier runs included.

    Shapes: features [B, n].
    """
    first_unrolled_step = int(recipe.late * plan.steps)

    def loss(row: Tensor) -> Tensor:
        step, number = row.tolist()
        tokens, counted = (part.to(target.device) for part in data[number])
        stored = features(tokens)
        states = {layer: stored[layer].float() for layer in {*head.layers, "final"}}
        steps = recipe.steps if step >= first_unrolled_step else 1
        return unrolled_loss(head, target, tokens, states, counted, recipe, steps)

    return train_on_batches(head, loss, len(data), plan, path)


def measure(
    head: FeatureHead, target: CausalLM, texts: Sequence[Sample], size: int = 4
) -> dict[str, dict]:
    """Return acceptance and agreement by depth, for each kind of text and for "all"."""
    table: dict[str, dict] = {}
    for name, temperature in (("agrees", 0.0), ("alpha", 1.0)):
        chosen = [text for text in texts if text.temperature == temperature]
        if chosen:
            sums, counts = acceptance_by_text(head, target, chosen, [name], size)
            kinds = [text.kind for text in chosen]
            for kind in ("all", *dict.fromkeys(kinds)):
                columns = torch.tensor([kind in ("all", own) for own in kinds])
                entry = mean_and_error(sums[name][:, columns], counts[:, columns])
                table.setdefault(kind, {})[name] = entry
    return table


def acceptance_by_text(
    head: FeatureHead,
    target: CausalLM,
    texts: Sequence[Sample],
    names: Sequence[str],
    size: int = 4,
) -> tuple[dict[str, Tensor], Tensor]:
    """Return sums of some measures over each text, and the numbers of tokens summed."""
    columns = sorted(range(len(texts)), key=lambda number: len(texts[number].ids))
    ordered = [texts[number] for number in columns]
    parts: dict[str, list[Tensor]] = {name: [] for name in (*names, "count")}
    for tokens, counted in batch_by_length(ordered, size, DEPTHS + 1):
        tokens, counted = tokens.to(target.device), counted.to(target.device)
        rows = acceptance_by_depth(head, target, tokens, counted, DEPTHS)
        for name, sums in parts.items():
            weights = [None if name == "count" else row[name].double() for row in rows]
            by_depth = [
                torch.bincount(row["text"], weight, len(tokens))
                for row, weight in zip(rows, weights)
            ]
            sums.append(torch.stack(by_depth).double().cpu())
    original_order = torch.tensor(columns).argsort()
    table = {name: torch.cat(sums, 1)[:, original_order] for name, sums in parts.items()}
    return table, table.pop("count")


def mean_and_error(sums: Tensor, counts: Tensor) -> dict[str, list]:
    """Return the mean over tokens and its standard error over texts, at every depth.

    Shapes: sums [depths, texts], counts [depths, texts].
    """
    mean = sums.sum(1) / counts.sum(1)
    error = (sums - mean[:, None] * counts).square().sum(1).sqrt() / counts.sum(1)
    return {"mean": mean.tolist(), "error": error.tolist(), "tokens": counts.sum(1).int().tolist()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m specdec_lite.training eagle`."""
    parser.add_argument("--target", choices=["pair", "smollm2"], default="pair")
    version_help = "kind of head; 2 drafts with the head of 1"
    parser.add_argument("--version", choices=list(KINDS), default="1", help=version_help)
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=8, help="texts per step")
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    vocabulary_help = "size of the draft vocabulary: the most frequent tokens"
    parser.add_argument("--vocabulary", type=int, help=vocabulary_help)
    intermediate_help = "width of the head's MLP; default: the target's"
    parser.add_argument("--intermediate", type=int, help=intermediate_help)
    parser.add_argument("--texts", type=int, help="number of training texts, at most")
    start_help = "folder of a trained head to continue from, with its vocabulary and sizes"
    parser.add_argument("--start", type=Path, help=start_help)
    work_help = "folder for checkpoints, hidden states and the shipped target's own text"
    add_folders(parser, None, "folder for the weights", cache_folder() / "eagle", work_help)
    add_device(parser)


def load_texts(options: argparse.Namespace) -> tuple[CausalLM, Texts]:
    """Return the target without gradients, and its texts."""
    if options.target == "pair":
        pair = load_pair(device=options.device, dtype="float32")
        target, tokenizer, target_texts = pair.target, pair.tokenizer, pair_texts
    else:
        dtype = "bfloat16" if has_bfloat16(options.device) else "float32"
        target, tokenizer = load_smollm2(options.device, dtype)
        target_texts = smollm2_texts
    target.model.requires_grad_(False)
    texts = target_texts(target, tokenizer, options.work, options.texts)
    if not texts.training:
        raise ValueError(
            f"target={options.target!r}: has no text to train on yet; run python -m"
            " specdec_lite.training.smollm2_text"
        )
    return target, texts


def build_head(options: argparse.Namespace, target: CausalLM, texts: Texts) -> FeatureHead:
    """Return the head that the options ask for, with fresh weights or those of `--start`."""
    if options.start is not None:
        return load(options.start, target, KINDS[options.version]).float().requires_grad_(True)
    count = options.vocabulary or VOCABULARY[options.target]
    ids = most_frequent_tokens(texts.training, count, target.vocab_size)
    sizes = {"intermediate_size": options.intermediate} if options.intermediate else {}
    head = KINDS[options.version].for_target(target, ids, **sizes)
    return initialize_head(head, target).to(target.device)


def run(options: argparse.Namespace) -> None:
    """Train one head, evaluate it on held-out text, and save weights and report."""
    target, texts = load_texts(options)
    name = NAMES[options.version]
    out = options.out or SHIPPED / name / options.target
    head = build_head(options, target, texts)
    recipe = RECIPES["1" if options.version == "2" else options.version]
    data = batch_by_length(texts.training, options.batch, DEPTHS + 1)
    tokens = sum(int(counted.sum()) for _, counted in data)
    steps = max(1, round(options.epochs * len(data)))
    plan = Plan(steps, options.rate, options.batch, warmup=max(1, steps // 20), weight_decay=0.0)
    # The layers of every version: one pass of the target serves all of them.
    layers = tuple(dict.fromkeys((*Eagle3Head.default_layers(target.num_layers), "final")))
    features = Features(target, options.work / "features", layers)
    sizes = f"{len(head.ids)}-{head.shape.intermediate_size}-{len(texts.training)}-{steps}"
    sizes += "" if options.start is None else "-continued"
    path = options.work / f"{name}-{fingerprint(target)}-{sizes}.pt"
    print(f"{len(texts.training)} texts, {tokens} tokens, {steps} steps", flush=True)
    seconds = fit(head, target, data, features, recipe, plan, path)
    save(out, head, target, head.config, bits=8)
    stored = load(out, target, KINDS[options.version])
    command = command_line("eagle", add_arguments, options, ["target", "version"])
    stamp = stamps.stamp("a block on the target's features", command, options.device)
    report = {
        "target": fingerprint(target),
        "texts": len(texts.training),
        "tokens": tokens,
        "steps": steps,
        "seconds": seconds,
        "recipe": asdict(recipe),
        "held_out": measure(stored, target, texts.held_out),
    }
    stamps.save(out / "report.json", stamp, report)
    print(json.dumps(report["held_out"]["all"]))
