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

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Literal

import numpy as np
import torch
from transformers.utils import logging

from specdec_lite import CausalLM, stream, timing
from specdec_lite.contract import Drafter
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure import stamps
from specdec_lite.proposal import Step
from specdec_lite.texts.benchmark_prompts import KINDS, SHA256

from . import plain
from .experiment import Run, experiment, rounded
from .methods import Method, available_rows, choose
from .scoreboard_counts import GAMMA, PLAIN, count, encoded_prompts, load_models, pack
from .smollm2 import STOP

KS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17, 20, 24, 32, 48, 64)
CONTEXT = 128
PLAIN_ROUNDS = 16
"""Timed rounds of plain decoding per turn."""
PASSES, CHECKS = "passes", "checks"


def microseconds(step: Step) -> str:
    """Return a round as "levels,rows,drafting,verifying,other", with times in microseconds."""
    times = (round(1e6 * seconds) for seconds in (step.drafting, step.verifying, step.other))
    return ",".join(map(str, (step.tree.levels, len(step.tree) + 1, *times)))


@dataclass
class Clocks:
    """What is timed; the fields are the options of the experiment.

    Attributes:
        methods: The rows to time, by name.
    """

    model: str
    methods: dict[str, Method]
    turns: int
    prompts: int
    rounds: int
    dtypes: Sequence[str]
    temperatures: Sequence[float]
    check_share: float
    check_tokens: int
    device: str

    @cached_property
    def pairs(self) -> dict[str, Pair]:
        """{dtype: models}; SmolLM2 is a pair without a draft."""
        return {dtype: load_models(self.model, dtype, self.device) for dtype in self.dtypes}

    @cached_property
    def drafters(self) -> dict[str, dict[str, Drafter]]:
        """{dtype: {row: drafter}}."""
        return {
            dtype: {name: method.make(pair, GAMMA) for name, method in self.methods.items()}
            for dtype, pair in self.pairs.items()
        }

    @cached_property
    def texts(self) -> dict[str, list[torch.Tensor]]:
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
        seconds = timing.samples(jobs, target.device, self.turns, warmup=2)
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
        for temperature in self.temperatures:
            for dtype in self.dtypes:
                for name in (PLAIN, *self.cells(temperature)):
                    yield dtype, name, temperature

    def turn(self, number: int) -> dict:
        """Time a few rounds of every row on one prompt, in random order.

        The first round is not counted, because a draft model reads the prompt in it.
        """
        flat = [ids for rows in zip(*self.texts.values()) for ids in rows]
        ids = flat[number % min(self.prompts, len(flat))]
        rng = np.random.default_rng(number)
        jobs = list(self.jobs())
        result: dict = {"rounds": {}, "plain": {}}
        for index in rng.permutation(len(jobs)):
            dtype, name, temperature = jobs[index]
            counted = PLAIN_ROUNDS if name == PLAIN else self.rounds
            steps = self.stream(name, dtype, temperature, ids, 8 * (counted + 1), number)
            rounds = " ".join(microseconds(step) for step in islice(steps, 1, counted + 1))
            by_row = result["rounds"].setdefault(dtype, {}).setdefault(f"{temperature:g}", {})
            by_row[name] = rounds
        for temperature in self.temperatures:
            result["plain"][f"{temperature:g}"] = self.others(temperature, ids, number)
        return result

    def others(self, temperature: float, ids: torch.Tensor, seed: int) -> dict[str, float]:
        """Return the seconds per token of the plain decoders outside the rows.

        Shapes: ids [n].
        """
        if self.device != "cpu":
            return {}
        timed = self.dtypes
        decoders = plain.others(self.model, PLAIN_ROUNDS, temperature, self.stops, timed)
        runs = {name: decode(ids, seed) for name, decode in decoders.items()}
        return {name: seconds / tokens for name, (seconds, tokens) in runs.items() if tokens}

    def checked_cells(self) -> list[tuple[str, str, float, str]]:
        """Return the (row, kind, temperature, dtype) that are timed in full, the same every time."""
        every = [
            (name, kind, temperature)
            for temperature in self.temperatures
            for kind in self.texts
            for name in self.cells(temperature)
        ]
        rng = np.random.default_rng(0)
        chosen = rng.permutation(len(every))[: round(self.check_share * len(every))]
        dtypes = self.dtypes
        return [(*every[i], dtypes[n % len(dtypes)]) for n, i in enumerate(sorted(chosen))]

    def checked(self, name: str, kind: str, temperature: float, dtype: str) -> dict:
        """Decode one text with a row and with plain decoding in the same precision."""
        ids = self.texts[kind][0]
        tokens = self.check_tokens
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


ROWS = ("draft model", "prompt lookup", "draft model × lenient(0.6)")
QUICK = {"turns": 2, "rounds": 2, "check_share": 0.1}
LEAST = {"turns": 2, "check_tokens": 2}
WHAT = "seconds of passes and rounds of every drafter and every rule"


@experiment(
    "scoreboard-clocks",
    WHAT,
    time="4 minutes, quiet",
    quick=QUICK | {"rows": ROWS, "check_tokens": 8, "dtypes": ("float32",)},
    least=LEAST,
    given={"model": "pair"},
)
@experiment(
    "scoreboard-clocks-smollm2",
    WHAT,
    time="7 minutes, quiet",
    quick=QUICK
    | {"rows": ROWS[1:2], "check_tokens": 4, "dtypes": ("bfloat16",), "temperatures": (0.0,)},
    least=LEAST,
    given={"model": "smollm2", "dtypes": ("bfloat16", "int4")},
)
def scoreboard_clocks(
    run: Run,
    model: str,
    *,
    turns: int = 10,
    prompts: int = 8,
    rounds: int = 4,
    dtypes: Sequence[Literal["float32", "bfloat16", "int4"]] = ("float32", "bfloat16"),
    temperatures: Sequence[float] = (0.0, 1.0),
    check_share: float = 0.1,
    check_tokens: int = 64,
    rows: Sequence[str] = (),
    method: Sequence[str] = (),
    machine: str = "",
    device: str = "cpu",
) -> dict:
    """Return the passes, the turns, and the checks.

    Args:
        turns: paired turns
        prompts: prompts that take turns
        rounds: timed rounds per row and turn
        check_share: share of cells to check
        check_tokens: tokens per checked text
        rows: names of rows to measure; default: all
        method: add rows: MODULE:NAME of a drafter, or of a function from a pair and gamma to one
        machine: name of the column and of the file
        device: device of everything that is timed
    """
    if check_share > 1:
        raise ValueError(f"--check-share {check_share}: must be in [0, 1]")
    logging.set_verbosity_error()
    available = available_rows(model, method)
    methods = choose(available, rows or method or [*available])
    every = (turns, prompts, rounds, dtypes, temperatures, check_share, check_tokens, device)
    clocks = Clocks(model, methods, *every)
    passes = run({PASSES: lambda: {dtype: clocks.passes(dtype) for dtype in dtypes}})[PASSES]
    timed = [*run({f"turn {n + 1}": partial(clocks.turn, n) for n in range(turns)}).values()]
    checks = run({CHECKS: lambda: [clocks.checked(*c) for c in clocks.checked_cells()]})[CHECKS]
    data = {
        "model": model,
        "column": machine or stamps.machine_name(device),
        "device": device,
        "threads": torch.get_num_threads(),
        "gamma": GAMMA,
        "turns": turns,
        "prompts_sha256": SHA256,
        "context": CONTEXT,
        "passes": passes,
        "rounds": collected([turn["rounds"] for turn in timed]),
        "plain": collected([turn["plain"] for turn in timed]),
        "checks": checks,
        "state": run.states(),
    }
    return with_rows(run, data, [*methods]) if rows or method else data


def collected(trees: list) -> list | dict:
    """Return one tree of lists for a list of trees."""
    if not isinstance(trees[0], dict):
        return trees
    return {key: collected([tree[key] for tree in trees]) for key in trees[0]}


def with_rows(run: Run, data: dict, rows: list[str]) -> dict:
    """Return the existing recording with these rows; its stamp stays."""
    if not run.path.is_file():
        return data
    old = json.loads(run.path.read_text(encoding="utf-8"))
    for name in ("model", "threads", "turns", "prompts_sha256", "device"):
        if old[name] != data[name]:
            raise ValueError(f"{name} is {data[name]}: must be {old[name]}, as in the recording")
    for dtype, settings in data["rounds"].items():
        for temperature, by_row in settings.items():
            old["rounds"][dtype][temperature] |= {
                name: timed for name, timed in by_row.items() if name != PLAIN
            }
    new = {(each["method"], each["dtype"]) for each in data["checks"]}
    kept = [each for each in old["checks"] if (each["method"], each["dtype"]) not in new]
    added = {name: run.stamp[name] for name in ("date", "command", stamps.COMMIT)} | {"rows": rows}
    old |= {"checks": [*kept, *data["checks"]], "added": [*old.get("added", []), added]}
    run.stamp, merged = stamps.split(old)
    return merged
