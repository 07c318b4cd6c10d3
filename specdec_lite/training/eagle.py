"""Blocks on the target's features: EAGLE 1 (and 2), EAGLE 3, HASS, and multi-token prediction.

Trained on the target's own text: `--target smollm2` reads what `training.smollm2_text` wrote,
`--target pair` writes its own first. Features are stored once; an interrupted run goes on.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from specdec_lite.drafters.feature_head import Eagle1Head, Eagle3Head, FeatureHead, MtpHead
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import SHIPPED as PAIR, load_pair
from specdec_lite.loading.smollm2 import cache_folder, load_smollm2
from specdec_lite.loading.weights import SHIPPED, fingerprint, load, save
from specdec_lite.measure import results
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan, given, train, windows
from specdec_lite.training.medusa import calibration_prompts
from specdec_lite.training.own_text import own_text
from specdec_lite.training.smollm2_text import answers, planned
from specdec_lite.training.text import prepare
from specdec_lite.training.unroll import RECIPES, Recipe, acceptance_by_depth, unrolled_loss

KINDS = {"1": Eagle1Head, "2": Eagle1Head, "hass": Eagle1Head, "3": Eagle3Head, "mtp": MtpHead}
NAMES = {"1": "eagle1", "2": "eagle1", "hass": "hass", "3": "eagle3", "mtp": "mtp"}
VOCABULARY = {"pair": 2048, "smollm2": 12_000}
DEPTHS = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """One text [n] of the target. start: where its own words begin. kind: what it is about."""

    ids: Tensor
    start: int
    kind: str = "text"
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Texts:
    """What a head is trained on, and what it is judged on."""

    training: list[Sample]
    held_out: list[Sample]


def smollm2_texts(target: CausalLM, tokenizer, work: Path, count: int | None = None) -> Texts:
    """SmolLM2's answers, as far as they are written, `count` at most to train on."""
    folder = cache_folder() / "smollm2-own-text"
    texts: dict[bool, list[Sample]] = {False: [], True: []}
    for text in answers(folder, planned(folder, tokenizer)):
        sample = Sample(text.ids, text.start, text.kind, text.temperature)
        texts[text.held_out].append(sample)
    return Texts(texts[False][:count], texts[True])


def pair_texts(
    target: CausalLM,
    tokenizer,
    work: Path,
    count: int | None = None,
    prompt: int = 64,
    new: int = 128,
) -> Texts:
    """What the shipped target makes of `count` pieces (None: 2,048) of its training text, half of
    it greedy; and, held out, of documents that it has never read.
    """
    _, streams = prepare(work, PAIR)
    rng = np.random.default_rng(0)
    prompts = windows(streams, rng, count or 2048, prompt)[1]
    held_out = calibration_prompts(tokenizer)[:64]
    texts: tuple[list[Sample], list[Sample]] = ([], [])
    for number, temperature in enumerate((0.0, 1.0)):
        for place, rows in enumerate((prompts[number::2], held_out)):
            made = own_text(target, rows, new, work / "own-text", 256, temperature, number)
            start = rows.shape[1]
            texts[place].extend(Sample(ids, start, "text", temperature) for ids in made)
    return Texts(*texts)


def batched(texts: Sequence[Sample], size: int, room: int) -> list[tuple[Tensor, Tensor]]:
    """Texts of like length together: tokens [B, n], each row filled up with its last token, by at
    least `room`; and which of them are the target's own words, [B, n] bool.
    """
    ordered = sorted(texts, key=lambda text: len(text.ids))
    made = []
    for first in range(0, len(ordered), size):
        part = ordered[first : first + size]
        length = len(part[-1].ids) + room
        tokens = torch.stack([filled(text.ids, length) for text in part])
        place = torch.arange(length)
        counted = [(place >= text.start) & (place < len(text.ids)) for text in part]
        made.append((tokens, torch.stack(counted)))
    return made


def filled(ids: Tensor, length: int) -> Tensor:
    return torch.cat((ids, ids[-1:].expand(length - len(ids))))


def frequent(texts: Sequence[Sample], count: int, vocab_size: int) -> Tensor:
    """The `count` tokens [v] that are written most often."""
    words = torch.cat([text.ids[text.start :] for text in texts])
    counts = torch.bincount(words, minlength=vocab_size)
    return counts.topk(min(count, vocab_size)).indices


def initialise(head: FeatureHead, target: CausalLM) -> FeatureHead:
    """Normal(0, .02) weights, what is written to the stream half as wide; an own vocabulary
    projection begins as the target's.
    """
    generator = torch.Generator().manual_seed(0)
    for name, weight in head.named_parameters():
        if weight.dim() == 2:
            scale = 0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
            nn.init.normal_(weight, std=0.02 * scale, generator=generator)
    if head.head is not None:
        with torch.no_grad():
            head.head.weight.copy_(target.backend.head.weight[head.ids.to(target.device)])
    return head


def order(count: int, steps: int, seed: int = 0) -> list[int]:
    """Which batch every step takes: all of them, shuffled anew, again and again."""
    rng = np.random.default_rng(seed)
    return [int(i) for _ in range(-(-steps // count)) for i in rng.permutation(count)][:steps]


def fit(
    head: FeatureHead,
    target: CausalLM,
    data: list[tuple[Tensor, Tensor]],
    features: Callable[[Tensor], dict],
    recipe: Recipe,
    plan: Plan,
    path: Path,
) -> float:
    """Train a head on batches: the seconds it took, earlier runs included."""
    turns = order(len(data), plan.steps)
    late = int(recipe.late * plan.steps)

    def source(first: int):
        return (torch.tensor([step, turns[step]]) for step in range(first, plan.steps))

    def loss(rows: Tensor) -> Tensor:
        step, turn = rows.tolist()
        tokens, counted = (part.to(target.device) for part in data[turn])
        stored = features(tokens)
        states = {layer: stored[layer].float() for layer in {*head.layers, "final"}}
        steps = recipe.steps if step >= late else 1
        return unrolled_loss(head, target, tokens, states, counted, recipe, steps)

    return train(head, loss, {"batches": turns}, plan, path, source=source)


def measure(
    head: FeatureHead, target: CausalLM, texts: Sequence[Sample], size: int = 4
) -> dict[str, dict]:
    """α and agreement by depth on texts, by kind and over all: the first on what was sampled at
    temperature 1, the second on greedy text.
    """
    kinds = {"all": list(texts)}
    for text in texts:
        kinds.setdefault(text.kind, []).append(text)
    table = {}
    for kind, some in kinds.items():
        table[kind] = {}
        for name, temperature in (("agrees", 0.0), ("alpha", 1.0)):
            chosen = [text for text in some if text.temperature == temperature]
            if chosen:
                table[kind][name] = by_depth(head, target, chosen, name, size)
    return table


def by_depth(head, target, texts: Sequence[Sample], name: str, size: int = 4) -> dict:
    """The mean of what `acceptance_by_depth` calls `name`, at every depth, and its standard error
    over texts.
    """
    sums = torch.zeros(DEPTHS, 0, dtype=torch.float64)
    counts = torch.zeros(DEPTHS, 0, dtype=torch.float64)
    for tokens, counted in batched(texts, size, DEPTHS + 1):
        tokens, counted = tokens.to(target.device), counted.to(target.device)
        rows = acceptance_by_depth(head, target, tokens, counted, DEPTHS)
        per = torch.stack([torch.bincount(r["text"], r[name].double(), len(tokens)) for r in rows])
        number = torch.stack([torch.bincount(r["text"], minlength=len(tokens)) for r in rows])
        sums = torch.cat((sums, per.cpu()), 1)
        counts = torch.cat((counts, number.cpu().double()), 1)
    mean = sums.sum(1) / counts.sum(1)
    residuals = (sums - mean[:, None] * counts).square().sum(1).sqrt() / counts.sum(1)
    return {
        "mean": mean.tolist(),
        "error": residuals.tolist(),
        "tokens": counts.sum(1).int().tolist(),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m specdec_lite.training eagle`."""
    parser.add_argument("--target", choices=["pair", "smollm2"], default="pair")
    parser.add_argument("--version", choices=list(KINDS), default="1", help="2 drafts with 1's")
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=8, help="texts a step")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument(
        "--vocabulary", type=int, help="tokens that are drafted, most frequent first"
    )
    parser.add_argument("--intermediate", type=int, help="width of its MLP; default: the target's")
    parser.add_argument("--texts", type=int, help="train on so many at most")
    parser.add_argument("--out", type=Path, help="folder for the weights")
    parser.add_argument(
        "--work",
        type=Path,
        default=cache_folder() / "eagle",
        help="folder for checkpoints, the small target's own text, and features",
    )
    parser.add_argument("--device", default="cpu")


def run(chosen: argparse.Namespace) -> None:
    """Train one head, measure it on held-out text, and store both."""
    if chosen.target == "pair":
        pair = load_pair(device=chosen.device, dtype="float32")
        target, tokenizer, texts = pair.target, pair.tokenizer, pair_texts
    else:
        target, tokenizer = load_smollm2(chosen.device, "bfloat16")
        texts = smollm2_texts
    target.model.requires_grad_(False)
    text = texts(target, tokenizer, chosen.work, chosen.texts)
    training = text.training
    if not training:
        raise ValueError(
            "no text to train on yet: run python -m specdec_lite.training.smollm2_text"
        )
    name = NAMES[chosen.version]
    out = chosen.out or SHIPPED / name / chosen.target
    ids = frequent(training, chosen.vocabulary or VOCABULARY[chosen.target], target.vocab_size)
    shape = {"intermediate_size": chosen.intermediate} if chosen.intermediate else {}
    head = KINDS[chosen.version].beside(target, ids, **shape)
    head = initialise(head, target).to(target.device)
    recipe = RECIPES["1" if chosen.version == "2" else chosen.version]
    data = batched(training, chosen.batch, DEPTHS + 1)
    steps = max(1, round(chosen.epochs * len(data)))
    plan = Plan(steps, chosen.rate, chosen.batch, warmup=max(1, steps // 20), weight_decay=0.0)
    # What any version reads: the target passes over a batch once for all of them.
    layers = tuple(dict.fromkeys((*Eagle3Head.reads(target.num_layers), "final")))
    features = Features(target, chosen.work / "features", layers)
    sizes = f"{len(ids)}-{head.shape.intermediate_size}-{len(training)}-{steps}"
    path = chosen.work / f"{name}-{fingerprint(target)}-{sizes}.pt"
    print(
        f"{len(training)} texts, {sum(int(c.sum()) for _, c in data)} tokens, {steps} steps",
        flush=True,
    )
    seconds = fit(head, target, data, features, recipe, plan, path)
    save(out, head, target, head.config, bits=8)
    stored = load(out, target, KINDS[chosen.version])
    stamp = results.stamp("a block on the target's features", command_line(chosen), chosen.device)
    report = {
        "target": fingerprint(target),
        "texts": len(training),
        "tokens": sum(int(counted.sum()) for _, counted in data),
        "steps": steps,
        "seconds": seconds,
        "recipe": asdict(recipe),
        "held_out": measure(stored, target, text.held_out),
    }
    results.save(out / "report.json", stamp, report)
    print(json.dumps(report["held_out"]["all"]))


def command_line(chosen: argparse.Namespace) -> str:
    """What to type to train the same way again."""
    words = [f"python -m specdec_lite.training eagle --target {chosen.target}"]
    words.append(f"--version {chosen.version}")
    usual = {
        "epochs": 5.0,
        "batch": 8,
        "rate": 1e-3,
        "vocabulary": None,
        "intermediate": None,
        "texts": None,
        "device": "cpu",
    }
    return " ".join([*words, *given(chosen, usual)])
