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

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Literal

import torch
import yaml
from transformers.utils import logging

from specdec_book.recordings import board
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

from .experiment import Run, experiment
from .methods import Method, absent_rows, available_rows, choose, describe
from .smollm2 import STOP

GAMMA = 4
BLOCK = 4
"""Prompts that are decoded together, as rows of one batch."""
LEVELS = 8
"""Levels for which acceptance is counted."""
PLAIN = "plain"
NAMED = yaml.safe_load(Path(__file__).with_name("named.yml").read_text("utf-8"))
Cell = tuple[str, float]
SUMS = ("tokens", "rounds", "accepted", "tested", "drafted", "levels", "empty")


@cache
def load_models(model: str, dtype: str, device: str = "cpu") -> Pair:
    """Return the models; SmolLM2 is a pair without a draft."""
    if model == "pair":
        return load_pair(device=device, dtype=dtype)
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


def count(steps: Sequence[Step]) -> dict:
    """Return the counts of one text.

    - tokens, rounds: emitted tokens and target passes.

    - accepted, tested, drafted: draft tokens; levels: sum of the drafts' depths; empty: rounds
      without a draft.

    - rows: {tokens of a target pass: number of passes}.

    - reached, tried: for each level, drafting rounds that accepted at least this many levels, and
      rounds that accepted all earlier levels and drafted this one.
    """
    depths = [(step.accepted, step.tree.levels) for step in steps if len(step.tree)]
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
    """Return one number per prompt as a text, which is a short form in JSON; 7*3 is 7 7 7."""
    runs = ((number, len([*run])) for number, run in groupby(numbers))
    return " ".join(f"{number}*{times}" if times > 1 else str(number) for number, times in runs)


def split(text: str) -> list[int]:
    """Return the numbers of a text, the inverse of `join`."""
    return [int(number) for number in board.numbers(text)]


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
    both = lambda one, other: join(split(one) + split(other))
    joined = {
        name: both(first[name], second[name])
        for name in (*SUMS, *(["same"] if "same" in first else []))
    }
    widths = sorted({*first["rows"], *second["rows"]}, key=int)
    passes = lambda each, width: each["rows"].get(width, join([0] * size(each)))
    rows = {width: both(passes(first, width), passes(second, width)) for width in widths}
    levels = {
        name: join([a + b for a, b in zip(split(first[name]), split(second[name]))])
        for name in ("reached", "tried")
    }
    return joined | {"rows": rows} | levels


@dataclass
class Rows:
    """The rows to count, and how.

    Attributes:
        model: "pair" or "smollm2".
        dtype: PyTorch's name of the precision, or "int4".
        new_tokens: New tokens per prompt.
        methods: The rows by name.
    """

    model: str
    dtype: str
    new_tokens: int
    methods: dict[str, Method]

    @cached_property
    def pair(self) -> Pair:
        """The models."""
        return load_models(self.model, self.dtype)

    @cached_property
    def drafters(self) -> dict:
        """The drafters by row."""
        return {name: method.make(self.pair, GAMMA) for name, method in self.methods.items()}

    @property
    def identity(self) -> dict:
        """The settings in which recordings must agree to be joined."""
        return {
            "model": self.model,
            "dtype": self.dtype,
            "gamma": GAMMA,
            "new_tokens": self.new_tokens,
            "batch": BLOCK,
            "prompts_sha256": SHA256,
        }

    def decode(self, name: str, ids: list[torch.Tensor], temperature: float, first: int):
        """Return the rounds of every prompt of a block; the prompt's number is its seed."""
        method = self.methods.get(name)
        outputs = generate_batch(
            self.pair.target,
            ids,
            self.drafters[name] if method else None,
            self.new_tokens,
            temperature,
            rule=method.rule if method else None,
            stop_token_ids=(STOP,) if self.model == "smollm2" else (),
            seeds=list(range(first, first + BLOCK)),
        )
        return [output.steps for output in outputs]

    def counts(self, kind: str, temperature: float, first: int, recorded: dict) -> dict[str, dict]:
        """Return the counts of each row on a block of prompts of one kind, if they are not recorded.

        At temperature 0 "same" states if the text is plain's.
        """
        every = [PLAIN, *(n for n, m in self.methods.items() if temperature or not m.rule)]
        names = [name for name in every if size(recorded.get(name)) <= first]
        if not names:
            return {}
        prompts = load_benchmark_prompts([kind])[kind][first : first + BLOCK]
        ids = [torch.tensor(prompt.encode(self.pair.tokenizer)) for prompt in prompts]
        text = lambda steps: [token for step in steps for token in step.tokens]
        greedy = temperature == 0
        plain = self.decode(PLAIN, ids, temperature, first) if greedy or PLAIN in names else []
        counts = {}
        for name in names:
            runs = plain if name == PLAIN else self.decode(name, ids, temperature, first)
            rows = [count(steps) for steps in runs]
            for row, steps, other in zip(rows, runs, plain if greedy else []):
                row["same"] = int(text(steps) == text(other))
            counts[name] = pack(rows)
        return counts


ALL = (*KINDS, *EXTRA_KINDS, *PUBLIC_KINDS)
WHAT = "tokens, rounds, drafted and accepted tokens"
PUBLIC = {
    "time": "20 minutes, not timed",
    "quick": {"rows": ("prompt lookup",), "prompts": 4, "new_tokens": 4},
}
COUNTED = {
    "least": {"new_tokens": 2},
    "unrelated": ("prompts", "kinds", "temperatures", "share"),
    "timed": False,
}
PAIR = {"model": "pair", "dtype": "float32"}
SMOLLM2 = {"model": "smollm2", "dtype": "int4"}
HUMANEVAL = {"kinds": ("humaneval",), "prompts": 12}


@experiment(
    "scoreboard-counts",
    f"{WHAT} of every drafter and every rule",
    time="3 hours, not timed",
    quick={
        "rows": ("draft model", "prompt lookup", "draft model × lenient(0.6)"),
        "prompts": 4,
        "new_tokens": 8,
        "kinds": ("json",),
    },
    given=PAIR,
    **COUNTED,
)
@experiment(
    "scoreboard-counts-smollm2",
    f"{WHAT} of every drafter and every rule",
    time="30 hours, not timed",
    quick={"rows": ("prompt lookup",), "prompts": 4, "new_tokens": 4, "kinds": ("json",)},
    given=SMOLLM2,
    **COUNTED,
)
@experiment(
    "humaneval-counts",
    f"{WHAT} on a set of prompts that others wrote",
    given=PAIR | HUMANEVAL,
    **PUBLIC,
    **COUNTED,
)
@experiment(
    "humaneval-counts-smollm2",
    f"{WHAT} on a set of prompts that others wrote",
    given=SMOLLM2 | HUMANEVAL,
    **PUBLIC,
    **COUNTED,
)
def scoreboard_counts(
    run: Run,
    model: str,
    *,
    prompts: int = 40,
    kinds: Sequence[Literal[*ALL]] = (*KINDS, *EXTRA_KINDS),
    temperatures: Sequence[float] = (0.0, 1.0),
    new_tokens: int = 128,
    rows: Sequence[str] = (),
    method: Sequence[str] = (),
    again: Sequence[str] = (),
    share: str = "",
    dtype: Literal["float32", "bfloat16", "int4"] = "float32",
) -> dict:
    """Return the counts; the parts are blocks of prompts of one kind at one temperature.

    Args:
        prompts: prompts per kind
        rows: names of rows to measure; default: all
        method: add rows: MODULE:NAME of a drafter, or of a function from a pair and gamma to one
        again: count these rows again
        share: count share K of N, as K/N; a run without it joins the shares
    """
    if prompts % BLOCK:
        raise ValueError(f"--prompts {prompts}: must be a multiple of {BLOCK}")
    number, shares = shared(share)
    logging.set_verbosity_error()
    available = available_rows(model, method)
    repeated = choose(available, again)
    methods = choose(available, rows or [*repeated] or [*available])
    counter = Rows(model, dtype, new_tokens, methods)
    joined, work = run.path, run.work
    if share:
        run.work = work / f"share-{share.replace('/', '-of-')}"
        if not run.named:
            joined, run.path = run.path, run.work / run.name / "counts.json"
    cells = recorded_cells(
        [joined, run.path, *sorted(work.glob(f"share-*/{run.name}/counts.json"))],
        counter.identity,
        again,
    )
    sizes = {kind: len(each) for kind, each in load_benchmark_prompts(kinds).items()}
    every = [(kind, temperature) for kind in kinds for temperature in temperatures]
    blocks = {
        f"{kind} T={temperature:g} {first + 1}–{first + BLOCK}": ((kind, temperature), first)
        for first in range(0, prompts, BLOCK)
        for kind, temperature in every[number - 1 :: shares]
        if first + BLOCK <= sizes[kind]
    }
    found = run(
        {
            part: partial(counter.counts, *cell, first, cells.get(cell, {}))
            for part, (cell, first) in blocks.items()
        }
    )
    for part, (place, first) in blocks.items():
        cell = cells.setdefault(place, {})
        for name, counts in found[part].items():
            if size(cell.get(name)) == first:  # a block counts only after the blocks before it
                cell[name] = extend(cell[name], counts) if first else counts
    pair = load_models(model, "float32")
    about = {name: describe(each, pair, model, GAMMA) for name, each in methods.items()}
    data = counter.identity | {
        "about": about,
        "absent": absent_rows(model),
        "named": NAMED,
        "cells": [
            {"kind": kind, "temperature": t, "methods": dict(sorted(cells[kind, t].items()))}
            for kind, t in sorted(cells)
        ],
    }
    # Whether this run's command alone would count all that is recorded.
    asked = {cell for cell, _ in blocks.values()}
    makes_all = not rows and all(
        cell in asked and max(map(size, methods.values())) <= prompts
        for cell, methods in cells.items()
    )
    return merged(run, counter.identity, data, makes_all)


def shared(share: str) -> tuple[int, int]:
    """Return K and N of a share K/N; without one, the only share."""
    first, _, last = (share or "1/1").partition("/")
    if not (first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise ValueError(f"--share {share!r}: must be K/N with 1 ≤ K ≤ N")
    return int(first), int(last)


def merged(run: Run, identity: dict, data: dict, makes_all: bool) -> dict:
    """Return the data with all rows of the existing recording, whose stamp stays if nothing changed.

    Of several runs that extended a file, the command that makes all of it is stated.
    """
    old = json.loads(run.path.read_text(encoding="utf-8")) if run.path.is_file() else {}
    if any(old.get(name) != value for name, value in identity.items()):
        return data
    data["about"] = old["about"] | data["about"]  # a run may count some rows only
    as_read = json.loads(json.dumps(data))  # the old one has lists for tuples
    if all(old[name] == each for name, each in as_read.items()):
        command = {"command": run.stamp["command"]} if makes_all else {}
        run.stamp = stamps.split(old)[0] | command
    return data


def recorded_cells(
    paths: Sequence[Path], identity: dict, again: Sequence[str]
) -> dict[Cell, dict[str, dict]]:
    """Return {(kind, temperature): counts by row} of recordings with the same settings."""
    cells: dict[Cell, dict[str, dict]] = {}
    for path in dict.fromkeys(paths):
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if all(content.get(name) == value for name, value in identity.items()):
            for row in content["cells"]:
                longer = cells.setdefault((row["kind"], row["temperature"]), {})
                for name, counts in row["methods"].items():
                    if name not in again and size(counts) > size(longer.get(name)):
                        longer[name] = counts
    return cells
