"""vLLM under a load, beside what the simulator says of the same arrivals.

What lives here: the table of the engine's own rounds, requests that arrive by chance, both means of
latency. Seconds are of the engine's processor: what else the machine does is in neither.
"""

import statistics
from collections.abc import Sequence

import numpy as np

from specdec_lite.serving.goodput import PassTimes
from specdec_lite.serving.metrics import explain, one_alpha
from specdec_lite.serving.simulate import Request, fixed, poisson, simulate

BATCHES = (1, 2, 4, 8)
LOADS = (0.3, 0.6, 0.9)
COUNT = 24
SEEDS = 40


def load_curve(workers: dict, prompts: Sequence[list[int]], new_tokens: int, gamma: int) -> dict:
    """Latency a token, measured and simulated, with γ = 0 and γ, at shares of the plain capacity.

    Args:
        workers: {"plain", "draft_model"}, whose `ask` serves prompts as `engine_vllm` does.
        prompts: rows of ids, of which requests take the next one.
        new_tokens: that each request wants.
        gamma: of the drafting worker.
    """
    lengths = {"plain": 0, "draft_model": gamma}
    rounds = {name: round_times(workers[name], prompts, new_tokens) for name in lengths}
    seconds = zip(rounds["plain"]["seconds"], rounds["draft_model"]["seconds"])
    times = PassTimes(BATCHES, (1, gamma + 1), tuple(seconds), (0.0,) * len(BATCHES))
    tau = explain(rounds["draft_model"]["counters"]).tau
    alpha = one_alpha(tau, gamma)
    capacity = BATCHES[-1] / times.of_pass(BATCHES[-1], 1)
    rows = []
    for load in LOADS:
        rate = load * capacity / new_tokens
        requests = poisson(rate, COUNT, new_tokens, [alpha], np.random.default_rng(0))
        for name, length in lengths.items():
            prefill = rounds[name]["prefill"]
            served = serve(workers[name], requests, prompts, new_tokens)
            foreseen = [
                simulated(requests, times, length, prefill, np.random.default_rng(seed))
                for seed in range(SEEDS if length else 1)
            ]
            found = {
                "load": load,
                "gamma": length,
                "measured": served,
                "simulated": np.mean(foreseen),
            }
            rows.append(found | {"error": float(found["simulated"] / served - 1)})
            rows[-1]["simulated"] = float(rows[-1]["simulated"])
    return {
        "batches": list(BATCHES),
        "rounds": rounds,
        "tau": tau,
        "alpha": alpha,
        "requests": COUNT,
        "rows": rows,
    }


def round_times(worker, prompts: Sequence[list[int]], new_tokens: int, turns: int = 2) -> dict:
    """{"seconds": a round's, for each of BATCHES; "prefill": of one prompt; "counters"}: medians of
    rounds in which all sequences ran and none was new.
    """
    serve = lambda batch: worker.ask(
        {
            "prompts": [prompts[i % len(prompts)] for i in range(batch)],
            "arrivals": [0.0] * batch,
            "new_tokens": new_tokens,
            "slots": batch,
        }
    )
    serve(1)  # warms up
    seconds, prefills, counters = [], [], ""
    for batch in BATCHES:
        steps = []
        for _ in range(turns):
            answer = serve(batch)
            steps += answer["steps"]
            counters = answer["counters"]
        seconds.append(statistics.median(s for n, new, s in steps if n == batch and not new))
        if batch == 1:
            prefills = [s for _, new, s in steps if new]
    page = "\n".join(f"{name} {count:g}" for name, count in counters.items())
    return {"seconds": seconds, "prefill": statistics.median(prefills), "counters": page}


def serve(worker, requests, prompts: Sequence[list[int]], new_tokens: int) -> float:
    """The engine's mean latency a token."""
    arrivals = [request.arrival for request in requests]
    rows = [prompts[i % len(prompts)] for i in range(len(requests))]
    job = {"prompts": rows, "arrivals": arrivals, "new_tokens": new_tokens, "slots": BATCHES[-1]}
    done = worker.ask(job)["done"]
    return float(np.mean([end - begin for end, begin in zip(done, arrivals)])) / new_tokens


def simulated(requests, times: PassTimes, gamma: int, prefill: float, rng) -> float:
    """The simulator's. An engine's prefill emits a token, ours none: a request wants one less."""
    fewer = [Request(each.arrival, each.tokens - 1, each.alpha) for each in requests]
    run = simulate(fewer, times, fixed(gamma), BATCHES[-1], rng, prefill)
    return float(np.mean([each.latency for each in run.served])) / requests[0].tokens
