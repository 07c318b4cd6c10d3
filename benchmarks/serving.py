"""Measure batches: T(B, k) of the book's models, and the pair's speedup in `generate_batch`.

The measurement uses one thread and processor seconds, which other jobs lengthen little. Plain and
drafted decoding alternate. The rows of a batch share the target's pass. Each row drafts separately,
one after the other, whereas a real engine drafts all rows in one pass; the recording therefore
includes T(B, 1) of the draft.
"""

import statistics
from collections.abc import Sequence
from functools import partial
from time import perf_counter, process_time

import numpy as np
import torch
from torch import Tensor

from specdec_lite import CausalLM, load_pair, load_smollm2
from specdec_lite.batch import decode_rows, start_rows
from specdec_lite.decoding import Output, prepare
from specdec_lite.drafters import ModelDrafter
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure.intervals import ratio
from specdec_lite.measure.timing import pass_job, prefilled
from specdec_lite.sampling import SeededRng
from specdec_lite.texts.corpus import evaluation_prompts

from .experiment import Run, experiment, packed_run

BATCHES, TOKENS, CONTEXT = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5, 7, 9), 128
"""Batch sizes, tokens per row and pass, and context of T(B, k)."""
GAMMAS = (2, 4)


def table(model: CausalLM, seconds: float) -> dict:
    """Return T(B, k) of one model: batch sizes, tokens and median seconds [B][k]."""
    text = torch.arange(CONTEXT) % model.vocab_size
    caches = {batch: prefilled(model, text, batch, max(TOKENS)) for batch in BATCHES}
    passes = {
        (batch, k): pass_job(model, text, k, batch, cache)
        for batch, cache in caches.items()
        for k in TOKENS
    }
    times = medians(passes, seconds)
    rows = [[times[batch, k] for k in TOKENS] for batch in BATCHES]
    return {"batches": list(BATCHES), "tokens": list(TOKENS), "seconds": rows}


def medians(jobs: dict, budget: float, turns: int = 15) -> dict:
    """Return the median processor seconds of each job.

    The jobs alternate, and the first turn is a warm-up.
    """
    seconds_by_job: dict = {name: [] for name in jobs}
    began = perf_counter()
    for turn in range(turns + 1):
        if turn > 1 and perf_counter() - began > budget:
            break
        for name, job in jobs.items():
            used = process_time()
            job()
            seconds_by_job[name].append(process_time() - used)
    return {name: statistics.median(seconds[1:]) for name, seconds in seconds_by_job.items()}


def rounds(outputs: Sequence[Output]) -> list[list]:
    """Return the steps of each round, over the rows that are still decoding."""
    longest = max(len(output.steps) for output in outputs)
    return [
        [output.steps[index] for output in outputs if index < len(output.steps)]
        for index in range(longest)
    ]


def decode(
    pair: Pair,
    prompts: list[Tensor],
    gamma: int,
    new_tokens: int,
    temperature: float,
    seeds: Sequence[int],
) -> tuple[list[Output], float]:
    """Decode a batch and return the outputs and the seconds of its rounds, without the prefill."""
    target = pair.target
    drafter = ModelDrafter(pair.draft, gamma) if gamma else None
    options = (drafter, new_tokens, temperature)
    requests = [prepare(target, prompt, *options, stop_token_ids=()) for prompt in prompts]
    rows, storage = start_rows(requests, [SeededRng(seed) for seed in seeds])
    used = process_time()
    outputs = decode_rows(storage, rows)
    return outputs, process_time() - used


def tokens_per_pass(outputs: Sequence[Output]) -> tuple[float, float]:
    """Return the mean tokens per row and pass over the rounds that contain all rows.

    The second number is the mean if every row had been cut to the shortest row of its round.
    """
    whole = [[len(step.tokens) for step in row] for row in rounds(outputs)]
    whole = [row for row in whole if len(row) == len(outputs)]
    return float(np.mean([np.mean(row) for row in whole])), float(np.mean([*map(min, whole)]))


def gain(
    pair: Pair,
    every: list[Tensor],
    new_tokens: int,
    turns: int,
    *,
    batch: int,
    gamma: int,
    temperature: float,
) -> dict:
    """Return speedup with interval, tokens per pass ("own", "minimum"), tokens per second, runs."""
    order = np.random.default_rng(batch)
    seconds: dict[str, list[float]] = {"plain": [], "drafted": []}
    counts: dict[str, list[int]] = {"plain": [], "drafted": []}
    runs: dict[str, list[str]] = {"plain": [], "drafted": []}
    lengths = []
    for turn in range(turns + 1):
        indices = order.choice(len(every), batch, replace=batch > len(every))
        prompts = [every[index] for index in indices]
        for name in order.permutation([*seconds]):
            seeds = [1000 * turn + row for row in range(batch)]
            length = gamma if name == "drafted" else 0
            outputs, used = decode(pair, prompts, length, new_tokens, temperature, seeds)
            if turn == 0:  # warm up
                continue
            seconds[name].append(used)
            counts[name].append(sum(len(output.tokens) for output in outputs))
            runs[name].append(packed_run(used, counts[name][-1], len(rounds(outputs))))
            if name == "drafted":
                lengths.append(tokens_per_pass(outputs))
    own, minimum = np.mean(lengths, axis=0)
    return {
        "batch": batch,
        "gamma": gamma,
        "temperature": temperature,
        "speedup": ratio(*(np.array(seconds[name])[:, None] for name in ("plain", "drafted"))),
        "own": float(own),
        "minimum": float(minimum),
        "tokens_per_second": {name: sum(counts[name]) / sum(seconds[name]) for name in seconds},
        "runs": {name: " ".join(each) for name, each in runs.items()},
    }


@experiment(
    "batch-speed",
    "T(B, k), and what drafting gains in a batch",
    time="20 minutes",
    quick={"minutes": 0.2, "turns": 2, "batches": (1, 2), "new_tokens": 6, "temperatures": (0.0,)},
    least={"turns": 2},
)
def batch_speed(
    run: Run,
    *,
    minutes: float = 20.0,
    turns: int = 8,
    batches: Sequence[int] = (1, 2, 4, 8, 16),
    new_tokens: int = 64,
    temperatures: Sequence[float] = (0.0, 1.0),
) -> dict:
    """Return T(B, k) of each model, and the gain of each batch, γ and temperature.

    Args:
        minutes: total time; half of it is for the tables
        turns: paired turns per setting
    """
    torch.set_num_threads(1)
    pair = load_pair(device="cpu", dtype="float32")
    texts = evaluation_prompts()
    encode = lambda item: torch.tensor(pair.tokenizer.encode(item["text"]))
    prompts = [encode(item) for item in texts["code"] + texts["prose"]]
    targets = {
        "pair": lambda: pair.target,
        "draft": lambda: pair.draft,
        "smollm2": lambda: load_smollm2("cpu", "float32")[0],
    }
    share = 60 * minutes / 2 / len(targets)
    tables = {name: f"T(B, k) of {name}" for name in targets}
    parts = {tables[name]: lambda load=load: table(load(), share) for name, load in targets.items()}
    one = partial(gain, pair, prompts, new_tokens, turns)
    gains = {
        f"B={batch} γ={gamma} T={t:g}": partial(one, batch=batch, gamma=gamma, temperature=t)
        for t in temperatures
        for gamma in GAMMAS
        for batch in batches
    }
    rows = run(parts | gains)
    return {
        "clock": "processor",
        "context": CONTEXT,
        "new_tokens": new_tokens,
        "turns": turns,
        "tables": {name: rows[part] for name, part in tables.items()},
        "gains": [rows[part] for part in gains],
        "state": run.states(),
    }
