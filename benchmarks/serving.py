"""Measure batches: T(B, k) of the book's models, and the pair's speedup in `generate_batch`.

    python -m benchmarks run batch-speed           # twenty minutes

The measurement uses one thread and processor seconds, which other jobs lengthen little. Plain and
drafted decoding alternate. The rows of a batch share the target's pass. Each row drafts separately,
one after the other, whereas a real engine drafts all rows in one pass; the recording therefore
includes T(B, 1) of the draft.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter, process_time

import numpy as np
import torch
from torch import Tensor

from specdec_lite import CausalLM, load_pair, load_smollm2, timing
from specdec_lite.batch import decode_rows, start_rows
from specdec_lite.decoding import Output, prepare
from specdec_lite.drafters import ModelDrafter
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure.intervals import ratio
from specdec_lite.sampling import SeededRng
from specdec_lite.texts.corpus import evaluation_prompts

from .experiment import Experiment, packed_run


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        pair: Target and draft.
        prompts: Prompts for the speedups.
        targets: Functions that load the models whose T(B, k) is timed, by name.
        table_batches: Batch sizes of T(B, k).
        tokens: Tokens per row and pass of T(B, k).
        batches: Batch sizes of the speedups.
        gammas: Draft lengths.
        context: Context length in tokens.
        new_tokens: New tokens per prompt.
        turns: Paired turns per setting.
        temperatures: Sampling temperatures.
    """

    pair: Pair
    prompts: list[Tensor]
    targets: dict[str, Callable[[], CausalLM]]
    table_batches: Sequence[int] = (1, 2, 4, 8, 16)
    tokens: Sequence[int] = (1, 2, 3, 4, 5, 7, 9)
    batches: Sequence[int] = ()
    gammas: Sequence[int] = (2, 4)
    context: int = 128
    new_tokens: int = 0
    turns: int = 0
    temperatures: Sequence[float] = ()


def the_books_models() -> Plan:
    """Return the plan for the shipped pair and SmolLM2."""
    pair = load_pair(device="cpu", dtype="float32")
    texts = evaluation_prompts()
    prompts = [
        torch.tensor(pair.tokenizer.encode(item["text"])) for item in texts["code"] + texts["prose"]
    ]
    return Plan(
        pair,
        prompts,
        {
            "pair": lambda: pair.target,
            "draft": lambda: pair.draft,
            "smollm2": lambda: load_smollm2("cpu", "float32")[0],
        },
    )


def table(plan: Plan, name: str, seconds: float) -> dict:
    """Return T(B, k) of one model: batch sizes, tokens and median seconds [B][k]."""
    model = plan.targets[name]()
    text = torch.arange(plan.context) % model.vocab_size
    passes = {
        (batch, k): job
        for batch in plan.table_batches
        for k, job in pass_jobs(model, text, batch, plan.tokens).items()
    }
    times = medians(passes, seconds)
    rows = [[times[batch, k] for k in plan.tokens] for batch in plan.table_batches]
    return {"batches": list(plan.table_batches), "tokens": list(plan.tokens), "seconds": rows}


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


def pass_jobs(model: CausalLM, text: Tensor, batch: int, tokens: Sequence[int]) -> dict:
    """Return one job per k: a pass over k tokens of each row after the text, on a shared cache.

    Shapes: text [n].
    """
    cache = model.new_cache(batch, capacity=len(text) + max(tokens))
    model.score(text.expand(batch, -1), cache, last=True)

    def one(k: int) -> None:
        model.score(text[:k].expand(batch, -1), cache)
        cache.crop(len(text))

    return {k: partial(one, k) for k in tokens}


def rounds(outputs: Sequence[Output]) -> list[list]:
    """Return the steps of each round, over the rows that are still decoding."""
    longest = max(len(output.steps) for output in outputs)
    return [
        [output.steps[index] for output in outputs if index < len(output.steps)]
        for index in range(longest)
    ]


def decode(
    plan: Plan, prompts: list[Tensor], gamma: int, temperature: float, seeds: Sequence[int]
) -> tuple[list[Output], float]:
    """Decode a batch and return the outputs and the seconds of its rounds, without the prefill."""
    target = plan.pair.target
    drafter = ModelDrafter(plan.pair.draft, gamma) if gamma else None
    options = (drafter, plan.new_tokens, temperature)
    requests = [prepare(target, prompt, *options, stop_token_ids=()) for prompt in prompts]
    rows, storage = start_rows(requests, [SeededRng(seed) for seed in seeds])
    used = process_time()
    outputs = decode_rows(requests[0], storage, rows)
    return outputs, process_time() - used


def tokens_per_pass(outputs: Sequence[Output]) -> tuple[float, float]:
    """Return the mean tokens per row and pass over the rounds that contain all rows.

    The second number is the mean if every row had been cut to the shortest row of its round.
    """
    whole = [[len(step.tokens) for step in row] for row in rounds(outputs)]
    whole = [row for row in whole if len(row) == len(outputs)]
    return float(np.mean([np.mean(row) for row in whole])), float(np.mean([*map(min, whole)]))


def gain(plan: Plan, batch: int, gamma: int, temperature: float) -> dict:
    """Return speedup with interval, tokens per pass ("own", "minimum"), tokens per second, runs."""
    order = np.random.default_rng(batch)
    seconds: dict[str, list[float]] = {"plain": [], "drafted": []}
    counts: dict[str, list[int]] = {"plain": [], "drafted": []}
    runs: dict[str, list[str]] = {"plain": [], "drafted": []}
    lengths = []
    for turn in range(plan.turns + 1):
        indices = order.choice(len(plan.prompts), batch, replace=batch > len(plan.prompts))
        prompts = [plan.prompts[index] for index in indices]
        for name in order.permutation([*seconds]):
            seeds = [1000 * turn + row for row in range(batch)]
            length = gamma if name == "drafted" else 0
            outputs, used = decode(plan, prompts, length, temperature, seeds)
            if turn == 0:  # warm up
                continue
            seconds[name].append(used)
            counts[name].append(sum(len(output.tokens) for output in outputs))
            runs[name].append(packed_run(used, counts[name][-1], len(rounds(outputs))))
            if name == "drafted":
                lengths.append(tokens_per_pass(outputs))
    own, minimum = np.mean(lengths, axis=0)
    return {
        "speedup": ratio(*(np.array(seconds[name])[:, None] for name in ("plain", "drafted"))),
        "own": float(own),
        "minimum": float(minimum),
        "tokens_per_second": {name: sum(counts[name]) / sum(seconds[name]) for name in seconds},
        "runs": {name: " ".join(each) for name, each in runs.items()},
    }


class BatchSpeed(Experiment):
    """The parts are T(B, k) of each model, and the gain of each batch, γ and temperature."""

    name = "batch-speed"
    what = "T(B, k), and what drafting gains in a batch"
    time = "20 minutes"
    quick = "--minutes 0.2 --turns 2 --batches 1 2 --new-tokens 6 --temperatures 0".split()

    @classmethod
    def add_options(cls, parser):
        parser.add_argument(
            "--minutes", type=float, default=20.0, help="total time; half of it is for the tables"
        )
        parser.add_argument(
            "--turns", type=int, default=8, help="paired turns per setting, at least 2"
        )
        parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16])
        parser.add_argument("--new-tokens", type=int, default=64)
        parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])

    def make(self) -> Plan:
        """Return the plan without the options."""
        return the_books_models()

    def check(self):
        options = self.options
        if options.turns < 2:
            raise ValueError("--turns: must be at least 2")
        if min([*options.batches, options.new_tokens]) < 1:
            raise ValueError("--batches and --new-tokens: must be at least 1")
        if min(options.temperatures) < 0:
            raise ValueError("--temperatures: must be at least 0")
        if not options.minutes > 0:
            raise ValueError("--minutes: must be above 0")

    @cached_property
    def plan(self) -> Plan:
        """The plan of this run."""
        names = ("turns", "batches", "new_tokens", "temperatures")
        return replace(self.make(), **{name: getattr(self.options, name) for name in names})

    @cached_property
    def settings(self) -> dict[str, dict]:
        """The settings by the names of their parts."""
        plan = self.plan
        settings = {f"T(B, k) of {name}": {"table": name} for name in plan.targets}
        return settings | {
            f"B={batch} γ={gamma} T={temperature:g}": {
                "batch": batch,
                "gamma": gamma,
                "temperature": temperature,
            }
            for temperature in plan.temperatures
            for gamma in plan.gammas
            for batch in plan.batches
        }

    def parts(self):
        return list(self.settings)

    def run(self, part):
        torch.set_num_threads(1)
        setting = self.settings[part]
        assert self.state
        if "table" in setting:
            share = 60 * self.options.minutes / 2 / len(self.plan.targets)
            return setting | table(self.plan, setting["table"], share)
        return setting | gain(self.plan, **setting)

    def summarise(self, rows):
        tables = [dict(row) for row in rows.values() if "table" in row]
        return {
            "clock": "processor",
            "context": self.plan.context,
            "new_tokens": self.plan.new_tokens,
            "turns": self.plan.turns,
            "tables": {row.pop("table"): row for row in tables},
            "gains": [row for row in rows.values() if "batch" in row],
            "state": {"start": self.state, "end": timing.machine_state()},
        }

    def restore(self, data):
        rows = [{"table": name} | row for name, row in data["tables"].items()] + data["gains"]
        names = {str(sorted(setting.items())): part for part, setting in self.settings.items()}
        keys = ("table", "batch", "gamma", "temperature")
        key = lambda row: str(sorted((name, row[name]) for name in keys if name in row))
        return {names[key(row)]: row for row in rows if key(row) in names}
