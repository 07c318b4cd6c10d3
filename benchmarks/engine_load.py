"""Compare vLLM under load with the simulator's prediction for the same arrivals.

This module measures the engine's rounds, serves requests with random arrivals, and compares the
mean latencies. Seconds are those of the engine's processor, so other jobs on the machine do not
count. Rounds and loads alternate, so a processor that slows down affects both.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from specdec_lite import theory
from specdec_lite.diagnosis.metrics import explain
from specdec_lite.simulation.goodput import PassTimes
from specdec_lite.simulation.simulate import Request, Run, fixed, poisson, simulate

BATCHES = (1, 2, 4, 8)
LOADS = (0.3, 0.6, 0.9)
COUNT = 24
SEEDS = 40
TURNS = 5


def load_curve(workers: dict, prompts: Sequence[list[int]], new_tokens: int, gamma: int) -> dict:
    """Return the measured and simulated latency per token at shares of the plain capacity.

    The draft lengths are 0 and γ. "error_apart" is the simulator's error if each prompt is
    processed in a separate step while all other requests wait.
    """
    lengths = {"plain": 0, "draft_model": gamma}
    alphas = [alpha(workers["draft_model"], ids, new_tokens, gamma) for ids in prompts]
    rounds(workers["plain"], prompts, new_tokens)  # warm up
    first = rounds(workers["plain"], prompts, new_tokens)
    capacity = BATCHES[-1] / statistics.median(first[BATCHES[-1]])
    arriving = {
        load: poisson(
            load * capacity / new_tokens, COUNT, new_tokens, [0], np.random.default_rng(0)
        )
        for load in LOADS
    }
    samples = {name: defaultdict(list) for name in lengths}
    answers = defaultdict(list)
    order = np.random.default_rng(0)
    for _ in range(TURNS):
        for name in order.permutation([*lengths]):
            for batch, seconds in rounds(workers[name], prompts, new_tokens).items():
                samples[name][batch] += seconds
            for load, requests in arriving.items():
                answers[load, name].append(serve(workers[name], requests, prompts, new_tokens))
    seconds = {
        name: [statistics.median(by_batch[batch]) for batch in BATCHES]
        for name, by_batch in samples.items()
    }
    prompt = {name: statistics.median(samples[name]["new"]) - seconds[name][0] for name in lengths}
    times = PassTimes(BATCHES, (1, gamma + 1), tuple(zip(*seconds.values())), (0.0,) * len(BATCHES))
    rows = []
    for load, requests in arriving.items():
        own_requests = [
            Request(each.arrival, each.tokens, alphas[index % len(alphas)])
            for index, each in enumerate(requests)
        ]
        for name, length in lengths.items():
            served = answers[load, name]
            predicted = simulated(own_requests, times, length, prompt[name])
            apart = simulated(own_requests, times, length, prompt[name] + seconds[name][0])
            measured = statistics.median(latency(answer, requests) for answer in served)
            expected = mean_latency(predicted)
            rows.append(
                {
                    "load": load,
                    "gamma": length,
                    "measured": measured,
                    "turns": [latency(answer, requests) for answer in served],
                    "simulated": expected,
                    "error": expected / measured - 1,
                    "error_apart": mean_latency(apart) / measured - 1,
                    "steps": statistics.median(len(answer["steps"]) for answer in served),
                    "simulated_steps": float(np.mean([len(each.rounds) for each in predicted])),
                    "of_table": statistics.median(
                        of_table(answer["steps"], times, length, prompt[name]) for answer in served
                    ),
                }
            )
    return {
        "batches": list(BATCHES),
        "rounds": {name: {"seconds": seconds[name], "prefill": prompt[name]} for name in lengths},
        "alphas": alphas,
        "requests": COUNT,
        "turns": TURNS,
        "rows": rows,
    }


def alpha(worker, ids: list[int], new_tokens: int, gamma: int) -> float:
    """Return α of a prompt that is served alone; greedy drafts do not depend on other requests."""
    job = {"prompts": [ids], "arrivals": [0.0], "new_tokens": new_tokens, "slots": 1}
    counters = worker.ask(job)["counters"]
    tau = explain("\n".join(f"{key} {n:g}" for key, n in counters.items())).tau
    return theory.implied_alpha(tau, gamma)


def rounds(worker, prompts: Sequence[list[int]], new_tokens: int) -> dict:
    """Return the seconds of rounds by batch size B.

    Only rounds in which all B sequences ran and none was new count. "new" contains the rounds that
    process a prompt.
    """
    samples = {}
    for batch in BATCHES:
        job = {
            "prompts": [prompts[i % len(prompts)] for i in range(batch)],
            "arrivals": [0.0] * batch,
            "new_tokens": new_tokens,
            "slots": batch,
        }
        steps = worker.ask(job)["steps"]
        samples[batch] = [s for n, new, s in steps if n == batch and not new]
        if batch == 1:
            samples["new"] = [s for _, new, s in steps if new]
    return samples


def serve(worker, requests, prompts: Sequence[list[int]], new_tokens: int) -> dict:
    """Serve requests as they arrive."""
    arrivals = [request.arrival for request in requests]
    rows = [prompts[i % len(prompts)] for i in range(len(requests))]
    job = {"prompts": rows, "arrivals": arrivals, "new_tokens": new_tokens, "slots": BATCHES[-1]}
    return worker.ask(job)


def latency(answer: dict, requests: Sequence[Request]) -> float:
    """Return the mean seconds per token, including waiting."""
    spent = [end - each.arrival for end, each in zip(answer["done"], requests)]
    return float(np.mean(spent)) / requests[0].tokens


def of_table(steps, times: PassTimes, gamma: int, prompt: float) -> float:
    """Return the seconds of an engine's steps divided by the table's seconds for these steps."""
    expected = sum(times.of_round(running, gamma) + new * prompt for running, new, _ in steps)
    return sum(seconds for *_, seconds in steps) / expected


def simulated(requests, times: PassTimes, gamma: int, prefill: float) -> list[Run]:
    """Simulate the requests; with drafts, over many seeds, because acceptance is random."""
    rngs = [np.random.default_rng(seed) for seed in range(SEEDS if gamma else 1)]
    return [simulate(requests, times, fixed(gamma), BATCHES[-1], rng, prefill) for rng in rngs]


def mean_latency(runs: Sequence[Run]) -> float:
    """Return the mean seconds per token over several runs."""
    return float(np.mean([run.latency_per_token for run in runs]))
