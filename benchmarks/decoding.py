"""Time every shipped drafter against plain decoding and Hugging Face, in one run on one machine.

    python -m benchmarks run speed                   # the shipped pair; about an hour on two cores
    python -m benchmarks run speed --gammas 4 --new-tokens 32 --minutes 15

All contenders decode the same prompts in the same dtype. `speed` explains how speed is measured.
Nothing is asserted: the recording flags a speedup that cannot be right, with the reason.
"""

import argparse
import math
import platform
from dataclasses import replace
from functools import cached_property
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from specdec_lite import timing
from specdec_lite.engine.linear import is_packed
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.texts.corpus import evaluation_prompts

from . import speed
from .experiment import Experiment
from .hugging_face import HuggingFace
from .scoreboard_counts import load_models
from .speed import Bench, Other, cost_by_context, measure

LEAST = {"prompts": 2, "new_tokens": 2, "turns": 1, "least": 1}


def shipped(options: argparse.Namespace) -> Bench:
    """Return the bench of the shipped pair on the evaluation prompts."""

    def load(dtype: str):
        return load_models("pair", dtype, options.device)

    encode = load("float32").tokenizer.encode
    texts = evaluation_prompts()
    count = min(options.prompts, *map(len, texts.values()))
    return Bench(
        load=load,
        prompts={
            domain: [torch.tensor(encode(item["text"])) for item in items[:count]]
            for domain, items in texts.items()
        },
        gammas=options.gammas,
        dtypes=options.dtypes,
        temperatures=options.temperatures,
        new_tokens=options.new_tokens,
        turns=options.turns,
        least=options.least,
        drafters={name: speed.DRAFTERS[name] for name in options.drafters or speed.DRAFTERS},
        others=hugging_face_contenders(options) if "float32" in options.dtypes else {},
    )


def hugging_face_contenders(options: argparse.Namespace) -> dict[str, Other]:
    """Return Hugging Face with the same two models: plain, and assisted against our leading
    drafter.
    """
    theirs = HuggingFace(SHIPPED, "float32", options.gammas[0], options.device)
    leader = next(iter(options.drafters or speed.DRAFTERS))
    return {"hf_plain": Other(theirs, False, "plain"), "hf_assisted": Other(theirs, True, leader)}


class Shares:
    """Divide the time of a run equally among the settings that remain.

    Args:
        minutes: Time for all settings; None means no limit.
    """

    def __init__(self, minutes: float | None):
        self.minutes = minutes
        self.began: float | None = None

    def deadline(self, left: int) -> float:
        """Return the time at which the next setting ends."""
        now = perf_counter()
        if self.began is None:
            self.began = now
        if not self.minutes:
            return math.inf
        return now + (self.began + 60 * self.minutes - now) / left


# The table ----------------------------------------------------------------------------------------


def spread(estimate: dict | None) -> str:
    """Return an estimate with its interval as text."""
    if estimate is None:
        return "–"
    low, high = estimate["interval"]
    return f"{estimate['value']:.2f} ({low:.2f}–{high:.2f})"


def show(console: Console, row: dict) -> None:
    """Print the table of a setting: decoders without a drafter first, then every drafter."""
    load = row["state"]["start"]["load_average"]
    title = f"{row['dtype']} {row['domain']} T={row['temperature']:g}, {row['turns']} turns"
    table = Table(
        title=title,
        title_justify="left",
        caption=f"T(1) {1e3 * row['target_seconds']['rounds']:.2f} ms; the best plain decoder is"
        f" {row['best_plain']}" + (f"; load average {load[0]:.1f}" if load else ""),
    )
    for name in (
        "",
        "tokens/s",
        "speedup",
        "over the best plain",
        "α",
        "τ",
        "c alone / loop",
        "v in rounds / alone",
        "o",
        "plain / corrected",
        "first, p50 / p95 [ms]",
    ):
        table.add_column(name, justify="right" if name else "left", no_wrap=not name)
    entries = {row["drafter"]: row} | row["drafters"]
    for name, rate in row["tokens_per_second"].items():
        cells = drafter_cells(entries[name]) if name in entries else [""] * 8
        times = [1e3 * row["latency"][name][part] for part in ("first", "p50", "p95")]
        table.add_row(name, f"{rate:.0f}", *cells, "{:.0f}, {:.1f} / {:.1f}".format(*times))
    console.print(table)
    for name, estimate in row.items():
        if name.startswith("over_hf"):
            console.print(f"{name}: {spread(estimate)}")


def drafter_cells(entry: dict) -> list[str]:
    """Return the table cells of a drafter; a flag replaces the speedup with its reason."""
    guess = entry["prediction"]
    formulas = [guess["plain"], guess["corrected"]]
    reasons = "; ".join(entry["flags"])
    return [
        reasons or spread(entry["speedup"]),
        "–" if reasons else spread(entry["over_best_plain"]),
        spread(entry["alpha"]),
        spread(entry["tau"]),
        f"{guess['c']:.3f} / {guess['c_in_loop']:.3f}",
        f"{guess['verify']:.2f} / {guess['verify_alone']:.2f}",
        f"{guess['overhead']:.2f}",
        " / ".join("–" if value is None else f"{value:.2f}" for value in formulas),
    ]


# The experiments ----------------------------------------------------------------------------------


class Speed(Experiment):
    """The shipped pair with every drafter; the parts are the settings and the growth of costs."""

    name = "speed"
    what = "every shipped drafter beside plain decoding, and Hugging Face on the same weights"
    time = "1 hour"
    quick = (
        "--prompts 2 --turns 2 --least 1 --gammas 2 --new-tokens 6 --minutes 0.2"
        " --drafters speculative medusa_chain"
    ).split()
    unrelated = ("minutes",)
    threads = 1
    drafters = speed.DRAFTERS
    defaults: dict = {}
    last_part = "growth"

    @classmethod
    def add_options(cls, parser):
        parser.add_argument(
            "--drafters", nargs="+", help="names of drafters; default: all; the first one leads"
        )
        parser.add_argument("--domains", nargs="+", help="kinds of text; default: all")
        parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
        parser.add_argument(
            "--gammas",
            type=int,
            nargs="+",
            default=[4, 2, 8],
            help="draft lengths; the first one leads",
        )
        parser.add_argument("--prompts", type=int, default=10, help="prompts per domain")
        parser.add_argument("--new-tokens", type=int, default=96)
        parser.add_argument("--turns", type=int, default=30, help="paired turns per setting")
        parser.add_argument(
            "--minutes", type=float, help="time for all settings; take fewer turns if needed"
        )
        parser.add_argument(
            "--least", type=int, default=20, help="fewest turns per setting under --minutes"
        )
        parser.add_argument(
            "--dtypes", nargs="+", default=["float32", "bfloat16"], choices=("float32", "bfloat16")
        )
        parser.add_argument("--device", default="cpu", help="device of everything that is timed")
        parser.set_defaults(**cls.defaults)

    def __init__(self, options: argparse.Namespace):
        super().__init__(options)
        self.shares = Shares(options.minutes)

    def make(self) -> Bench:
        """Return the bench of all kinds of text."""
        return shipped(self.options)

    @cached_property
    def bench(self) -> Bench:
        """The bench of the kinds of text that the options name."""
        bench = self.make()
        kinds = self.options.domains or list(bench.prompts)
        if unknown := [name for name in kinds if name not in bench.prompts]:
            raise ValueError(f"--domains {unknown[0]}: must be among {', '.join(bench.prompts)}")
        return replace(bench, prompts={name: bench.prompts[name] for name in kinds})

    @cached_property
    def settings(self) -> dict[str, speed.Setting]:
        """The settings by the names of their parts."""
        return {str(setting): setting for setting in self.bench.settings}

    def check(self):
        options = self.options
        for name, least in LEAST.items():
            if getattr(options, name) < least:
                option = f"--{name.replace('_', '-')}"
                raise ValueError(f"{option} {getattr(options, name)}: must be at least {least}")
        if min(options.gammas) < 1 or len({*options.gammas}) < len(options.gammas):
            raise ValueError(f"--gammas {options.gammas}: must be different whole numbers ≥ 1")
        if options.new_tokens < max(options.gammas) + 2:
            raise ValueError(
                f"--new-tokens {options.new_tokens}: must be at least {max(options.gammas) + 2}, two"
                " rounds of the longest draft"
            )
        if unknown := [name for name in options.drafters or () if name not in self.drafters]:
            raise ValueError(f"--drafters {unknown[0]}: must be among {', '.join(self.drafters)}")
        if min(options.temperatures) < 0:
            raise ValueError(f"--temperatures {options.temperatures}: must be ≥ 0")
        if options.minutes is not None and not options.minutes > 0:
            raise ValueError(f"--minutes {options.minutes}: must be above 0")

    def parts(self):
        logging.set_verbosity_error()
        return [*self.settings, self.last_part]

    def run(self, part):
        if part == self.last_part:
            return self.costs()
        left = sum(name not in self.rows for name in self.settings)
        return measure(self.bench, self.settings[part], self.shares.deadline(left))

    def costs(self) -> dict | list[dict]:
        """Return the costs of a pass and of a token by context length."""
        prompt = next(iter(self.bench.prompts.values()))[0]
        return cost_by_context(self.bench.pair(self.bench.dtypes[0]).target, prompt)

    def summarise(self, rows):
        bench = self.bench
        measured = [rows[part] for part in self.settings]
        console = Console(width=200)
        for row in measured:
            show(console, row)
        return {
            "profile": timing.machine_profile(self.options.device),
            "platform": platform.platform(terse=True),
            "state": {"start": measured[0]["state"]["start"], "end": measured[-1]["state"]["end"]},
            "gamma": bench.gammas[0],
            "gammas": list(bench.gammas),
            "new_tokens": bench.new_tokens,
            "prompts_per_domain": min(map(len, bench.prompts.values())),
            "turns": min(row["turns"] for row in measured),
            "least_turns": bench.least,
            "repeats": min(row["sweeps"] for row in measured),
            "packed": {dtype: is_packed(bench.pair(dtype).target.model) for dtype in bench.dtypes},
            "note": (
                "tokens over seconds of the rounds, without either prefill; dtype bfloat16: the"
                " target in bfloat16 and, on a CPU, the draft in float32; costs are in units of"
                " T(1), the median pass of the plain rounds that took turns; verify is of the same"
                " rounds, verify_alone of passes over the drafter's own tree, timed alone"
            ),
            "rows": measured,
            self.last_part: rows[self.last_part],
        }

    def restore(self, data):
        name = lambda row: f"{row['dtype']} {row['domain']} T={row['temperature']:g}"
        return {name(row): row for row in data["rows"]} | {self.last_part: data[self.last_part]}
