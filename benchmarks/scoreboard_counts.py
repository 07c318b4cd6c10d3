"""Count what every drafter and every rule does on the scoreboard's prompts; nothing is timed.

    python -m benchmarks run scoreboard-counts                       # the shipped pair
    python -m benchmarks run scoreboard-counts --prompts 8           # eight prompts per kind
    python -m benchmarks run scoreboard-counts --method my_module:MyDrafter    # add a row
    python -m benchmarks run scoreboard-counts-smollm2 --share 1/2   # one of two processes

The counts are tokens, rounds, drafted and accepted tokens, and the number of rows of each target
pass. They depend on the weights, the prompts, the seed and the dtype, so a run may share the
machine with other work, and the same run on the same machine gives the same file. Another processor
may round differently, and then some texts differ.

A run extends the recording: whatever is recorded is not counted again. Parts are blocks of prompts
of one kind at one temperature, the first prompts of all kinds first. `scoreboard_clocks` measures
the costs, and `specdec_book.recordings.board` multiplies the two.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

import torch
from transformers.utils import logging

from specdec_lite import generate_batch, load_pair, load_smollm2
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure import stamps
from specdec_lite.proposal import Step
from specdec_lite.texts.benchmark_prompts import (
    EXTRA_KINDS,
    KINDS,
    PUBLIC_KINDS,
    SHA256,
    load_benchmark_prompts,
)

from .experiment import Experiment
from .methods import Method, absent_rows, add_rows, available_rows, choose, describe
from .named import NAMED
from .smollm2 import STOP

GAMMA = 4
BLOCK = 4
"""Prompts that are decoded together, as rows of one batch."""
LEVELS = 8
"""Levels for which acceptance is counted."""
PLAIN = "plain"
Cell = tuple[str, float]
SUMS = ("tokens", "rounds", "accepted", "tested", "drafted", "levels", "empty")


@cache
def load_models(model: str, dtype: str, device: str = "cpu") -> Pair:
    """Return the models; SmolLM2 is a pair without a draft."""
    if model == "pair":
        pair = load_pair(device=device, dtype=dtype)
        draft = load_pair(device=device, dtype="float32").draft  # on a CPU, as in `load_pair()`
        return replace(pair, draft=draft) if device == "cpu" else pair
    target, tokenizer = load_smollm2(device, dtype)
    return Pair(target, None, tokenizer)


def encoded_prompts(
    tokenizer, kinds: Sequence[str], count: int | None = None
) -> dict[str, list[torch.Tensor]]:
    """Return {kind: prompts of the scoreboard as token ids}."""
    return {
        kind: [torch.tensor(prompt.encode(tokenizer)) for prompt in prompts]
        for kind, prompts in load_benchmark_prompts(kinds, count=count).items()
    }


# One prompt ---------------------------------------------------------------------------------------


def depth_of(step: Step) -> int:
    """Return the number of levels that a round drafted."""
    return int(step.tree.depth.max()) + 1 if len(step.tree) else 0


def count(steps: Sequence[Step]) -> dict:
    """Return the counts of one text.

    - tokens, rounds: emitted tokens and target passes.

    - accepted, tested, drafted: draft tokens; levels: sum of the drafts' depths; empty: rounds
      without a draft.

    - rows: {tokens of a target pass: number of passes}.

    - reached, tried: for each level, drafting rounds that accepted at least this many levels, and
      rounds that accepted all earlier levels and drafted this one.
    """
    depths = [(step.accepted, depth_of(step)) for step in steps if len(step.tree)]
    return {
        "tokens": sum(len(step.tokens) for step in steps),
        "rounds": len(steps),
        "accepted": sum(step.accepted for step in steps),
        "tested": sum(step.tested for step in steps),
        "drafted": sum(step.drafted for step in steps),
        "levels": sum(depth for _, depth in depths),
        "empty": len(steps) - len(depths),
        "rows": dict(sorted(Counter(len(step.tree) + 1 for step in steps).items())),
        "reached": [
            sum(accepted >= level for accepted, _ in depths) for level in range(1, LEVELS + 1)
        ],
        "tried": [
            sum(accepted >= level - 1 and depth >= level for accepted, depth in depths)
            for level in range(1, LEVELS + 1)
        ],
    }


# Compact storage ----------------------------------------------------------------------------------


def join(numbers: Sequence[int]) -> str:
    """Return one number per prompt as a text, which is a short form in JSON."""
    return " ".join(map(str, numbers))


def split(text: str) -> list[int]:
    """Return the numbers of a text, the inverse of `join`."""
    return [int(number) for number in text.split()]


def pack(counts: Sequence[dict]) -> dict:
    """Return the counts of several texts with one number per text and field.

    "reached" and "tried" are summed over the texts.
    """
    widths = sorted({int(width) for each in counts for width in each["rows"]})
    names = [*SUMS, *(["same"] if "same" in counts[0] else [])]
    return {
        **{name: join([each[name] for each in counts]) for name in names},
        "rows": {
            str(width): join([each["rows"].get(width, 0) for each in counts]) for width in widths
        },
        **{
            name: join([sum(levels) for levels in zip(*(each[name] for each in counts))])
            for name in ("reached", "tried")
        },
    }


def size(counts: dict | None) -> int:
    """Return the number of texts in packed counts; 0 if there are none."""
    return len(split(counts["tokens"])) if counts else 0


def extend(first: dict, second: dict) -> dict:
    """Return the counts of the first texts followed by those of the second."""
    joined = {
        name: f"{first[name]} {second[name]}"
        for name in (*SUMS, *(["same"] if "same" in first else []))
    }
    widths = sorted({*first["rows"], *second["rows"]}, key=int)
    passes = lambda each, width: each["rows"].get(width, join([0] * size(each)))
    rows = {width: f"{passes(first, width)} {passes(second, width)}" for width in widths}
    levels = {
        name: join([a + b for a, b in zip(split(first[name]), split(second[name]))])
        for name in ("reached", "tried")
    }
    return joined | {"rows": rows} | levels


# The experiment -----------------------------------------------------------------------------------


PUBLIC = {
    "what": "tokens, rounds, drafted and accepted tokens on a set of prompts that others wrote",
    "time": "20 minutes, not timed",
    "quick": ("--rows", "prompt lookup", *"--prompts 4 --new-tokens 4".split()),
    "kinds": ("humaneval",),
    "prompts": 12,
}


class ScoreboardCounts(Experiment):
    """The parts are blocks of prompts of one kind at one temperature, with all rows."""

    name = "scoreboard-counts"
    what = "tokens, rounds, drafted and accepted tokens of every drafter and every rule"
    time = "3 hours, not timed"
    quick = (
        "--rows",
        "draft model",
        "prompt lookup",
        "draft model × lenient(0.6)",
        *"--prompts 4 --new-tokens 8 --kinds json".split(),
    )
    unrelated = ("prompts", "kinds", "temperatures", "share")
    timed = False
    kinds = (*KINDS, *EXTRA_KINDS)
    prompts = 40
    model = "pair"
    dtype = "float32"
    variants = {
        "scoreboard-counts-smollm2": {
            "time": "30 hours, not timed",
            "quick": (
                "--rows",
                "prompt lookup",
                *"--prompts 4 --new-tokens 4 --kinds json".split(),
            ),
            "model": "smollm2",
            "dtype": "int4",
        },
        "humaneval-counts": PUBLIC,
        "humaneval-counts-smollm2": PUBLIC | {"model": "smollm2", "dtype": "int4"},
    }

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--prompts", type=int, default=cls.prompts, help="prompts per kind")
        parser.add_argument(
            "--kinds",
            nargs="+",
            default=[*cls.kinds],
            choices=[*KINDS, *EXTRA_KINDS, *PUBLIC_KINDS],
            help="kinds of text; default: %(default)s",
        )
        parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
        parser.add_argument("--new-tokens", type=int, default=128)
        add_rows(parser)
        parser.add_argument("--again", nargs="+", default=[], help="count these rows again")
        parser.add_argument(
            "--share", metavar="K/N", help="count share K of N; a run without it joins the shares"
        )
        parser.add_argument("--dtype", default=cls.dtype, choices=("float32", "bfloat16", "int4"))
        parser.set_defaults(model=cls.model)

    def __init__(self, options: argparse.Namespace):
        super().__init__(options)
        self.root = options.work
        self.joined = options.out or stamps.recording_path(self.name, stamps.machine_name())
        if options.share:
            options.work = self.root / f"share-{options.share.replace('/', '-of-')}"
            options.out = options.out or options.work / self.name / "counts.json"

    @cached_property
    def methods(self) -> dict[str, Method]:
        """The rows to count."""
        available = available_rows(self.model, self.options.method)
        again = choose(available, self.options.again)
        return choose(available, self.options.rows or [*again] or [*available])

    def check(self):
        options = self.options
        if options.prompts < BLOCK or options.prompts % BLOCK:
            raise ValueError(f"--prompts {options.prompts}: must be a multiple of {BLOCK}")
        if options.new_tokens < 2:
            raise ValueError(f"--new-tokens {options.new_tokens}: must be at least 2")
        if min(options.temperatures) < 0:
            raise ValueError(f"--temperatures {options.temperatures}: must be ≥ 0")
        if options.share:
            first, _, last = options.share.partition("/")
            if not (first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
                raise ValueError(f"--share {options.share!r}: must be K/N with 1 ≤ K ≤ N")
        assert self.methods and self.recorded is not None

    @cached_property
    def settings(self) -> dict[str, tuple[str, float, int]]:
        """{part: (kind, temperature, number of its first prompt)}; a share has some of the cells."""
        options = self.options
        number, shares = map(int, (options.share or "1/1").split("/"))
        sizes = {kind: len(rows) for kind, rows in load_benchmark_prompts(options.kinds).items()}
        cells = [
            (kind, temperature) for kind in options.kinds for temperature in options.temperatures
        ]
        return {
            f"{kind} T={temperature:g} {first + 1}–{first + BLOCK}": (kind, temperature, first)
            for first in range(0, options.prompts, BLOCK)
            for kind, temperature in cells[number - 1 :: shares]
            if first + BLOCK <= sizes[kind]
        }

    def parts(self):
        logging.set_verbosity_error()
        return [*self.settings]

    @cached_property
    def identity(self) -> dict:
        """The settings in which recordings must agree to be joined."""
        return {
            "model": self.model,
            "dtype": self.options.dtype,
            "gamma": GAMMA,
            "new_tokens": self.options.new_tokens,
            "batch": BLOCK,
            "prompts_sha256": SHA256,
        }

    @cached_property
    def recorded(self) -> dict[Cell, dict[str, dict]]:
        """{(kind, temperature): counts by row} of the existing recording and of finished shares."""
        cells: dict[Cell, dict[str, dict]] = {}
        shares = sorted(self.root.glob(f"share-*/{self.name}/counts.json"))
        for path in dict.fromkeys([self.joined, self.path, *shares]):
            for cell, rows in recorded_cells(path, self.identity).items():
                longer = cells.setdefault(cell, {})
                for name, counts in rows.items():
                    if name not in self.options.again and size(counts) > size(longer.get(name)):
                        longer[name] = counts
        return cells

    @cached_property
    def drafters(self) -> dict:
        """The drafters by row, which are made once."""
        pair = load_models(self.model, self.options.dtype)
        return {name: method.make(pair, GAMMA) for name, method in self.methods.items()}

    def run(self, part):
        kind, temperature, first = self.settings[part]
        recorded = self.recorded.get((kind, temperature), {})
        names = [PLAIN, *(n for n, m in self.methods.items() if temperature or not m.rule)]
        missing = [name for name in names if size(recorded.get(name)) <= first]
        return Decoder(self, kind, temperature, first).counts(missing) if missing else {}

    def summarise(self, rows):
        cells = {cell: dict(counts) for cell, counts in self.recorded.items()}
        for part, blocks in rows.items():
            kind, temperature, first = self.settings[part]
            cell = cells.setdefault((kind, temperature), {})
            for name, counts in blocks.items():
                if size(cell.get(name)) == first:  # a block counts only after the blocks before it
                    cell[name] = extend(cell[name], counts) if first else counts
        pair = load_models(self.model, "float32")
        return self.identity | {
            "about": {
                name: describe(method, pair, self.model, GAMMA)
                for name, method in self.methods.items()
            },
            "absent": absent_rows(self.model),
            "named": NAMED,
            "cells": [
                {
                    "kind": kind,
                    "temperature": temperature,
                    "methods": dict(sorted(cells[kind, temperature].items())),
                }
                for kind, temperature in sorted(cells)
            ],
        }

    def merge(self, stamp, data):
        if not self.path.is_file():
            return stamp, data
        old = json.loads(self.path.read_text(encoding="utf-8"))
        if any(old.get(name) != value for name, value in self.identity.items()):
            return stamp, data
        data["about"] = old["about"] | data["about"]  # a run may count some rows only
        as_read = json.loads(json.dumps(data))  # the old one has lists for tuples
        if any(old[name] != each for name, each in as_read.items()):
            return stamp, data
        # Of several runs that extended a file, the command that makes all of it is stated.
        command = {"command": stamp["command"]} if self.makes_all(data) else {}
        return stamps.split(old)[0] | command, data

    def makes_all(self, data: dict) -> bool:
        """Return whether this run's command alone would count all that is recorded."""
        named = {(kind, temperature) for kind, temperature, _ in self.settings.values()}
        return not self.options.rows and all(
            (cell["kind"], cell["temperature"]) in named
            and max(map(size, cell["methods"].values())) <= self.options.prompts
            for cell in data["cells"]
        )

    def restore(self, data):
        return {}


class Decoder:
    """Decode one block of prompts with each row.

    Args:
        run: The experiment.
        kind: Kind of text.
        temperature: Sampling temperature.
        first: Number of the first prompt; the prompt's number is its seed.
    """

    def __init__(self, run: ScoreboardCounts, kind: str, temperature: float, first: int):
        self.run = run
        self.pair = load_models(run.model, run.options.dtype)
        prompts = load_benchmark_prompts([kind])[kind][first : first + BLOCK]
        self.ids = [torch.tensor(prompt.encode(self.pair.tokenizer)) for prompt in prompts]
        self.temperature = temperature
        self.seeds = list(range(first, first + BLOCK))

    def decode(self, name: str) -> list[list[Step]]:
        """Return the rounds of every prompt."""
        method = self.run.methods.get(name)
        outputs = generate_batch(
            self.pair.target,
            self.ids,
            self.run.drafters[name] if method else None,
            self.run.options.new_tokens,
            self.temperature,
            rule=method.rule if method else None,
            stop_token_ids=(STOP,) if self.run.model == "smollm2" else (),
            seeds=self.seeds,
        )
        return [output.steps for output in outputs]

    def counts(self, names: Sequence[str]) -> dict[str, dict]:
        """Return the counts of each row; at temperature 0 "same" states if the text is plain's."""
        text = lambda steps: [token for step in steps for token in step.tokens]
        greedy = self.temperature == 0
        plain = self.decode(PLAIN) if greedy or PLAIN in names else []
        counts = {}
        for name in names:
            runs = plain if name == PLAIN else self.decode(name)
            rows = [count(steps) for steps in runs]
            for row, steps, other in zip(rows, runs, plain if greedy else []):
                row["same"] = int(text(steps) == text(other))
            counts[name] = pack(rows)
        return counts


def recorded_cells(path: Path, identity: dict) -> dict[Cell, dict[str, dict]]:
    """Return {(kind, temperature): counts by row} of a recording; empty with other settings."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    stamps.validate(path.name, content)
    data = stamps.split(content)[1]
    if any(data[name] != value for name, value in identity.items()):
        return {}
    return {(row["kind"], row["temperature"]): row["methods"] for row in data["cells"]}
