"""Record the race of the start page: SmolLM2 with its trained head, beside plain decoding.

    python -m benchmarks.race    # about ten minutes; results/race.json

One request per kind of text is answered greedily with and without the drafter, alternating. The
lanes are those of float32, in which both texts are equal. In bfloat16 only the speedups are kept,
because rounding decides near-ties of two tokens and the texts then differ. The race on display
first is the kind whose speedup is nearest to the geometric mean of all kinds.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from specdec_book import recordings
from specdec_book.viz.race import record_race
from specdec_lite.drafters import EagleDrafter
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.measure import stamps
from specdec_lite.texts.smollm2_tasks import KINDS, TASKS, chat

from .command import parser_for, typed
from .smollm2 import STOP


def median_kind(races: list[dict]) -> int:
    """Return the index of the race whose median speedup is nearest to the geometric mean of all.

    Args:
        races: What `record_race` returned for each kind.
    """
    logs = np.log([np.median(race["speedups"]) for race in races])
    return int(np.abs(logs - logs.mean()).argmin())


def run_races(args: argparse.Namespace, dtype: str) -> list[dict]:
    """Return one race per kind of text.

    Args:
        args: Options of the command line.
        dtype: PyTorch's name of the dtype of target and draft.
    """
    target, tokenizer = load_smollm2("cpu", dtype)
    drafter = EagleDrafter.from_pretrained(target, draft=args.gamma)
    races = []
    for kind in tqdm(args.kinds, desc=dtype):
        task = TASKS[kind][args.task]
        ids = chat(tokenizer, task.text)
        lanes = record_race(target, drafter, tokenizer, ids, args.tokens, args.turns, (STOP,))
        races.append({"kind": kind, "request": task.instruction, **lanes})
    return races


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = parser_for("benchmarks.race", __doc__)
    parser.add_argument("--gamma", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5, help="odd number of turns per lane")
    parser.add_argument("--task", type=int, default=0, help="which request of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--out", type=Path, default=recordings.FOLDER / "race.json")
    args = parser.parse_args(arguments)
    if args.turns < 1 or args.turns % 2 == 0:
        parser.error(f"--turns {args.turns}: must be odd, so that one run is the median")
    races = run_races(args, "float32")
    others = [np.median(race["speedups"]) for race in run_races(args, "bfloat16")]
    stamp = stamps.stamp(
        "plain and speculative decoding of SmolLM2, pass by pass", typed(parser, arguments)
    )
    about = (
        f"Recorded from SmolLM2-135M in float32 at temperature 0 on {stamp['machine']} with"
        f" {torch.get_num_threads()} threads; the draft is this book's trained EAGLE-1 head with"
        f" γ = {args.gamma}. The clock starts when the prompt has been read. In bfloat16, whose"
        f" rounding changes some words, the same requests gave {min(others):.2f}× to"
        f" {max(others):.2f}× of plain bfloat16, geometric mean"
        f" {np.exp(np.mean(np.log(others))):.2f}×."
    )
    data = {"about": about, "race": median_kind(races), "races": races}
    print(stamps.save(args.out, stamp, data))


if __name__ == "__main__":
    main()
