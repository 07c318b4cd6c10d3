"""Measure what the book's two models cost and how often the shipped pair's draft is right.

The numbers are T(k) of the shipped target and of SmolLM2 in float32 and bfloat16, which chapters read
with `specdec_book.recordings.models`, and this machine's bandwidth. For the pair they include α, τ, c
and the speedup at every draft length, from paired turns (`speed`).
"""

from functools import partial

import torch

from specdec_lite import load_pair, timing
from specdec_lite.engine.linear import is_packed
from specdec_lite.texts.corpus import evaluation_prompts

from . import plain, speed
from .experiment import Run, experiment

GAMMAS = (1, 2, 3, 4, 5, 6, 8, 10)
DTYPES = ("float32", "bfloat16")
CONTEXT, KS = 128, (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)


def pass_row(name: str, dtype: str, budget: float) -> dict:
    """Return the quartiles of T(k) of a model in seconds, and the bytes that its passes read.

    "parameters" counts the weights in matrices. "cache_bytes" are those of the context.
    """
    model = plain.target(name, dtype)
    config = model.model.config
    parameters = sum(w.numel() for w in model.model.parameters() if w.dim() == 2)
    per_token = 2 * config.num_layers * config.num_kv_heads * config.head_size
    times = timing.pass_times(model, KS, CONTEXT, repeats=25, budget=budget)
    return {
        "model": name,
        "dtype": dtype,
        "packed": is_packed(model.model),
        "parameters": parameters,
        "weight_bytes": parameters * model.dtype.itemsize,
        "cache_bytes": per_token * CONTEXT * model.dtype.itemsize,
        "seconds": {str(k): [t.low, t.median, t.high] for k in KS for t in [times[1, k]]},
    }


def drafting_row(bench: speed.Bench, setting: speed.Setting) -> dict:
    """Return the numbers of a setting of the pair by γ."""
    row = speed.measure(bench, setting)
    entries = {row["gamma"]: row} | {e["gamma"]: e for e in row["drafters"].values()}
    gammas = {}
    for gamma, entry in sorted(entries.items()):
        parts = {name: entry["prediction"][name] for name in ("c", "c_in_loop", "verify")}
        parts["overhead"] = entry["prediction"]["overhead"]
        values = {n: entry[n] for n in ("speedup", "ceiling", "flags", "alpha", "tau")}
        gammas[str(gamma)] = values | parts
    about = {name: row[name] for name in ("domain", "temperature", "turns", "dtype")}
    return about | {"target_seconds": row["target_seconds"]["rounds"], "gammas": gammas}


@experiment(
    "book-models",
    "T(k) of the book's two models, and the shipped pair at every draft length",
    time="15 minutes",
    quick={"turns": 2, "prompts": 2, "new_tokens": 12, "budget": 1.0},
    least={"turns": 2, "prompts": 2, "new_tokens": max(GAMMAS) + 2},
)
def book_models(
    run: Run, *, turns: int = 20, prompts: int = 10, new_tokens: int = 96, budget: float = 30.0
) -> dict:
    """Return the settings of the pair, and T(k) of each model in each format.

    Args:
        turns: paired turns per setting
        prompts: prompts per domain
        budget: seconds for T(k) of one model in one format
    """
    pair = load_pair(device="cpu", dtype="float32")
    texts, encode = evaluation_prompts(), pair.tokenizer.encode
    bench = speed.Bench(
        load=lambda dtype: pair,
        prompts={
            domain: [torch.tensor(encode(item["text"])) for item in texts[domain][:prompts]]
            for domain in ("code", "prose")
        },
        gammas=GAMMAS,
        dtypes=("float32",),
        new_tokens=new_tokens,
        turns=turns,
        least=turns,
        drafters={"speculative": speed.DRAFTERS["speculative"]},
    )
    drafting = run({str(each): partial(drafting_row, bench, each) for each in bench.settings})
    passes = run(
        {
            f"T(k) {model} {dtype}": partial(pass_row, model, dtype, budget)
            for model in ("pair", "smollm2")
            for dtype in DTYPES
        }
    )
    return {
        "profile": timing.machine_profile("cpu"),
        "context": CONTEXT,
        "drafting": [*drafting.values()],
        "passes": [*passes.values()],
        "state": run.states(),
    }
