"""Compare the decoding speed of two checkouts of the library.

    python -m benchmarks run version-speed --old OLD_CHECKOUT   # four minutes

Each checkout decodes in a separate process with the same weights, prompts and seeds. The two
alternate in random order, one at a time. The ratio is new ÷ old seconds of the rounds, with the
interval of `speed.ratio`: it resamples prompts first, then their turns. The recording also states
whether the texts are equal, token for token.
"""

import json
import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np

from .experiment import Experiment
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
        """Decode once and return the seconds and the tokens."""
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        seconds, tokens = json.loads(self.process.stdout.readline())
        return seconds, tokens

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def revision(folder: Path) -> str:
    """Return the short commit hash of a checkout."""
    command = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


DTYPES = ("float32", "bfloat16")


class VersionSpeed(Experiment):
    """The parts are the methods in both formats, greedy and at temperature 1."""

    name = "version-speed"
    what = "seconds of decoding, this checkout over another one, alternating"
    time = "4 minutes"
    quick = ("--turns", "2", "--new-tokens", "2", "--old", str(ROOT))

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--old", type=Path, help="folder of another checkout")
        parser.add_argument("--turns", type=int, default=10, help="turns per prompt")
        parser.add_argument("--new-tokens", type=int, default=64)

    def check(self):
        old = self.options.old
        if old is None or not (old / "specdec_lite" / "__init__.py").is_file():
            raise ValueError(f"--old {old}: must be a checkout that contains specdec_lite/")
        if self.options.turns < 2 or self.options.new_tokens < 1:
            raise ValueError("--turns must be at least 2, --new-tokens at least 1")

    def __init__(self, options):
        super().__init__(options)
        self.checkout = cache(self.start)

    def start(self, side: str, dtype: str) -> Checkout:
        """Start the process of one checkout."""
        folder = ROOT if side == "new" else self.options.old.resolve()
        process = Checkout(folder, dtype)
        self.open.callback(process.close)
        return process

    def parts(self):
        return [f"{d} {method} T={t}" for d in DTYPES for method in METHODS for t in (0, 1)]

    def run(self, part):
        dtype, method, temperature = part.replace("T=", "").split()
        sides = {side: self.checkout(side, dtype) for side in ("old", "new")}
        prompts, turns = sides["new"].prompts, self.options.turns
        seconds = {side: np.zeros((prompts, turns)) for side in sides}
        order, same = random.Random(part), True
        for turn in range(-1, turns):
            for prompt in range(prompts):
                texts = {}
                for side in order.sample(list(sides), 2):
                    job = (method, prompt, float(temperature), max(0, turn))
                    spent, texts[side] = sides[side](*job, self.options.new_tokens)
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

    def summarise(self, rows):
        return {
            "old": revision(self.options.old),
            "new": revision(ROOT),
            "turns": self.options.turns,
            "rows": list(rows.values()),
        }

    def restore(self, data):
        return {f"{r['dtype']} {r['method']} T={r['temperature']:g}": r for r in data["rows"]}
