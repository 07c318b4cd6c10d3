"""Time the parts of a round for every row of the scoreboard; the machine must be quiet.

    python -m benchmarks run scoreboard-clocks                     # the shipped pair, 4 minutes
    python -m benchmarks run scoreboard-clocks-smollm2             # 7 minutes
    python -m benchmarks run scoreboard-clocks --method my_module:MyDrafter    # add a row
    python -m benchmarks run scoreboard-clocks --machine "my laptop"           # add a column

Three things are timed. **Passes**: T(k), a target pass over k tokens, in each precision.
**Rounds**: in each turn every contender decodes a few rounds of one prompt, all of them in a new
random order, and each round states the seconds of drafting, of the target pass and of the rest.
**Checks**: a tenth of the cells (row, kind, temperature) is decoded in full beside plain decoding.

`scoreboard_counts` counts how many rounds a text takes. `specdec_book.recordings.board` multiplies
counts and costs, and compares the product with the checks.
"""

import argparse
import json
from collections.abc import Iterator
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from transformers.utils import logging

from specdec_lite import CausalLM, stream, timing
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure import stamps
from specdec_lite.proposal import Step
from specdec_lite.speculation import Drafter
from specdec_lite.texts.benchmark_prompts import KINDS, SHA256

from . import plain
from .experiment import Experiment
from .methods import Method, add_rows, available_rows, choose
from .scoreboard_counts import GAMMA, PLAIN, count, depth_of, encoded_prompts, load_models, pack
from .smollm2 import STOP

KS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17, 20, 24, 32, 48, 64)
CONTEXT = 128
PLAIN_ROUNDS = 16
"""Timed rounds of plain decoding per turn."""
PASSES, CHECKS = "passes", "checks"


def microseconds(step: Step) -> str:
    """Return a round as "levels,rows,drafting,verifying,other", with times in microseconds."""
    times = (round(1e6 * seconds) for seconds in (step.drafting, step.verifying, step.other))
    return ",".join(map(str, (depth_of(step), len(step.tree) + 1, *times)))


class ScoreboardClocks(Experiment):
    """The parts are the passes, the turns, and the checks."""

    name = "scoreboard-clocks"
    what = "seconds of passes and rounds of every drafter and every rule"
    time = "4 minutes, quiet"
    quick = (
        "--rows",
        "draft model",
        "prompt lookup",
        "draft model × lenient(0.6)",
        *"--turns 2 --rounds 2 --check-share 0.1 --check-tokens 8 --dtypes float32".split(),
    )
    model = "pair"
    dtypes = ("float32", "bfloat16")
    variants = {
        "scoreboard-clocks-smollm2": {
            "time": "7 minutes, quiet",
            "quick": (
                "--rows",
                "prompt lookup",
                *"--turns 2 --rounds 2 --check-share 0.1 --check-tokens 4 --dtypes bfloat16".split(),
                *"--temperatures 0".split(),
            ),
            "model": "smollm2",
            "dtypes": ("bfloat16", "int4"),
        }
    }

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--turns", type=int, default=10, help="paired turns")
        parser.add_argument("--prompts", type=int, default=8, help="prompts that take turns")
        parser.add_argument("--rounds", type=int, default=4, help="timed rounds per row and turn")
        parser.add_argument(
            "--dtypes", nargs="+", default=[*cls.dtypes], choices=("float32", "bfloat16", "int4")
        )
        parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
        parser.add_argument(
            "--check-share", type=float, default=0.1, help="share of cells to check"
        )
        parser.add_argument("--check-tokens", type=int, default=64, help="tokens per checked text")
        add_rows(parser)
        parser.add_argument("--machine", help="name of the column and of the file")
        parser.add_argument("--device", default="cpu", help="device of everything that is timed")
        parser.set_defaults(model=cls.model)

    def __init__(self, options: argparse.Namespace):
        super().__init__(options)
        if options.machine and not options.out and not options.quick:
            options.out = stamps.recording_path(self.name, options.machine)

    @cached_property
    def methods(self) -> dict[str, Method]:
        """The rows to time."""
        options = self.options
        available = available_rows(self.model, options.method)
        return choose(available, options.rows or options.method or [*available])

    def check(self):
        options = self.options
        self.check_least(turns=2, prompts=1, rounds=1, check_tokens=2)
        if not 0 <= options.check_share <= 1:
            raise ValueError(f"--check-share {options.check_share}: must be in [0, 1]")
        assert self.methods

    def parts(self):
        logging.set_verbosity_error()
        return [PASSES, *(f"turn {turn + 1}" for turn in range(self.options.turns)), CHECKS]

    def run(self, part):
        assert self.state
        if part == PASSES:
            return {dtype: self.passes(dtype) for dtype in self.options.dtypes}
        if part == CHECKS:
            return [self.checked(*cell) for cell in self.checked_cells()]
        return self.turn(int(part.split()[1]) - 1)

    # Models and prompts ---------------------------------------------------------------------------

    @cached_property
    def pairs(self) -> dict[str, Pair]:
        """{dtype: models}; SmolLM2 is a pair without a draft."""
        device = self.options.device
        return {dtype: load_models(self.model, dtype, device) for dtype in self.options.dtypes}

    @cached_property
    def drafters(self) -> dict[str, dict[str, Drafter]]:
        """{dtype: {row: drafter}}."""
        return {
            dtype: {name: method.make(pair, GAMMA) for name, method in self.methods.items()}
            for dtype, pair in self.pairs.items()
        }

    @cached_property
    def prompts(self) -> dict[str, list[torch.Tensor]]:
        """The first prompts of each kind as token ids."""
        tokenizer = next(iter(self.pairs.values())).tokenizer
        return encoded_prompts(tokenizer, KINDS, 4)

    @property
    def stops(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        return (STOP,) if self.model == "smollm2" else ()

    # What is timed --------------------------------------------------------------------------------

    def passes(self, dtype: str) -> dict[str, list[float]]:
        """Return {k: seconds of a pass over k tokens, one for each turn}."""
        target: CausalLM = self.pairs[dtype].target
        text = torch.randint(
            target.vocab_size, (CONTEXT,), generator=torch.Generator().manual_seed(0)
        ).to(target.device)
        jobs = {k: timing.pass_job(target, text, k) for k in KS}
        seconds = timing.samples(jobs, target.device, self.options.turns, warmup=2)
        return {str(k): rounded(seconds[k]) for k in KS}

    def stream(self, name: str, dtype: str, temperature: float, ids, tokens: int, seed: int):
        """Yield the rounds of a row on a prompt.

        Shapes: ids [n].
        """
        method = self.methods.get(name)
        return stream(
            self.pairs[dtype].target,
            ids,
            self.drafters[dtype][name] if method else None,
            tokens,
            temperature,
            rule=method.rule if method else None,
            stop_token_ids=self.stops,
            seed=seed,
        )

    def cells(self, temperature: float) -> list[str]:
        """Return the rows of a temperature; rules differ only above temperature 0."""
        return [name for name, method in self.methods.items() if temperature or not method.rule]

    def jobs(self) -> Iterator[tuple[str, str, float]]:
        """Yield (dtype, row, temperature) of everything that takes a turn."""
        for temperature in self.options.temperatures:
            for dtype in self.options.dtypes:
                for name in (PLAIN, *self.cells(temperature)):
                    yield dtype, name, temperature

    def turn(self, number: int) -> dict:
        """Time a few rounds of every row on one prompt, in random order.

        The first round is not counted, because a draft model reads the prompt in it.
        """
        flat = [ids for rows in zip(*self.prompts.values()) for ids in rows]
        ids = flat[number % min(self.options.prompts, len(flat))]
        rng = np.random.default_rng(number)
        jobs = list(self.jobs())
        result: dict = {"rounds": {}, "plain": {}}
        for index in rng.permutation(len(jobs)):
            dtype, name, temperature = jobs[index]
            counted = PLAIN_ROUNDS if name == PLAIN else self.options.rounds
            steps = self.stream(name, dtype, temperature, ids, 8 * (counted + 1), number)
            rounds = " ".join(microseconds(step) for step in islice(steps, 1, counted + 1))
            by_row = result["rounds"].setdefault(dtype, {}).setdefault(f"{temperature:g}", {})
            by_row[name] = rounds
        for temperature in self.options.temperatures:
            result["plain"][f"{temperature:g}"] = self.others(temperature, ids, number)
        return result

    def others(self, temperature: float, ids: torch.Tensor, seed: int) -> dict[str, float]:
        """Return the seconds per token of the plain decoders outside the rows.

        Shapes: ids [n].
        """
        if self.options.device != "cpu":
            return {}
        timed = self.options.dtypes
        decoders = plain.others(self.model, PLAIN_ROUNDS, temperature, self.stops, timed)
        runs = {name: each.run(ids, seed) for name, each in decoders.items()}
        return {name: run.seconds / run.tokens for name, run in runs.items() if run.tokens}

    def checked_cells(self) -> list[tuple[str, str, float, str]]:
        """Return the (row, kind, temperature, dtype) that are timed in full, the same every time."""
        every = [
            (name, kind, temperature)
            for temperature in self.options.temperatures
            for kind in self.prompts
            for name in self.cells(temperature)
        ]
        rng = np.random.default_rng(0)
        chosen = rng.permutation(len(every))[: round(self.options.check_share * len(every))]
        dtypes = self.options.dtypes
        return [(*every[i], dtypes[n % len(dtypes)]) for n, i in enumerate(sorted(chosen))]

    def checked(self, name: str, kind: str, temperature: float, dtype: str) -> dict:
        """Decode one text with a row and with plain decoding in the same precision."""
        ids = self.prompts[kind][0]
        tokens = self.options.check_tokens
        runs = {
            each: list(self.stream(each, dtype, temperature, ids, tokens, 0))[1:]
            for each in (PLAIN, name)
        }
        seconds = {each: sum(step.seconds for step in steps) for each, steps in runs.items()}
        return {
            "method": name,
            "kind": kind,
            "temperature": temperature,
            "dtype": dtype,
            "counts": pack([count(runs[name])]),
            "seconds": seconds[name],
            "plain": seconds[PLAIN] / max(1, sum(len(step.tokens) for step in runs[PLAIN])),
        }

    # The recording --------------------------------------------------------------------------------

    def summarise(self, rows):
        options = self.options
        turns = [rows[f"turn {turn + 1}"] for turn in range(options.turns)]
        collect = lambda tree: (
            {key: collect([each[key] for each in tree]) for key in tree[0]}
            if isinstance(tree[0], dict)
            else tree
        )
        return {
            "model": self.model,
            "column": options.machine or stamps.machine_name(options.device),
            "device": options.device,
            "threads": torch.get_num_threads(),
            "gamma": GAMMA,
            "turns": options.turns,
            "prompts_sha256": SHA256,
            "context": CONTEXT,
            "passes": rows[PASSES],
            "rounds": collect([turn["rounds"] for turn in turns]),
            "plain": collect([turn["plain"] for turn in turns]),
            "checks": rows[CHECKS],
            "state": {"start": self.state, "end": timing.machine_state()},
        }

    def merge(self, stamp, data):
        options = self.options
        if not (options.rows or options.method) or not self.path.is_file():
            return stamp, data
        old = json.loads(self.path.read_text(encoding="utf-8"))
        for name in ("model", "threads", "turns", "prompts_sha256", "device"):
            if old[name] != data[name]:
                raise ValueError(
                    f"{name} is {data[name]}: must be {old[name]}, as in the recording"
                )
        for dtype, settings in data["rounds"].items():
            for temperature, by_row in settings.items():
                old["rounds"][dtype][temperature] |= {
                    name: rounds for name, rounds in by_row.items() if name != PLAIN
                }
        new = {(each["method"], each["dtype"]) for each in data["checks"]}
        kept = [each for each in old["checks"] if (each["method"], each["dtype"]) not in new]
        added = {"date": stamp["date"], "command": stamp["command"], "rows": [*self.methods]}
        old |= {"checks": [*kept, *data["checks"]], "added": [*old.get("added", []), added]}
        return stamps.split(old)

    def restore(self, data):
        return {}


def rounded(seconds: list[float]) -> list[float]:
    """Return seconds with four digits, because further digits are noise."""
    return [float(f"{each:.4g}") for each in seconds]
