"""Compare the decoding speed of two checkouts of the library.

    python -m benchmarks run version-speed --old OLD_CHECKOUT   # four minutes

Each checkout decodes in a separate process with the same weights, prompts and seeds. The two
alternate in random order, one at a time. The ratio is new ÷ old seconds of the rounds, with the
interval of `intervals.ratio`: it resamples prompts first, then their turns. The recording also states
whether the texts are equal, token for token.
"""

import json
import random
import subprocess
import sys
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from specdec_lite.measure import stamps
from specdec_lite.measure.intervals import ratio

from .experiment import Run, experiment

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("plain", "chain", "tree")
WORKER = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from specdec_lite import generate, load_pair
from specdec_lite.drafters import MedusaDrafter, ModelDrafter
from specdec_lite.texts.corpus import evaluation_prompts
pair = load_pair(device="cpu", dtype=sys.argv[2])
drafters = {"plain": None, "chain": ModelDrafter(pair.draft, 4),
            "tree": MedusaDrafter.from_pretrained(pair.target)}
prompts = [pair.tokenizer.encode(item["text"]) for items in evaluation_prompts().values()
           for item in items[:2]]
for line in sys.stdin:
    job = json.loads(line)
    if job == "prompts":
        print(json.dumps(len(prompts)), flush=True)
        continue
    method, index, temperature, seed, tokens = job
    out = generate(pair.target, prompts[index], drafters[method], tokens, temperature, seed=seed)
    print(json.dumps([out.stats.seconds, out.tokens.tolist()]), flush=True)
"""


def ask(process: subprocess.Popen, job: Any) -> Any:
    """Send a line of JSON to a process and return its answer, which is another."""
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


@experiment(
    "version-speed",
    "seconds of decoding, this checkout over another one, alternating",
    time="4 minutes",
    quick={"turns": 2, "new_tokens": 2, "old": ROOT},
    least={"turns": 2},
)
def version_speed(
    run: Run, *, old: Path | None = None, turns: int = 10, new_tokens: int = 64
) -> dict:
    """Return the ratios of the methods in both formats, greedy and at temperature 1.

    Args:
        old: folder of another checkout
        turns: turns per prompt
    """
    if old is None or not (old / "specdec_lite" / "__init__.py").is_file():
        raise ValueError(f"--old {old}: must be a checkout that contains specdec_lite/")
    folders = {"old": old.resolve(), "new": ROOT}

    processes = ExitStack()

    @cache
    def checkout(side: str, dtype: str) -> subprocess.Popen:
        command = [sys.executable, "-c", WORKER, folders[side], dtype]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return processes.enter_context(subprocess.Popen(command, cwd=folders[side], **pipes))

    def compared(dtype: str, method: str, temperature: int) -> dict:
        sides = {side: checkout(side, dtype) for side in folders}
        prompts = ask(sides["new"], "prompts")
        seconds = {side: np.zeros((prompts, turns)) for side in sides}
        order, same = random.Random(f"{dtype} {method} T={temperature}"), True
        for turn in range(-1, turns):
            for prompt in range(prompts):
                texts = {}
                for side in order.sample(list(sides), 2):
                    job = (method, prompt, float(temperature), max(0, turn), new_tokens)
                    spent, texts[side] = ask(sides[side], job)
                    if turn >= 0:
                        seconds[side][prompt, turn] = spent
                same &= texts["old"] == texts["new"]
        estimate = ratio(seconds["new"], seconds["old"])
        return {
            "dtype": dtype,
            "method": method,
            "temperature": float(temperature),
            "ratio": estimate["value"],
            "interval": estimate["interval"],
            "old_seconds": float(seconds["old"].mean()),
            "same_text": bool(same),
        }

    with processes:
        rows = run(
            {
                f"{dtype} {method} T={temperature}": partial(compared, dtype, method, temperature)
                for dtype in ("float32", "bfloat16")
                for method in METHODS
                for temperature in (0, 1)
            }
        )
    commits = {side: stamps.commit(folder) for side, folder in folders.items()}
    return {**commits, "turns": turns, "rows": [*rows.values()]}
