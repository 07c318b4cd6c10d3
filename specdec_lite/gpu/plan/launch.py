"""Start the plan in a process of its own, and another one if that process breaks.

This module imports no torch, so the waiting process needs little memory.
"""

import argparse
import subprocess
import sys
from time import time

SECONDS = 300.0
"""Default budget of a whole run."""
BROKEN = 3
"""Exit status of a process whose device no longer works."""
LATE = 124
"""Exit status if a process did not end with its time."""
INTERRUPTED = 130
"""Exit status after an interrupt from the keyboard."""
RESTARTS = 4
"""Most processes after the first one."""
NAMES = ("card", "pair", "passes", "slices", "quarter", "drafts", "experts", "rounds")
NAMES += ("smollm2", "synthetic", "trees", "trace")
"""The steps, the most valuable first."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the plan to a parser."""
    parser.add_argument("--device", default="auto", help="default: a GPU if there is one")
    parser.add_argument("--dtype", default="auto", help="default: the 16-bit dtype of the device")
    parser.add_argument("--out", default="results", help="folder of the recording")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="budget of the whole run")
    parser.add_argument("--only", nargs="+", choices=NAMES, help="steps to run")
    parser.add_argument(
        "--pair",
        nargs=2,
        default=(),
        metavar=("TARGET", "DRAFT"),
        help="measure this pair, two hub ids or folders, and keep what is recorded of the card",
    )
    parser.add_argument("--resume", action="store_true", help="run what has no result yet")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, to see that it runs")
    for name in ("--worker", "--go-on"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)


def main(args: argparse.Namespace, words: list[str]) -> int:
    """Start the plan, wait for its end, and return the exit status.

    words: the command line that `args` were read from.
    """
    until, status = time() + args.seconds, 0
    for turn in range(1 + RESTARTS):
        left = until - time()
        command = [sys.executable, "-u", "-m", "specdec_lite", *words, "--worker"]
        command += ["--until", f"{until:.1f}", *["--go-on"] * (turn > 0)]
        limit, why = None if args.tiny else left + 60, "interrupted"
        try:
            status = subprocess.run(command, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            status, why = LATE, "the time is over"
        except KeyboardInterrupt:
            status = INTERRUPTED
        if status in (LATE, INTERRUPTED):
            print(f"{why}: what was measured is kept, and --resume measures the rest", flush=True)
        if status in (0, 2, LATE, INTERRUPTED) or left < 0:
            break
        print(f"the process ended with status {status}; another one continues", flush=True)
    return status
