"""Runs inside vLLM's own environment (`make engines`), which has no specdec_lite: decodes what a file
asks for, and writes tokens, seconds and counters.

    .engines/vllm/bin/python benchmarks/engine_vllm.py job.json answer.json

job: {"target": folder, "speculative": None or vLLM's configuration, "dtype", "prompts": rows of ids,
"new_tokens", "batches"}. answer: {"version", "tokens", "seconds": {batch: [seconds]}, "counters"}.
"""

import json
import sys
from pathlib import Path
from time import perf_counter


def counters(metrics) -> str:
    """The counters of speculation as a /metrics page prints them."""
    lines = []
    for metric in metrics:
        if "spec_decode" not in metric.name:
            continue
        if hasattr(metric, "values"):
            rows = enumerate(metric.values)
            lines += [f'{metric.name}{{position="{i}"}} {value}' for i, value in rows]
        else:
            lines.append(f"{metric.name} {metric.value}")
    return "\n".join(lines)


def main(job: dict) -> dict:
    import vllm
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=job["target"],
        dtype=job["dtype"],
        max_model_len=1024,
        max_num_seqs=max(job["batches"]),
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=False,
        speculative_config=job["speculative"],
    )
    ask = SamplingParams(temperature=0.0, max_tokens=job["new_tokens"], ignore_eos=True)
    rows = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    engine.generate(rows[:1], ask, use_tqdm=False)  # warms up
    seconds = {}
    for batch in job["batches"]:
        seconds[batch] = []
        tokens = []
        for begin in range(0, len(rows), batch):
            began = perf_counter()
            outputs = engine.generate(rows[begin : begin + batch], ask, use_tqdm=False)
            seconds[batch].append(perf_counter() - began)
            tokens += [list(output.outputs[0].token_ids) for output in outputs]
    found = counters(engine.get_metrics())
    return {"version": vllm.__version__, "tokens": tokens, "seconds": seconds, "counters": found}


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
