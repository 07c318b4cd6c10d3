"""Measure decoding beside other busy programs, with OpenMP's threads as torch's default and as ours.

Every setting runs in a process of its own, since OpenMP reads its settings when torch is imported.
The load is made here: programs that count without end, each on one core.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from specdec_lite import generate, load_pair, load_smollm2
from specdec_lite.drafters import ModelDrafter
from specdec_lite.measure import stamps, timing
from specdec_lite.texts.corpus import evaluation_prompts

from .experiment import Experiment

SETTINGS: dict[str, dict[str, str]] = {
    "torch's default": {},
    "bounded spin": {"GOMP_SPINCOUNT": "5000", "KMP_BLOCKTIME": "1"},
    "bounded spin, one thread": {
        "GOMP_SPINCOUNT": "5000",
        "KMP_BLOCKTIME": "1",
        "OMP_NUM_THREADS": "1",
    },
    "waiting without spin": {"OMP_WAIT_POLICY": "passive"},
}
"""Variables of OpenMP by the name of the setting."""
LOADS = (0, 3)
"""Numbers of busy programs beside the measurement."""
MODELS = {"pair": 48, "smollm2": 32}
"""New tokens of each text, by model."""
TEXTS = 3
PROGRAM = """
import sys
import torch  # before specdec_lite, which would bound the spin
from benchmarks import busy_machine
busy_machine.report(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
"""


def report(model: str, new_tokens: int, repeats: int) -> None:
    """Print the tokens, the seconds of each repetition and the threads of this process as JSON.

    The pair decodes with its draft, SmolLM2 without one; both greedily, three texts a repetition.
    """
    texts = [prompt["text"] for prompts in evaluation_prompts().values() for prompt in prompts]
    if model == "pair":
        pair = load_pair(device="cpu", dtype="float32")
        target, tokenizer, drafter = pair.target, pair.tokenizer, ModelDrafter(pair.draft, 4)
    else:
        target, tokenizer = load_smollm2("cpu", "bfloat16")
        drafter = None
    prompts = [tokenizer.encode(text)[:64] for text in texts[:: max(1, len(texts) // TEXTS)]][
        :TEXTS
    ]
    decode = lambda prompt, count: (
        generate(target, prompt, drafter, count, stop_token_ids=()).tokens
    )
    decode(prompts[0], 4)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        tokens = sum(len(decode(prompt, new_tokens)) for prompt in prompts)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"tokens": tokens, "seconds": seconds, "threads": torch.get_num_threads()}))


def measure(model: str, setting: str, new_tokens: int, repeats: int) -> dict:
    """Return what `report` prints in a new process with a setting of OpenMP."""
    clean = {name: value for name, value in os.environ.items() if name not in stamps.OPENMP}
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, model, str(new_tokens), str(repeats)],
        env=clean | SETTINGS[setting],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return json.loads(output.splitlines()[-1])


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Keep programs busy while the context is open."""
    count = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(count) for _ in range(programs)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


class BusyMachine(Experiment):
    """A part is one turn under one load: every setting and model once, in random order."""

    name = "busy-machine"
    what = "decoding beside other busy programs, under several settings of OpenMP's threads"
    time = "20 minutes, quiet"
    quick = "--turns 1 --repeats 1 --new-tokens 4 --models pair --programs 1".split()

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
        parser.add_argument("--turns", type=int, default=3, help="processes per setting and load")
        parser.add_argument("--repeats", type=int, default=3, help="repetitions in each process")
        parser.add_argument("--programs", type=int, default=LOADS[1], help="busy programs")
        parser.add_argument("--new-tokens", type=int, help="of each text; default: 48 and 32")

    def check(self):
        self.check_least(turns=1, repeats=1, programs=1)

    @property
    def loads(self) -> dict[str, int]:
        """Busy programs by the name of the load."""
        return {"quiet": LOADS[0], "busy": self.options.programs}

    def parts(self):
        return [f"{load} {turn + 1}" for turn in range(self.options.turns) for load in self.loads]

    def run(self, part):
        options, load = self.options, part.split()[0]
        start = timing.machine_state()["load_average"]
        cases = [(model, setting) for model in options.models for setting in SETTINGS]
        random.Random(part).shuffle(cases)
        with busy(self.loads[load]):
            rows = [
                {"model": model, "setting": setting, "load": load}
                | measure(model, setting, options.new_tokens or MODELS[model], options.repeats)
                for model, setting in cases
            ]
        return {"load_average": start, "rows": rows}

    def summarise(self, rows):
        return {
            "settings": SETTINGS,
            "programs": self.options.programs,
            "cores": os.cpu_count(),
            "texts": TEXTS,
            "load_averages": {part: each["load_average"] for part, each in rows.items()},
            "rows": [row for each in rows.values() for row in each["rows"]],
        }

    def restore(self, data):
        return {}
