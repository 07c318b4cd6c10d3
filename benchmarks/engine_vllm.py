"""Answer jobs with vLLM, one line of JSON per job, until the input ends.

    .engines/vllm/bin/python benchmarks/engine_vllm.py < jobs

This script runs in vLLM's own environment (`make engines`), which does not contain specdec_lite.
The first line loads a model: {"target": folder, "speculative": vLLM's configuration or None,
"dtype", "slots": sequences that fit}. Its answer is {"version"} or {"refused": vLLM's message}.
Each further line {"prompts": rows of ids, "new_tokens"} decodes the prompts together. Its answer is
{"tokens", "seconds", "processor", "counters"} with the counters of this job. With "arrivals" the
prompts are served as they arrive, and the answer is {"done", "steps", "counters"}. Processor
seconds are those of this process.
"""

import json
import os
import sys
from time import perf_counter, process_time


def counters(metrics) -> dict[str, float]:
    """Return the speculation counters, named as on a /metrics page."""
    values = {}
    for metric in metrics:
        if "spec_decode" not in metric.name:
            continue
        if hasattr(metric, "values"):
            rows = enumerate(metric.values)
            values |= {f'{metric.name}{{position="{i}"}}': value for i, value in rows}
        else:
            values[metric.name] = metric.value
    return values


def between(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return the counts between two readings."""
    return {name: value - before.get(name, 0) for name, value in after.items()}


def load(job: dict):
    """Return the model of the first job."""
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


def sampling_params(job: dict):
    """Return the sampling parameters of a job."""
    from vllm import SamplingParams

    return SamplingParams(
        temperature=0.0, max_tokens=job["new_tokens"], ignore_eos=True, detokenize=False
    )


def decode(model, job: dict) -> dict:
    """Decode all prompts of a job together."""
    rows = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    before = counters(model.get_metrics())
    began, used = perf_counter(), process_time()
    outputs = model.generate(rows, sampling_params(job), use_tqdm=False)
    seconds, processor = perf_counter() - began, process_time() - used
    return {
        "tokens": [list(output.outputs[0].token_ids) for output in outputs],
        "seconds": seconds,
        "processor": processor,
        "counters": between(before, counters(model.get_metrics())),
    }


def serve(model, job: dict) -> dict:
    """Serve prompts as they arrive.

    The clock shows processor seconds and advances to the next arrival when nothing runs.
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
            engine.add_request(
                str(added), {"prompt_token_ids": job["prompts"][added]}, sampling_params(job)
            )
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
    """Answer the jobs on standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # send what vLLM prints to stderr

    def answer(result: dict) -> None:
        print(json.dumps(result), file=answers, flush=True)

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
