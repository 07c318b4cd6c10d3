"""A real engine beside ours, on the same prompts and the same weights: the shipped pair in vLLM.

    make engines                     # sets vLLM up in .engines/ (3.5 GB), then runs this
    python -m benchmarks.engines     # writes results/engines-<machine>.json

Greedy, float32. Seconds hold the prefill, as an engine's caller sees them. No part of `make test`,
which checks what becomes of a recorded answer.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch

from specdec_lite import load_pair, results
from specdec_lite.drafters import ModelDrafter
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.serving.batch import generate_batch
from specdec_lite.serving.metrics import explain

VLLM = Path(".engines/vllm/bin/python")
WORKER = Path(__file__).with_name("engine_vllm.py")
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def speculations(draft: str, gamma: int) -> dict[str, dict | None]:
    """What vLLM is told, by the name of what it then does."""
    lookup = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}
    return {
        "plain": None,
        "ngram": lookup | {"num_speculative_tokens": gamma},
        "draft_model": {"method": "draft_model", "model": draft, "num_speculative_tokens": gamma},
    }


def run_vllm(job: dict) -> dict:
    """The worker's answer; CalledProcessError where the engine did not start or stopped."""
    with tempfile.TemporaryDirectory() as folder:
        ask, answer = Path(folder, "job.json"), Path(folder, "answer.json")
        ask.write_text(json.dumps(job), encoding="utf-8")
        command = [str(VLLM), str(WORKER), str(ask), str(answer)]
        subprocess.run(command, check=True, env=os.environ | ENVIRONMENT)
        return json.loads(answer.read_text(encoding="utf-8"))


def ours(pair, drafter, prompts: list[list[int]], new_tokens: int, batches: list[int]) -> dict:
    """The worker's answer, by `generate_batch`; acceptance from its steps."""
    seconds = {}
    generate_batch(pair.target, prompts[:1], drafter, new_tokens)  # warms up
    for batch in batches:
        seconds[batch], outputs = [], []
        for begin in range(0, len(prompts), batch):
            began = perf_counter()
            outputs += generate_batch(
                pair.target, prompts[begin : begin + batch], drafter, new_tokens
            )
            seconds[batch].append(perf_counter() - began)
    steps = [step for output in outputs for step in output.steps if len(step.tree)]
    levels = max((len(step.tree) for step in steps), default=0)
    accepted = [sum(len(step.path) > i for step in steps) for i in range(levels)]
    return {
        "tokens": [output.tokens.tolist() for output in outputs],
        "seconds": seconds,
        "counters": as_counters(len(steps), sum(len(step.tree) for step in steps), accepted),
    }


def as_counters(drafts: int, drafted: int, accepted: list[int]) -> str:
    """Counts as vLLM's page prints them, so that one converter reads both."""
    if not drafts:
        return ""
    name = "vllm:spec_decode_num_"
    rows = [f'{name}accepted_tokens_per_pos{{position="{i}"}} {n}' for i, n in enumerate(accepted)]
    whole = {"drafts": drafts, "draft_tokens": drafted, "accepted_tokens": sum(accepted)}
    return "\n".join([*(f"{name}{what} {count}" for what, count in whole.items()), *rows])


def entry(answer: dict, plain: list[list[int]]) -> dict:
    """What a chapter reads of an answer. plain: the texts of our own plain decoding."""
    tokens = sum(map(len, answer["tokens"]))
    found = {
        "tokens_per_second": {
            str(batch): tokens / sum(seconds) for batch, seconds in answer["seconds"].items()
        },
        "same_text": sum(a == b for a, b in zip(answer["tokens"], plain)) / len(plain),
        "first_difference": [first_difference(a, b) for a, b in zip(answer["tokens"], plain)],
    }
    if answer["counters"]:
        reading = explain(answer["counters"])
        found |= {
            "tau": reading.tau,
            "alpha": reading.alpha,
            "drafted_acceptance": reading.drafted_acceptance,
            "rates": list(reading.rates),
        }
    return found


def first_difference(a: list[int], b: list[int]) -> int | None:
    """The place where two texts part; None where they do not."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)


def main(arguments: list[str] | None = None, run: Callable[[dict], dict] = run_vllm) -> Path:
    """The command line; returns the recording's path. run: answers a job as vLLM does."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engines", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--prompts", type=int, default=8, help="of code and prose, 1 … 20")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    default = f"results/engines-{results.slug(results.machine_name())}.json"
    parser.add_argument("--out", type=Path, default=Path(default))
    options = parser.parse_args(arguments)
    if min(options.prompts, options.new_tokens, options.gamma, *options.batches) < 1:
        parser.error("--prompts, --new-tokens, --gamma and --batches: must be at least 1")
    if run is run_vllm and not VLLM.exists():
        parser.error(f"{VLLM} is missing: run make engines first")
    pair = load_pair(device="cpu", dtype="float32")
    texts = [row["text"] for rows in zip(*evaluation_prompts().values()) for row in rows]
    prompts = [pair.tokenizer.encode(text) for text in texts[: options.prompts]]
    mine = {
        name: ours(pair, drafter, prompts, options.new_tokens, options.batches)
        for name, drafter in (
            ("plain", None),
            ("draft_model", ModelDrafter(pair.draft, options.gamma)),
        )
    }
    job = {
        "target": str(SHIPPED / "target"),
        "dtype": "float32",
        "prompts": prompts,
        "new_tokens": options.new_tokens,
        "batches": options.batches,
    }
    theirs = {
        name: run(job | {"speculative": how})
        for name, how in speculations(str(SHIPPED / "draft"), options.gamma).items()
    }
    plain = mine["plain"]["tokens"]
    typed = sys.argv[1:] if arguments is None else arguments
    stamp = results.stamp(
        "the shipped pair in vLLM and in this library, greedy, float32",
        " ".join(["python -m benchmarks.engines", *typed]),
        versions={"torch": torch.__version__, "vllm": theirs["plain"]["version"]},
    )
    record = {
        "gamma": options.gamma,
        "prompts": len(prompts),
        "new_tokens": options.new_tokens,
        "ours": {name: entry(answer, plain) for name, answer in mine.items()},
        "vllm": {name: entry(answer, plain) for name, answer in theirs.items()},
    }
    path = results.save(options.out, stamp, record)
    print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
