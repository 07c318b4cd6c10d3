"""What a batch costs and what drafting gains in it: T(B, k) of the book's models, and the shipped
pair decoded by `generate_batch`, plain and drafted in turns.

    python -m benchmarks.serving --minutes 20      # writes results/serving.json

One thread, seconds of the processor: what else the machine does lengthens them little. What is done
is kept in --work, so the same command goes on where an interrupted one stopped. Rows share the
target's pass; each drafts by itself, one after the other, which a real engine does in one pass of the
draft: T(B, 1) of the draft is recorded beside.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch
from torch import Tensor

from specdec_lite import CausalLM, load_pair, load_smollm2, results, timing
from specdec_lite.decoding import Output, default_rule
from specdec_lite.drafters import ModelDrafter
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure.intervals import ratio
from specdec_lite.sampling import Sampling
from specdec_lite.serving.batch import started, to_the_end

from .__main__ import Kept
from .command import parser_for, typed


@dataclass(frozen=True)
class Plan:
    """What is measured. targets: {model: () → CausalLM}, whose T(B, k) is timed. turns,
    batches, new_tokens, temperatures: of the gains, from the command line.
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
    """T(B, k) of one model: {"model", "batches", "tokens", "seconds" [B][k]}, medians."""
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
    """Median seconds of the processor of each job. Jobs take turns, the first of which warms up;
    after `budget` seconds no further one begins.
    """
    taken: dict = {name: [] for name in jobs}
    began = perf_counter()
    for turn in range(turns + 1):
        if turn > 1 and perf_counter() - began > budget:
            break
        for name, job in jobs.items():
            used = process_time()
            job()
            taken[name].append(process_time() - used)
    return {name: statistics.median(seconds[1:]) for name, seconds in taken.items()}


def pass_jobs(model: CausalLM, text: Tensor, batch: int, tokens: Sequence[int]) -> dict:
    """{k: a pass over k tokens of each row behind the text, forgotten again}, all on one cache."""
    cache = model.new_cache(batch, capacity=len(text) + max(tokens))
    model.score(text.expand(batch, -1), cache, last=True)

    def one(k: int) -> None:
        model.score(text[:k].expand(batch, -1), cache)
        cache.crop(len(text))

    return {k: partial(one, k) for k in tokens}


def rounds(outputs: Sequence[Output]) -> list[list]:
    """[round][row still decoding] steps: the rows of a batch go on in step."""
    longest = max(len(output.steps) for output in outputs)
    return [
        [output.steps[place] for output in outputs if place < len(output.steps)]
        for place in range(longest)
    ]


def decode(
    plan: Plan, prompts: list[Tensor], gamma: int, temperature: float, seeds: Sequence[int]
) -> tuple[list[Output], float]:
    """(outputs, seconds of all their rounds: prompts have been read before). gamma: 0: plain."""
    target = plan.pair.target
    drafter = ModelDrafter(plan.pair.draft, gamma) if gamma else None
    chance = (temperature, None, None, seeds)
    rows, storage = started(target, prompts, drafter, plan.new_tokens, *chance)
    used = process_time()
    outputs = to_the_end(target, storage, rows, drafter, default_rule(Sampling(temperature)))
    return outputs, process_time() - used


def tokens_a_pass(outputs: Sequence[Output]) -> tuple[float, float]:
    """(own lengths, batch minimum): tokens a row and a pass, over the rounds that hold all rows.

    The second is what these rounds had emitted if every row had been cut to the shortest.
    """
    whole = [[len(step.tokens) for step in row] for row in rounds(outputs)]
    whole = [row for row in whole if len(row) == len(outputs)]
    return float(np.mean([np.mean(row) for row in whole])), float(np.mean([*map(min, whole)]))


def gain(plan: Plan, batch: int, gamma: int, temperature: float) -> dict:
    """{"speedup": with its interval, "own", "minimum": tokens a pass, "tokens_per_second"}."""
    order = np.random.default_rng(batch)
    seconds: dict[str, list[float]] = {"plain": [], "drafted": []}
    counts = {"plain": 0, "drafted": 0}
    lengths = []
    for turn in range(plan.turns + 1):
        chosen = order.choice(len(plan.prompts), batch, replace=batch > len(plan.prompts))
        prompts = [plan.prompts[place] for place in chosen]
        for name in order.permutation([*seconds]):
            seeds = [1000 * turn + row for row in range(batch)]
            length = gamma if name == "drafted" else 0
            outputs, used = decode(plan, prompts, length, temperature, seeds)
            if turn == 0:  # warms up
                continue
            seconds[name].append(used)
            counts[name] += sum(len(output.tokens) for output in outputs)
            if name == "drafted":
                lengths.append(tokens_a_pass(outputs))
    own, minimum = np.mean(lengths, axis=0)
    return {
        "speedup": ratio(*(np.array(seconds[name])[:, None] for name in ("plain", "drafted"))),
        "own": float(own),
        "minimum": float(minimum),
        "tokens_per_second": {name: counts[name] / sum(seconds[name]) for name in seconds},
    }


def jobs(plan: Plan, minutes: float) -> list[tuple[dict, Callable[[], dict]]]:
    """(setting, what measures it), in the order of the recording."""
    share = 60 * minutes / 2 / len(plan.targets)
    tables = [
        ({"table": name}, lambda name=name: table(plan, name, share)) for name in plan.targets
    ]
    gains = [
        (
            {"batch": batch, "gamma": gamma, "temperature": temperature},
            lambda b=batch, g=gamma, t=temperature: gain(plan, b, g, t),
        )
        for temperature in plan.temperatures
        for gamma in plan.gammas
        for batch in plan.batches
    ]
    return tables + gains


def main(arguments: list[str] | None = None, make: Callable[[], Plan] = the_books_models) -> Path:
    """The command line; returns the recording's path. make: the plan."""
    parser = parser_for("benchmarks.serving", __doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="half of it for the tables")
    parser.add_argument("--turns", type=int, default=8, help="paired turns a setting, at least 2")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--out", type=Path, default=Path("results/serving.json"))
    parser.add_argument("--work", type=Path, default=Path(".work/serving"))
    options = parser.parse_args(arguments)
    if options.turns < 2:
        parser.error("--turns: must be at least 2")
    if min([*options.batches, options.new_tokens]) < 1:
        parser.error("--batches and --new-tokens: must be at least 1")
    if min(options.temperatures) < 0:
        parser.error("--temperatures: must be at least 0")
    if not options.minutes > 0:
        parser.error("--minutes: must be above 0")
    if options.out.is_dir():
        parser.error(f"--out {options.out}: must be a file")
    stamp = results.stamp("T(B, k), and what drafting gains in a batch", typed(parser, arguments))
    asked = {name: getattr(options, name) for name in ("turns", "batches", "new_tokens")}
    plan = replace(make(), **asked, temperatures=options.temperatures)
    try:
        asked |= {"machine": stamp["machine"], "minutes": options.minutes}
        kept = Kept(options.work / f"{options.out.stem}.jsonl", asked)
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    state = {"start": timing.machine_state()}
    rows = []
    for setting, measure in jobs(plan, options.minutes):
        if kept.find(setting) is None:
            kept.add(setting | measure())
            print(f"done: {setting}", flush=True)
        rows.append(kept.find(setting))
    record = {
        "clock": "processor",
        "context": plan.context,
        "new_tokens": plan.new_tokens,
        "turns": plan.turns,
        "tables": {row.pop("table"): row for row in rows if "table" in row},
        "gains": [row for row in rows if "batch" in row],
        "state": state | {"end": timing.machine_state()},
    }
    path = results.save(options.out, stamp, record)
    kept.path.unlink()
    print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
