"""Runs inside vLLM's own environment (`make engines`), which has no specdec_lite: loads a model once,
then answers a line of JSON with a line of JSON until its input ends.

    .engines/vllm/bin/python benchmarks/engine_vllm.py < jobs

The first line loads: {"target": folder, "speculative": None or vLLM's configuration, "dtype",
"slots": sequences that fit}; it is answered by {"version"} or {"refused": what vLLM said}. Then
{"prompts": rows of ids, "new_tokens"} decodes them together → {"tokens", "seconds", "processor",
"counters"}, the counters being those of this job; with "arrivals" they are served as they arrive →
{"done", "steps", "counters"}. Seconds of the processor are those of this process, whatever else runs
beside it.
"""

import json
import os
import sys
from time import perf_counter, process_time


def counters(metrics) -> dict[str, float]:
    """The counters of speculation, by the name under which a /metrics page prints them."""
    found = {}
    for metric in metrics:
        if "spec_decode" not in metric.name:
            continue
        if hasattr(metric, "values"):
            rows = enumerate(metric.values)
            found |= {f'{metric.name}{{position="{i}"}}': value for i, value in rows}
        else:
            found[metric.name] = metric.value
    return found


def between(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What was counted from one reading to the next."""
    return {name: value - before.get(name, 0) for name, value in after.items()}


def load(job: dict):
    from vllm import LLM

    return LLM(
        model=job["target"],
        dtype=job["dtype"],
        max_model_len=1024,
        max_num_seqs=job["slots"],
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=False,
        skip_tokenizer_init=True,
        speculative_config=job["speculative"],
    )


def asked(job: dict):
    from vllm import SamplingParams

    return SamplingParams(
        temperature=0.0, max_tokens=job["new_tokens"], ignore_eos=True, detokenize=False
    )


def decode(model, job: dict) -> dict:
    """All prompts together."""
    rows = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    before = counters(model.get_metrics())
    began, used = perf_counter(), process_time()
    outputs = model.generate(rows, asked(job), use_tqdm=False)
    seconds, processor = perf_counter() - began, process_time() - used
    return {
        "tokens": [list(output.outputs[0].token_ids) for output in outputs],
        "seconds": seconds,
        "processor": processor,
        "counters": between(before, counters(model.get_metrics())),
    }


def serve(model, job: dict) -> dict:
    """Prompts as they arrive, on a clock that shows the seconds of this processor and leaps to the
    next arrival when nothing runs.

    done: when each was, in the order of the prompts. steps: [running, of which new, seconds] each.
    """
    engine = model.llm_engine
    before = counters(model.get_metrics())
    done: list[float] = [0.0] * len(job["prompts"])
    steps = []
    now, added, running = 0.0, 0, 0
    while added < len(done) or running:
        if not running:
            now = max(now, job["arrivals"][added])
        new = 0
        while added < len(done) and job["arrivals"][added] <= now and running < job["slots"]:
            engine.add_request(str(added), {"prompt_token_ids": job["prompts"][added]}, asked(job))
            added, running, new = added + 1, running + 1, new + 1
        used = process_time()
        outputs = engine.step()
        used = process_time() - used
        now += used
        steps.append([running, new, used])
        for output in outputs:
            if output.finished:
                done[int(output.request_id)] = now
                running -= 1
    return {
        "done": done,
        "steps": steps,
        "counters": between(before, counters(model.get_metrics())),
    }


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints goes beside the answers

    def answer(found: dict) -> None:
        print(json.dumps(found), file=answers, flush=True)

    first = json.loads(sys.stdin.readline())
    try:
        import vllm

        model = load(first)
    except Exception as error:
        answer({"refused": f"{type(error).__name__}: {error}"})
        return
    answer({"version": vllm.__version__})
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer(serve(model, job) if "arrivals" in job else decode(model, job))
        except Exception as error:
            answer({"refused": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
