"""Which loss, on whose text: short runs from one starting draft, on the shipped target.

    python -m benchmarks.losses                       # minutes on two quiet cores
    python -m benchmarks.losses --texts 512 --epochs 4  # an hour

Every run begins with the same small draft, which has read text and never the target. It then learns
for equally many steps: on documents, on what the target made of the same prompts, or on what the
starting draft made of them; by each divergence. Recorded are rates, no times, so a busy machine
changes nothing. An interrupted run goes on from --work. Writes results/losses.json; nothing here is
asserted.
"""

import argparse
import copy
import math
from pathlib import Path

import torch
from scipy.stats import spearmanr
from torch import Tensor

from specdec_lite import CausalLM, corpus, load_pair, results
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.measure.intervals import estimate
from specdec_lite.training.draft import apart, distil, pieces, small_model, target_law
from specdec_lite.training.loop import Plan
from specdec_lite.training.losses import DIVERGENCES, forward_kl
from specdec_lite.training.own_text import own_text

PROMPT = 64
BATCH = 8
RATE = 2e-3
SOURCES = ("documents", "the target's text", "the draft's text")
NEXT_TOKEN = "next token"


def starting_draft(target: CausalLM, tokenizer, options, texts: list[str]) -> Transformer:
    """A small draft that has read documents, and has never seen the target: the start of all runs."""
    rows = pieces(texts, tokenizer, BATCH * options.start, PROMPT + options.new, seed=1)
    draft = small_model(target, options.hidden)
    plan = Plan(options.start, 3e-3, BATCH, warmup=20)
    path = options.work / f"start-{options.start}-{options.hidden}-{options.new}.pt"
    distil(draft, None, rows, 1, forward_kl, plan, path)
    return draft


def written(models: dict[str, CausalLM], windows: Tensor, options) -> dict[str, Tensor]:
    """Texts [N, n] that begin with the same prompts: documents, and what each model wrote."""
    prompts = list(windows[:, :PROMPT])
    folder = options.work / "own-text"
    return {SOURCES[0]: windows} | {
        name: torch.stack(own_text(model, prompts, options.new, folder, 64, 1.0))
        for name, model in models.items()
    }


def spread(each: Tensor) -> dict:
    """A mean over texts with its 95 % interval, texts drawn anew."""
    column = each.double()[:, None]
    return estimate(lambda a, b: a / b, column, torch.ones_like(column))


def measured(draft: Transformer, law, held_out: dict[str, Tensor], tokenizer) -> dict:
    """Every figure of `apart` by kind of text, with its interval; bits per byte beside the nats."""
    found = {}
    for kind, texts in held_out.items():
        values = apart(draft, law, texts, PROMPT)
        nats = values.pop("nats") * (texts.shape[1] - PROMPT)
        size = [len(tokenizer.decode(row[PROMPT:]).encode()) for row in texts]
        found[kind] = {name: spread(each) for name, each in values.items()}
        found[kind]["bits per byte"] = nats.sum().item() / math.log(2) / sum(size)
        found[kind]["texts"] = {name: each.tolist() for name, each in values.items()}
    return found


def against(runs: list[dict], kind: str) -> None:
    """Beside each run its α minus that of the first one, on the same texts."""
    first = torch.tensor(runs[0][kind]["texts"]["alpha"])
    for run in runs:
        run[kind]["gain"] = spread(torch.tensor(run[kind].pop("texts")["alpha"]) - first)


def predictors(runs: list[dict], kind: str) -> dict[str, float]:
    """Spearman's rank correlation over the runs between α and what else was measured of them."""
    value = lambda run, name: run[kind][name]["value"]
    alpha = [value(run, "alpha") for run in runs]
    others = {name: [value(run, name) for run in runs] for name in ("forward KL", "reverse KL")}
    others["bits per byte"] = [run[kind]["bits per byte"] for run in runs]
    return {name: float(spearmanr(alpha, other).statistic) for name, other in others.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.losses")
    parser.add_argument("--texts", type=int, default=128, help="to train on, a multiple of 8")
    parser.add_argument("--held-out", type=int, default=48)
    parser.add_argument("--new", type=int, default=128, help="tokens of a text behind its prompt")
    parser.add_argument("--start", type=int, default=300, help="steps of the starting draft")
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
    windows = pieces(readable, tokenizer, options.texts, PROMPT + options.new)
    writers = {SOURCES[1]: target, SOURCES[2]: CausalLM(copy.deepcopy(start))}
    texts = written(writers, windows, options)
    unread = [text for texts in corpus.held_out_text().values() for text in texts]
    kept = pieces(unread, tokenizer, options.held_out, PROMPT + options.new)
    held_out = written({SOURCES[1]: target}, kept, options)
    law = target_law(target, options.work / "features")
    plan = Plan(options.epochs * options.texts // BATCH, RATE, BATCH, warmup=10)
    runs = [{"source": "", "loss": "", **measured(start, law, held_out, tokenizer)}]
    planned = [(SOURCES[0], NEXT_TOKEN), *((s, d) for s in SOURCES for d in DIVERGENCES)]
    for source, name in planned:
        draft = copy.deepcopy(start).requires_grad_(True)
        path = options.work / f"{source} {name} {plan.steps} {options.new}.pt".replace(" ", "-")
        teacher = None if name == NEXT_TOKEN else law
        divergence = DIVERGENCES.get(name, forward_kl)
        distil(draft, teacher, texts[source], PROMPT, divergence, plan, path)
        runs.append({"source": source, "loss": name, **measured(draft, law, held_out, tokenizer)})
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
    results.save(options.out, results.stamp(what, command), data)


if __name__ == "__main__":
    main()
