"""vLLM under a load, beside what the simulator says of the same arrivals.

What lives here: the table of the engine's own rounds, requests that arrive by chance, both means of
latency, and where they part. Seconds are of the engine's processor: what else the machine does is in
neither. Rounds and loads take turns, so that a processor that slows down slows both.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from specdec_lite.serving.goodput import PassTimes
from specdec_lite.serving.metrics import explain, one_alpha
from specdec_lite.serving.simulate import Request, Run, fixed, poisson, simulate

BATCHES = (1, 2, 4, 8)
LOADS = (0.3, 0.6, 0.9)
COUNT = 24
SEEDS = 40
TURNS = 5


def load_curve(workers: dict, prompts: Sequence[list[int]], new_tokens: int, gamma: int) -> dict:
    """Latency a token, measured and simulated, with γ = 0 and γ, at shares of the plain capacity.

    Args:
        workers: {"plain", "draft_model"}, whose `ask` serves prompts as `engine_vllm` does.
        prompts: rows of ids, of which requests take the next one.
        new_tokens: that each request wants.
        gamma: of the drafting worker.

    "error_apart" is the simulator's if a prompt had a step to itself, in which all others wait.
    """
    lengths = {"plain": 0, "draft_model": gamma}
    alphas = [alpha(workers["draft_model"], ids, new_tokens, gamma) for ids in prompts]
    rounds(workers["plain"], prompts, new_tokens)  # warms up
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
        name: [statistics.median(found[batch]) for batch in BATCHES]
        for name, found in samples.items()
    }
    prompt = {name: statistics.median(samples[name]["new"]) - seconds[name][0] for name in lengths}
    times = PassTimes(BATCHES, (1, gamma + 1), tuple(zip(*seconds.values())), (0.0,) * len(BATCHES))
    rows = []
    for load, requests in arriving.items():
        own = [
            Request(each.arrival, each.tokens, alphas[place % len(alphas)])
            for place, each in enumerate(requests)
        ]
        for name, length in lengths.items():
            served = answers[load, name]
            foreseen = simulated(own, times, length, prompt[name])
            apart = simulated(own, times, length, prompt[name] + seconds[name][0])
            measured = statistics.median(latency(answer, requests) for answer in served)
            expected = mean_latency(foreseen)
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
                    "simulated_steps": float(np.mean([len(each.rounds) for each in foreseen])),
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
    """Of a prompt that is served alone: greedy, so that it accepts the same drafts in any company."""
    job = {"prompts": [ids], "arrivals": [0.0], "new_tokens": new_tokens, "slots": 1}
    counters = worker.ask(job)["counters"]
    return one_alpha(explain("\n".join(f"{key} {n:g}" for key, n in counters.items())).tau, gamma)


def rounds(worker, prompts: Sequence[list[int]], new_tokens: int) -> dict:
    """{B: seconds of rounds in which all B sequences ran and none was new; "new": of a prompt's}."""
    found = {}
    for batch in BATCHES:
        job = {
            "prompts": [prompts[i % len(prompts)] for i in range(batch)],
            "arrivals": [0.0] * batch,
            "new_tokens": new_tokens,
            "slots": batch,
        }
        steps = worker.ask(job)["steps"]
        found[batch] = [s for n, new, s in steps if n == batch and not new]
        if batch == 1:
            found["new"] = [s for _, new, s in steps if new]
    return found


def serve(worker, requests, prompts: Sequence[list[int]], new_tokens: int) -> dict:
    """{"done": of each request, "steps": [running, of which new, seconds]}."""
    arrivals = [request.arrival for request in requests]
    rows = [prompts[i % len(prompts)] for i in range(len(requests))]
    job = {"prompts": rows, "arrivals": arrivals, "new_tokens": new_tokens, "slots": BATCHES[-1]}
    return worker.ask(job)


def latency(answer: dict, requests: Sequence[Request]) -> float:
    """Mean seconds a token, waiting included."""
    spent = [end - each.arrival for end, each in zip(answer["done"], requests)]
    return float(np.mean(spent)) / requests[0].tokens


def of_table(steps, times: PassTimes, gamma: int, prompt: float) -> float:
    """Seconds of an engine's steps, as a share of what the table says of the same steps."""
    expected = sum(times.of_round(running, gamma) + new * prompt for running, new, _ in steps)
    return sum(seconds for *_, seconds in steps) / expected


def simulated(requests, times: PassTimes, gamma: int, prefill: float) -> list[Run]:
    """Chance has a part where drafts are accepted: many runs."""
    rngs = [np.random.default_rng(seed) for seed in range(SEEDS if gamma else 1)]
    return [simulate(requests, times, fixed(gamma), BATCHES[-1], rng, prefill) for rng in rngs]


def mean_latency(runs: Sequence[Run]) -> float:
    return float(np.mean([run.latency_a_token for run in runs]))
