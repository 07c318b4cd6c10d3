"""Compare the decoding speed of two checkouts of the library.

    python -m benchmarks.versions OLD_CHECKOUT   # four minutes; results/versions-<machine>.json

Each checkout decodes in a separate process with the same weights, prompts and seeds. The two
alternate in random order, one at a time. The ratio is new ÷ old seconds of the rounds, with the
interval of `speed.ratio`: it resamples prompts first, then their turns. The recording also states
whether the texts are equal, token for token.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from specdec_lite.measure import stamps

from .command import parser_for
from .speed import ratio

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("plain", "chain", "tree")
WORKER = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from specdec_lite import generate, load_pair
from specdec_lite.drafters import MedusaDrafter, ModelDrafter
try:
    from specdec_lite.texts.corpus import evaluation_prompts
except ImportError:
    from specdec_lite.loading.corpus import evaluation_prompts
pair = load_pair(device="cpu", dtype=sys.argv[2])
drafters = {"plain": None, "chain": ModelDrafter(pair.draft, 4),
            "tree": MedusaDrafter.from_pretrained(pair.target)}
prompts = [pair.tokenizer.encode(item["text"]) for items in evaluation_prompts().values()
           for item in items[:2]]
print(json.dumps(len(prompts)), flush=True)
for line in sys.stdin:
    method, index, temperature, seed, tokens = json.loads(line)
    out = generate(pair.target, prompts[index], drafters[method], tokens, temperature, seed=seed)
    print(json.dumps([out.stats.seconds, out.tokens.tolist()]), flush=True)
"""


class Checkout:
    """A process that decodes with the library of one checkout.

    Args:
        folder: Folder of the checkout.
        dtype: PyTorch's name of the dtype.
    """

    def __init__(self, folder: Path, dtype: str):
        command = [sys.executable, "-c", WORKER, str(folder), dtype]
        self.process = subprocess.Popen(
            command, cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.prompts = json.loads(self.process.stdout.readline())

    def __call__(self, *job) -> tuple[float, list[int]]:
        """Decode once and return the seconds and the tokens.

        Args:
            job: Method, prompt index, temperature, seed and number of tokens.
        """
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        seconds, tokens = json.loads(self.process.stdout.readline())
        return seconds, tokens

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def compare(old: Path, dtype: str, turns: int, tokens: int) -> list[dict]:
    """Return one row per method and temperature: new ÷ old with its interval, and equal texts.

    Args:
        old: Folder of the other checkout.
        dtype: PyTorch's name of the dtype.
        turns: Turns per prompt.
        tokens: New tokens per prompt.
    """
    sides = {"old": Checkout(old, dtype), "new": Checkout(ROOT, dtype)}
    prompts = sides["new"].prompts
    order = random.Random(0)
    rows = []
    for method in METHODS:
        for temperature in (0.0, 1.0):
            seconds = {side: np.zeros((prompts, turns)) for side in sides}
            same = True
            label = f"{dtype} {method} T={temperature:g}"
            for turn in tqdm(range(-1, turns), desc=label):
                for prompt in range(prompts):
                    texts = {}
                    for side in order.sample(list(sides), 2):
                        job = (method, prompt, temperature, max(0, turn), tokens)
                        spent, texts[side] = sides[side](*job)
                        if turn >= 0:
                            seconds[side][prompt, turn] = spent
                    same &= texts["old"] == texts["new"]
            estimate = ratio(seconds["new"], seconds["old"])
            rows.append(
                {
                    "dtype": dtype,
                    "method": method,
                    "temperature": temperature,
                    "ratio": estimate["value"],
                    "interval": estimate["interval"],
                    "old_seconds": float(seconds["old"].mean()),
                    "same_text": bool(same),
                }
            )
    for side in sides.values():
        side.close()
    return rows


def revision(folder: Path) -> str:
    """Return the short commit hash of a checkout."""
    command = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Run the command line."""
    parser = parser_for("benchmarks.versions", __doc__)
    parser.add_argument("old", type=Path, help="folder of another checkout")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--new-tokens", type=int, default=64)
    args = parser.parse_args()
    if not (args.old / "specdec_lite" / "__init__.py").is_file():
        parser.error(f"{args.old}: must be a checkout that contains specdec_lite/")
    if args.turns < 2 or args.new_tokens < 1:
        parser.error("--turns must be at least 2, --new-tokens at least 1")
    rows = []
    for dtype in ("float32", "bfloat16"):
        rows += compare(args.old.resolve(), dtype, args.turns, args.new_tokens)
    table = Table("setting", "old ms", "new ÷ old", "same text")
    for row in rows:
        low, high = row["interval"]
        table.add_row(
            f"{row['dtype']} {row['method']} T={row['temperature']:g}",
            f"{1e3 * row['old_seconds']:.0f}",
            f"{row['ratio']:.3f} ({low:.3f}–{high:.3f})",
            str(row["same_text"]),
        )
    Console().print(table)
    stamp = stamps.stamp(
        "seconds of decoding, this checkout over another one, in turns",
        f"python -m benchmarks.versions OLD --turns {args.turns} --new-tokens {args.new_tokens}",
    )
    name = f"versions-{stamps.slug(stamp['machine'])}.json"
    record = {"old": revision(args.old), "new": revision(ROOT), "turns": args.turns, "rows": rows}
    print("written to", stamps.save(ROOT / "results" / name, stamp, record))


if __name__ == "__main__":
    main()
