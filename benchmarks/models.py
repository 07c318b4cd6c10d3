"""Measure what the book's two models cost and how often the shipped pair's draft is right.

    python -m benchmarks run book-models         # a quarter of an hour

The numbers are T(k) of the shipped target and of SmolLM2 in float32 and bfloat16, which chapters read
with `specdec_book.recordings.models`, and this machine's bandwidth. For the pair they include α, τ, c
and the speedup at every draft length, from paired turns (`speed`).
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch

from specdec_lite import CausalLM, load_pair, load_smollm2, timing
from specdec_lite.texts.corpus import evaluation_prompts

from . import speed
from .experiment import Experiment
from .passes import CONTEXT, KS, pass_rows

GAMMAS = (1, 2, 3, 4, 5, 6, 8, 10)


def shipped_target(dtype: str) -> CausalLM:
    """Return the shipped target in a dtype."""
    return load_pair(device="cpu", dtype=dtype).target


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        bench: Settings of the pair.
        targets: Functions from a dtype's name to a model, by model.
        dtypes: PyTorch's names of the dtypes for T(k).
        ks: Tokens per pass.
        context: Context length in tokens.
        budget: Seconds for T(k) of one model in one dtype.
    """

    bench: speed.Bench
    targets: dict[str, Callable[[str], CausalLM]] = field(
        default_factory=lambda: {
            "pair": shipped_target,
            "smollm2": lambda dtype: load_smollm2("cpu", dtype)[0],
        }
    )
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    ks: tuple[int, ...] = KS
    context: int = CONTEXT
    budget: float = 30.0


def the_books_models(options: argparse.Namespace) -> Plan:
    """Return the plan: the shipped pair in float32 on code and prose, and both targets."""
    pair = load_pair(device="cpu", dtype="float32")
    texts = evaluation_prompts()
    prompts = {
        domain: [
            torch.tensor(pair.tokenizer.encode(item["text"]))
            for item in texts[domain][: options.prompts]
        ]
        for domain in ("code", "prose")
    }
    bench = speed.Bench(
        load=lambda dtype: pair,
        prompts=prompts,
        gammas=GAMMAS,
        dtypes=("float32",),
        new_tokens=options.new_tokens,
        turns=options.turns,
        least=options.turns,
        drafters={"speculative": speed.DRAFTERS["speculative"]},
    )
    return Plan(bench, budget=options.budget)


def drafting_row(row: dict) -> dict:
    """Return the numbers of a setting of the pair by γ."""
    entries = {row["gamma"]: row} | {e["gamma"]: e for e in row["drafters"].values()}
    gammas = {}
    for gamma, entry in sorted(entries.items()):
        parts = {name: entry["prediction"][name] for name in ("c", "c_in_loop", "verify")}
        parts["overhead"] = entry["prediction"]["overhead"]
        values = {n: entry[n] for n in ("speedup", "ceiling", "flags", "alpha", "tau")}
        gammas[str(gamma)] = values | parts
    about = {name: row[name] for name in ("domain", "temperature", "turns", "dtype")}
    return about | {"target_seconds": row["target_seconds"]["rounds"], "gammas": gammas}


class BookModels(Experiment):
    """The parts are the settings of the pair, and T(k) of each model in each format."""

    name = "book-models"
    what = "T(k) of the book's two models, and the shipped pair at every draft length"
    time = "15 minutes"
    quick = "--turns 2 --prompts 2 --new-tokens 12 --budget 1".split()

    @classmethod
    def add_options(cls, parser):
        parser.add_argument(
            "--turns", type=int, default=20, help="paired turns per setting, at least 2"
        )
        parser.add_argument("--prompts", type=int, default=10, help="prompts per domain")
        parser.add_argument("--new-tokens", type=int, default=96)
        parser.add_argument(
            "--budget", type=float, default=30.0, help="seconds for T(k) of one model in one format"
        )

    def make(self) -> Plan:
        """Return the plan."""
        return the_books_models(self.options)

    def check(self):
        self.check_least(turns=2, prompts=2, new_tokens=max(GAMMAS) + 2)

    @cached_property
    def plan(self) -> Plan:
        """The plan of this run."""
        return self.make()

    @cached_property
    def passes(self) -> dict[str, tuple[str, str]]:
        """Model and format by the name of the part."""
        plan = self.plan
        return {f"T(k) {n} {dtype}": (n, dtype) for n in plan.targets for dtype in plan.dtypes}

    @cached_property
    def settings(self) -> dict[str, speed.Setting]:
        """The settings of the pair by the names of their parts."""
        return {str(setting): setting for setting in self.plan.bench.settings}

    def parts(self):
        return [*self.settings, *self.passes]

    def run(self, part):
        plan = self.plan
        assert self.state
        if part in self.settings:
            return drafting_row(speed.measure(plan.bench, self.settings[part], math.inf))
        model, dtype = self.passes[part]
        models = {model: plan.targets[model]}
        (row,) = pass_rows(models, (dtype,), plan.ks, plan.context, plan.budget)
        return row

    def summarise(self, rows):
        return {
            "profile": timing.machine_profile("cpu"),
            "context": self.plan.context,
            "drafting": [rows[part] for part in self.settings],
            "passes": [rows[part] for part in self.passes],
            "state": {"start": self.state, "end": timing.machine_state()},
        }

    def restore(self, data):
        names = [f"T(k) {row['model']} {row['dtype']}" for row in data["passes"]]
        settings = {
            str(speed.Setting(row["dtype"], row["domain"], row["temperature"])): row
            for row in data["drafting"]
        }
        return settings | dict(zip(names, data["passes"]))
