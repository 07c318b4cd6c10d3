"""Record the race of the start page: SmolLM2 with its trained head, beside plain decoding.

    python -m benchmarks run race    # about ten minutes

One request per kind of text is answered greedily with and without the drafter, alternating. The
lanes are those of float32, in which both texts are equal. In bfloat16 only the speedups are kept,
because rounding decides near-ties of two tokens and the texts then differ. The race on display
first is the kind whose speedup is nearest to the geometric mean of all kinds.
"""

from functools import cache

import numpy as np
import torch

from specdec_book.viz.race import record_race
from specdec_lite.drafters import EagleDrafter
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.measure import stamps
from specdec_lite.texts.smollm2_tasks import KINDS, TASKS, chat

from .experiment import Experiment
from .smollm2 import STOP

DTYPES = ("float32", "bfloat16")


def median_kind(races: list[dict]) -> int:
    """Return the index of the race whose median speedup is nearest to the geometric mean of all.

    Args:
        races: What `record_race` returned for each kind.
    """
    logs = np.log([np.median(race["speedups"]) for race in races])
    return int(np.abs(logs - logs.mean()).argmin())


class RecordedRace(Experiment):
    """The parts are the kinds of text in float32, then in bfloat16."""

    name = "race"
    what = "plain and speculative decoding of SmolLM2, pass by pass"
    time = "10 minutes"
    quick = "--tokens 8 --turns 1".split()

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--gamma", type=int, default=3)
        parser.add_argument("--tokens", type=int, default=128)
        parser.add_argument("--turns", type=int, default=5, help="odd number of turns per lane")
        parser.add_argument("--task", type=int, default=0, help="which request of each kind")
        parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))

    def check(self):
        turns = self.options.turns
        if turns < 1 or turns % 2 == 0:
            raise ValueError(f"--turns {turns}: must be odd, so that one run is the median")

    def parts(self):
        return [f"{dtype} {kind}" for dtype in DTYPES for kind in self.options.kinds]

    def run(self, part):
        options = self.options
        dtype, _, kind = part.partition(" ")
        target, tokenizer = model(dtype)
        drafter = EagleDrafter.from_pretrained(target, draft=options.gamma)
        task = TASKS[kind][options.task]
        ids = chat(tokenizer, task.text)
        race = record_race(target, drafter, tokenizer, ids, options.tokens, options.turns, (STOP,))
        if dtype != DTYPES[0]:
            return {"speedups": race["speedups"]}
        return {"kind": kind, "request": task.instruction, **race}

    def summarise(self, rows):
        races = [row for part, row in rows.items() if part.startswith(DTYPES[0])]
        others = [
            np.median(row["speedups"]) for part, row in rows.items() if part.startswith(DTYPES[1])
        ]
        about = (
            f"Recorded from SmolLM2-135M in float32 at temperature 0 on {stamps.machine_name()} with"
            f" {torch.get_num_threads()} threads; the draft is this book's trained EAGLE-1 head with"
            f" γ = {self.options.gamma}. The clock starts when the prompt has been read. In"
            " bfloat16, whose rounding changes some words, the same requests gave"
            f" {min(others):.2f}× to {max(others):.2f}× of plain bfloat16, geometric mean"
            f" {np.exp(np.mean(np.log(others))):.2f}×."
        )
        return {"about": about, "race": median_kind(races), "races": races}

    def restore(self, data):
        return {}  # the recording has only the medians of the races in bfloat16


@cache
def model(dtype: str):
    """Return SmolLM2 and its tokenizer.

    Args:
        dtype: PyTorch's name of the precision.
    """
    return load_smollm2("cpu", dtype)
