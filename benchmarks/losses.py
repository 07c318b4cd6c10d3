"""Compare training losses and training texts for one small draft of the shipped target.

    python -m benchmarks.losses                       # minutes on two quiet cores
    python -m benchmarks.losses --texts 512 --epochs 4  # an hour

Every run starts with the same small draft, which was trained on documents and never on the target.
It then trains for the same number of steps with one divergence on one kind of text: documents, the
target's continuations of the same prompts, or the starting draft's continuations. The recording
contains rates and no times, so a busy machine changes nothing. Finished work is stored in --work,
so an interrupted run resumes. It writes results/losses.json and asserts nothing.
"""

import argparse
import copy
import math
from pathlib import Path

import torch
from scipy.stats import spearmanr
from torch import Tensor

from specdec_lite import CausalLM, corpus, load_pair
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.measure import stamps
from specdec_lite.measure.intervals import estimate
from specdec_lite.training.draft import (
    compare,
    distill,
    small_model,
    target_log_probs,
    text_windows,
)
from specdec_lite.training.loop import Plan
from specdec_lite.training.losses import DIVERGENCES, forward_kl
from specdec_lite.training.own_text import own_text

PROMPT = 64
BATCH = 8
RATE = 2e-3
SOURCES = ("documents", "the target's text", "the draft's text")
NEXT_TOKEN = "next token"


def starting_draft(target: CausalLM, tokenizer, options, texts: list[str]) -> Transformer:
    """Return a small draft trained on documents without the target: the start of all runs.

    Args:
        target: Target model; only its shape is used.
        tokenizer: Its tokenizer.
        options: Options of the command line.
        texts: Documents.
    """
    rows = text_windows(texts, tokenizer, BATCH * options.start, PROMPT + options.new, seed=1)
    draft = small_model(target, options.hidden)
    plan = Plan(options.start, 3e-3, BATCH, warmup=20)
    path = options.work / f"start-{options.start}-{options.hidden}-{options.new}.pt"
    distill(draft, None, rows, 1, forward_kl, plan, path)
    return draft


def written(models: dict[str, CausalLM], windows: Tensor, options) -> dict[str, Tensor]:
    """Return texts [N, n] that start with the same prompts: documents, and each model's text.

    Args:
        models: Models that write, by name.
        windows: Documents [N, n].
        options: Options of the command line.
    """
    prompts = list(windows[:, :PROMPT])
    folder = options.work / "own-text"
    return {SOURCES[0]: windows} | {
        name: torch.stack(own_text(model, prompts, options.new, folder, 64, 1.0))
        for name, model in models.items()
    }


def spread(each: Tensor) -> dict:
    """Return a mean over texts with its 95 % interval from resampled texts.

    Args:
        each: Values [texts].
    """
    column = each.double()[:, None]
    return estimate(lambda a, b: a / b, column, torch.ones_like(column))


def measured(draft: Transformer, log_probs, held_out: dict[str, Tensor], tokenizer) -> dict:
    """Return every figure of `compare` by kind of text with its interval, and bits per byte.

    Args:
        draft: Draft to evaluate.
        log_probs: Function from texts to the target's log-probabilities.
        held_out: Held-out texts by kind.
        tokenizer: Their tokenizer.
    """
    figures = {}
    for kind, texts in held_out.items():
        values = compare(draft, log_probs, texts, PROMPT)
        nats = values.pop("nats") * (texts.shape[1] - PROMPT)
        size = [len(tokenizer.decode(row[PROMPT:]).encode()) for row in texts]
        figures[kind] = {name: spread(each) for name, each in values.items()}
        figures[kind]["bits per byte"] = nats.sum().item() / math.log(2) / sum(size)
        figures[kind]["texts"] = {name: each.tolist() for name, each in values.items()}
    return figures


def against(runs: list[dict], kind: str) -> None:
    """Add to each run its α minus the first run's α on the same texts.

    Args:
        runs: Runs, changed in place.
        kind: Kind of held-out text.
    """
    first = torch.tensor(runs[0][kind]["texts"]["alpha"])
    for run in runs:
        run[kind]["gain"] = spread(torch.tensor(run[kind].pop("texts")["alpha"]) - first)


def predictors(runs: list[dict], kind: str) -> dict[str, float]:
    """Return Spearman's rank correlation over the runs between α and the other measures.

    Args:
        runs: Runs.
        kind: Kind of held-out text.
    """
    value = lambda run, name: run[kind][name]["value"]
    alpha = [value(run, "alpha") for run in runs]
    others = {name: [value(run, name) for run in runs] for name in ("forward KL", "reverse KL")}
    others["bits per byte"] = [run[kind]["bits per byte"] for run in runs]
    return {name: float(spearmanr(alpha, other).statistic) for name, other in others.items()}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.losses")
    parser.add_argument(
        "--texts", type=int, default=128, help="number of training texts, a multiple of 8"
    )
    parser.add_argument("--held-out", type=int, default=48)
    parser.add_argument("--new", type=int, default=128, help="tokens per text after its prompt")
    parser.add_argument(
        "--start", type=int, default=300, help="training steps of the starting draft"
    )
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128, help="width of the draft")
    parser.add_argument("--work", type=Path, default=cache_folder() / "losses")
    parser.add_argument("--out", type=Path, default=Path("results/losses.json"))
    options = parser.parse_args(arguments)
    pair = load_pair(dtype="float32")
    target, tokenizer = pair.target, pair.tokenizer
    target.model.requires_grad_(False)
    documents = corpus.training_text()
    readable = documents["library"] + documents["docs"]
    start = starting_draft(target, tokenizer, options, readable)
    windows = text_windows(readable, tokenizer, options.texts, PROMPT + options.new)
    writers = {SOURCES[1]: target, SOURCES[2]: CausalLM(copy.deepcopy(start))}
    texts = written(writers, windows, options)
    unread = [text for texts in corpus.held_out_text().values() for text in texts]
    held_out_windows = text_windows(unread, tokenizer, options.held_out, PROMPT + options.new)
    held_out = written({SOURCES[1]: target}, held_out_windows, options)
    log_probs = target_log_probs(target, options.work / "features")
    plan = Plan(options.epochs * options.texts // BATCH, RATE, BATCH, warmup=10)
    runs = [{"source": "", "loss": "", **measured(start, log_probs, held_out, tokenizer)}]
    planned = [(SOURCES[0], NEXT_TOKEN), *((s, d) for s in SOURCES for d in DIVERGENCES)]
    for source, name in planned:
        draft = copy.deepcopy(start).requires_grad_(True)
        path = options.work / f"{source} {name} {plan.steps} {options.new}.pt".replace(" ", "-")
        teacher = None if name == NEXT_TOKEN else log_probs
        divergence = DIVERGENCES.get(name, forward_kl)
        distill(draft, teacher, texts[source], PROMPT, divergence, plan, path)
        runs.append(
            {"source": source, "loss": name, **measured(draft, log_probs, held_out, tokenizer)}
        )
        alpha = [runs[-1][kind]["alpha"]["value"] for kind in held_out]
        print(f"{source}, {name}: α {alpha[0]:.3f} on documents, {alpha[1]:.3f} on its text")
    for kind in held_out:
        against(runs, kind)
    data = {
        "target": fingerprint(target),
        "draft": {"parameters": sum(w.numel() for w in start.parameters()), "steps": options.start},
        "steps": plan.steps,
        "tokens": plan.steps * BATCH * options.new,
        "held_out": options.held_out,
        "runs": runs,
        "predicts": {kind: predictors(runs, kind) for kind in held_out},
    }
    command = f"python -m benchmarks.losses --texts {options.texts} --epochs {options.epochs}"
    what = "a small draft after equally many steps by every divergence, on three kinds of text"
    stamps.save(options.out, stamps.stamp(what, command), data)


if __name__ == "__main__":
    main()
