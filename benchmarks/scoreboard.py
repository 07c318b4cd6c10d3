"""Measure every drafter and every rule of the library on the same prompts, in one table.

    python -m benchmarks run scoreboard                              # the shipped pair, half an hour
    python -m benchmarks run scoreboard-smollm2 --minutes 60
    python -m benchmarks run scoreboard --methods Sequoia SpecExec   # some rows
    python -m benchmarks run scoreboard --add --methods Hydra        # add rows to the recording

This module contains the columns and the order of measurement. `methods` contains the rows, `plain`
the other plain decoders, and `speed` the turns. On a shared machine, `--clock cpu` counts the
processor seconds of this process instead of wall-clock seconds; the process must then have one
thread.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache, cached_property, partial
from statistics import median
from time import perf_counter, process_time
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from specdec_lite import TokenTree, generate, load_pair, load_smollm2, speculation, theory, timing
from specdec_lite.acceptance.protocol import RuleFunction
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure import stamps
from specdec_lite.measure.intervals import ratio
from specdec_lite.proposal import Proposal, one_hot
from specdec_lite.sampling import Sampling
from specdec_lite.speculation import Step
from specdec_lite.texts import pair_tasks
from specdec_lite.texts.smollm2_tasks import TASKS, chat

from . import hugging_face, plain
from .decoding import Shares
from .experiment import Experiment
from .methods import METHODS, Method, describe
from .named import NAMED
from .smollm2 import STOP
from .speed import Bench, Contender, Setting, Turns, contenders, drafted_limits, take_turns

GAMMA = 4
LENGTHS = [1, 2, 4, 8]
SWEPT = ("draft model", "EAGLE-1, a chain", "early exit", "prompt lookup", "n-gram model")
"""Methods that are also measured at several draft lengths."""
CLOCKS = {"wall": perf_counter, "cpu": process_time}
DISTURBED = 1.2
ATTEMPTS = 3
SAME = ("gamma", "new_tokens", "prompts_per_kind", "threads", "clock")
"""Settings in which added rows must agree with the existing recording, besides the machine."""


# Models and prompts -------------------------------------------------------------------------------


@cache
def load_models(model: str) -> Pair:
    """Return the models in float32 on the CPU; SmolLM2 is a pair without a draft.

    Args:
        model: "pair" or "smollm2".
    """
    if model == "pair":
        return load_pair(device="cpu", dtype="float32")
    target, tokenizer = load_smollm2("cpu", "float32")
    return Pair(target, None, tokenizer)


def texts(model: str, count: int) -> dict[str, list[list[int]]]:
    """Return prompts of six kinds as token ids; no training text contains them.

    Args:
        model: "pair" or "smollm2".
        count: Most prompts per kind.
    """
    tokenizer = load_models(model).tokenizer
    if model == "smollm2":
        return {kind: [chat(tokenizer, t.text) for t in TASKS[kind][:count]] for kind in TASKS}
    settings = pair_tasks.tasks()
    return {
        kind: [tokenizer.encode(text) for text in rows[:count]] for kind, rows in settings.items()
    }


def make_bench(options: argparse.Namespace, methods: dict[str, Method], **more) -> Bench:
    """Return the bench of some methods.

    Args:
        options: Options of the command line.
        methods: Methods by name.
        more: Fields of the bench that differ.
    """
    settings = {
        "load": lambda dtype: load_models(options.model),
        "prompts": {
            kind: [torch.tensor(ids) for ids in rows]
            for kind, rows in texts(options.model, options.prompts).items()
        },
        "gammas": (GAMMA,),
        "dtypes": ("float32",),
        "temperatures": options.temperatures,
        "new_tokens": options.new_tokens,
        "turns": options.turns,
        "least": options.prompts,
        "stops": (STOP,) if options.model == "smollm2" else (),
        "drafters": {name: method.make for name, method in methods.items()},
        "rules": {name: method.rule for name, method in methods.items() if method.rule},
    }
    return Bench(**settings | more)


# One setting --------------------------------------------------------------------------------------


def measure(
    bench: Bench, setting: Setting, deadline: float, plains: Callable[[float], dict[str, Contender]]
) -> dict:
    """Measure the columns of every contender on one kind of text at one temperature.

    All columns are divided by plain decoding, so a setting whose plain decoding was disturbed is
    measured again.

    Args:
        bench: What is measured.
        setting: Dtype, kind of text and temperature.
        deadline: Value of `perf_counter` after which no optional sweep starts.
        plains: Function from the temperature to the other plain decoders, by name.
    """
    prompts = bench.prompts[setting.domain]
    every = contenders(bench, setting)
    others = plains(setting.temperature)
    target = bench.pair(setting.dtype).target
    for each in every.values():  # warm up
        options = {"temperature": setting.temperature, "rule": each.rule, "seed": 0}
        generate(target, prompts[0][-8:], each.drafter, 4, **options)
    for each in others.values():
        each.run(prompts[0], 0)
    for attempt in range(ATTEMPTS):
        runs = take_turns(every | others, prompts, bench, deadline)
        columns = Columns(runs, ("plain", *others))
        if columns.disturbed <= DISTURBED:
            break
    drafters = {name: contender for name, contender in every.items() if contender.drafter}
    return asdict(setting) | {
        "turns": sum(map(len, columns.runs["plain"])),
        "attempts": attempt + 1,
        "plain": columns.plain(),
        "methods": {name: columns.entry(name, each) for name, each in drafters.items()},
    }


class Columns:
    """The columns that follow from the runs of a setting.

    Args:
        runs: Runs of each contender.
        plains: Names of the runs without a draft; "plain" is the library's own loop.
    """

    def __init__(self, runs: Turns, plains: Sequence[str]):
        self.runs = runs
        self.one = median(step.verifying for step in self.steps("plain"))
        self.rates = {name: 1 / float(np.mean(self.pace(name))) for name in plains}
        self.best = max(self.rates, key=self.rates.get)

    def steps(self, name: str) -> list[Step]:
        """Return the steps of all runs of a contender."""
        return [step for row in self.runs[name] for run in row for step in run.steps]

    def sums(self, name: str, get: Callable[[Step], float]) -> list[list[float]]:
        """Return the sum over the steps of each run [prompts, sweeps].

        Args:
            name: Name of the contender.
            get: Function from a step to a number.
        """
        return [[sum(map(get, run.steps)) for run in row] for row in self.runs[name]]

    def pace(self, name: str) -> list[list[float]]:
        """Return the seconds per token [prompts, sweeps]."""
        return [[run.seconds / run.tokens for run in row] for row in self.runs[name]]

    def texts(self, name: str) -> list[list[int]]:
        """Return the tokens of every run."""
        return [
            [token for step in run.steps for token in step.tokens]
            for row in self.runs[name]
            for run in row
        ]

    @property
    def disturbed(self) -> float:
        """Seconds per token of plain decoding, divided by those of its median round."""
        return float(np.mean(self.pace("plain"))) / median(s.seconds for s in self.steps("plain"))

    def plain(self) -> dict:
        """Return the speeds of the plain decoders."""
        costs = timing.round_costs(self.steps("plain"), self.one)
        return {
            "seconds": self.one,
            "round": costs.total,
            "tokens_per_second": self.rates,
            "best": self.best,
        }

    def entry(self, name: str, contender: Contender) -> dict:
        """Return the columns of a method.

        - tau: emitted tokens ÷ target passes. alpha: accepted ÷ tested. drafted: accepted ÷
        drafted.

        - positions: share of drafting rounds that accepted at least this many levels. conditional:
        the same share among rounds that accepted all earlier levels and drafted this level.

        - empty: share of rounds without a draft. used: emitted ÷ verified.

        - c, verify, overhead: cost of a drafted level, of the pass and of the rest of a round, in
        T(1).

        - speedup: over the loop's own plain decoding. over_best: over the fastest plain decoder.

        - formula: a chain's speedup predicted from α, c and its draft lengths. from_costs: τ
        divided by the cost of a round.

        - same: share of runs whose text equals plain decoding's.

        Args:
            name: Name of the contender.
            contender: The contender.
        """
        steps = self.steps(name)
        shape = contender.drafter.limits() or drafted_limits(steps)
        costs = timing.round_costs(steps, self.one)
        plain = timing.round_costs(self.steps("plain"), self.one).total
        accepted = self.sums(name, lambda step: step.accepted)
        emitted = self.sums(name, lambda step: len(step.tokens))
        tau = ratio(emitted, self.sums(name, lambda step: 1))
        alpha = ratio(accepted, self.sums(name, lambda step: step.tested))
        is_chain = contender.rule is None and all(step.tree.is_chain for step in steps)
        depths = [depth_of(step) for step in steps]
        has_formula = is_chain and alpha["value"] is not None
        texts = list(zip(self.texts(name), self.texts("plain")))
        pace = self.pace(name)
        return {
            "name": contender.name,
            "gamma": contender.gamma,
            "levels": shape.levels,
            "nodes": shape.nodes,
            "tau": tau,
            "alpha": alpha,
            "drafted": ratio(accepted, self.sums(name, lambda step: step.drafted))["value"],
            **by_position(steps, min(shape.levels, 8)),
            "empty": depths.count(0) / len(steps),
            "used": ratio(emitted, self.sums(name, lambda step: len(step.tree) + 1))["value"],
            "c": costs.draft * len(steps) / max(1, sum(depths)),
            "verify": costs.verify,
            "overhead": costs.other,
            "tokens_per_second": 1 / float(np.mean(pace)),
            "speedup": ratio(self.pace("plain"), pace),
            "over_best": ratio(self.pace(self.best), pace),
            "formula": predicted(alpha["value"], depths, costs.draft) if has_formula else None,
            "from_costs": tau["value"] * plain / costs.total,
            "same": sum(one == other for one, other in texts) / len(texts),
        }


def depth_of(step: Step) -> int:
    """Return the number of levels that a round drafted."""
    return int(step.tree.depth.max()) + 1 if len(step.tree) else 0


def by_position(steps: Sequence[Step], levels: int) -> dict[str, list[float | None]]:
    """Return acceptance by level, over all drafting rounds and conditional on earlier levels.

    An entry is None if no round reached the level.

    Args:
        steps: Rounds.
        levels: Number of levels.
    """
    rounds = [(step.accepted, depth_of(step)) for step in steps if len(step.tree)]
    reached = [sum(accepted >= level for accepted, _ in rounds) for level in range(1, levels + 1)]
    tried = [
        sum(accepted >= level - 1 and depth >= level for accepted, depth in rounds)
        for level in range(1, levels + 1)
    ]
    return {
        "positions": [count / max(1, len(rounds)) for count in reached],
        "conditional": [count / total if total else None for count, total in zip(reached, tried)],
    }


def predicted(alpha: float, lengths: Sequence[int], draft: float) -> float:
    """Return the formula's speedup of a chain, if a target pass costs 1.

    Args:
        alpha: Acceptance rate.
        lengths: Draft length of each round.
        draft: Drafting cost of a round, in units of T(1).
    """
    tokens = [theory.expected_tokens(alpha, length) if length else 1.0 for length in lengths]
    return sum(tokens) / len(tokens) / (1 + draft)


# Drift --------------------------------------------------------------------------------------------


class FixedCoin:
    """A random number generator with a fixed coin, which stores the row it would draw from.

    Args:
        side: Result of every flip.
    """

    def __init__(self, side: bool):
        self.side = side
        self.prob: float | None = None
        self.row: Tensor | None = None

    def flip(self, prob: float) -> bool:
        """Store the probability and return the fixed side."""
        self.prob = min(1.0, prob)
        return self.side

    def draw(self, row: Tensor) -> int:
        """Store the row and return token 0."""
        self.row = row
        return 0


def first_token_distribution(p: Tensor, q: Tensor, rule: RuleFunction, mass: float = 1.0) -> Tensor:
    """Return the distribution [V] of the first token that a rule emits after one draft from q.

    This is `acceptance.output_distribution` for large vocabularies. The rule may flip at most once
    per token and draw after that.

    Args:
        p: Target's distribution [V].
        q: Draft's distribution [V].
        rule: Acceptance rule.
        mass: Probability under q of the drafted tokens to consider, most likely first. The rest is
            left out, and the result is renormalized.
    """
    probs = torch.zeros_like(p)
    order = q.argsort(descending=True)
    count = int((q[order].cumsum(0) < mass - 1e-9).sum()) + 1
    rows = torch.stack([p, p])
    for token in (x for x in order[:count].tolist() if q[x] > 0):
        proposal = Proposal(TokenTree.chain([token]), q[None])
        accepting = FixedCoin(True)
        path = rule(proposal, rows, accepting).path
        share = (accepting.prob if accepting.prob is not None else 1.0) if path else 0.0
        probs[token] += q[token] * share
        if share < 1:
            rejecting = FixedCoin(False)
            verdict = rule(proposal, rows, rejecting)
            rest = one_hot(verdict.token, p) if rejecting.row is None else rejecting.row
            probs += q[token] * (1 - share) * rest
    return probs / probs.sum()


def drift(
    pair: Pair, rule: RuleFunction, prompts: list[Tensor], positions: int, mass: float
) -> dict:
    """Measure the total variation between the target's distribution and a rule's first token.

    The draft model drafts one token.

    Args:
        pair: Target and draft.
        rule: Acceptance rule.
        prompts: Prompts as token ids.
        positions: Number of positions per prompt.
        mass: See `first_token_distribution`.
    """
    sampling = Sampling(1.0)
    distances = []
    for ids in prompts:
        rows = [
            sampling(model.score(ids, model.new_cache(capacity=len(ids))).logits[0]).double()
            for model in (pair.target, pair.draft)
        ]
        for position in torch.linspace(16, len(ids) - 1, positions).long().tolist():
            p, q = (row[position] for row in rows)
            probs = first_token_distribution(p, q, rule, mass)
            distances.append(0.5 * (probs - p).abs().sum().item())
    return {
        "mean": sum(distances) / len(distances),
        "most": max(distances),
        "places": len(distances),
    }


@torch.inference_mode()
def drifts(
    bench: Bench, methods: dict[str, Method], positions: int = 2, mass: float = 0.999
) -> dict:
    """Return {method: drift} of the lossy rules that verify a chain of the draft model.

    Args:
        bench: Models and prompts.
        methods: Methods by name.
        positions: Number of positions per prompt.
        mass: See `first_token_distribution`.
    """
    pair = bench.pair("float32")
    prompts = [rows[0] for rows in bench.prompts.values()]
    return {
        name: drift(pair, method.rule, prompts, positions, mass)
        for name, method in methods.items()
        if not method.lossless and name.startswith("draft model ×")
    }


# The recording ------------------------------------------------------------------------------------


def round_numbers(data):
    """Return the data with numbers rounded to four digits, because further digits are noise."""
    if isinstance(data, dict):
        return {key: round_numbers(value) for key, value in data.items()}
    if isinstance(data, list):
        return [round_numbers(value) for value in data]
    return float(f"{data:.4g}") if isinstance(data, float) else data


def describe_run(methods: dict[str, Method], options: argparse.Namespace) -> dict:
    """Return the part of the recording that needs no measurement.

    Args:
        methods: Rows by name.
        options: Options of the command line.
    """
    absent = {name: each.why_not(options.model) for name, each in METHODS.items()}
    return {
        "model": options.model,
        "clock": options.clock,
        "threads": torch.get_num_threads(),
        "gamma": GAMMA,
        "new_tokens": options.new_tokens,
        "prompts_per_kind": options.prompts,
        "lengths": [],
        "methods": {
            name: describe(each, load_models(options.model), options.model, GAMMA)
            for name, each in methods.items()
        },
        "absent": {name: why for name, why in absent.items() if why},
        "named": NAMED,
    }


def merge_recordings(old: dict, new: dict, stamp: dict) -> dict:
    """Add the rows of a new recording to an old one, replacing rows of the same name.

    Each row retains its own plain decoding.

    Args:
        old: Existing recording.
        new: Recording with the rows to add.
        stamp: Stamp of the new recording.

    Raises:
        ValueError: If the two recordings have different settings.
    """
    for name in SAME:
        if old[name] != new[name]:
            raise ValueError(f"{name} is {new[name]}: must be {old[name]}, as in the recording")
    for name in ("machine", "versions"):
        if old[name] != stamp[name]:
            raise ValueError(f"{name} is {stamp[name]}: must be {old[name]}, as in the recording")
    key = lambda row: (row["domain"], row["temperature"])
    rows = {key(row): row for row in new["rows"]}
    if missing := set(rows) - set(map(key, old["rows"])):
        raise ValueError(f"{sorted(missing)[0]} is not a setting of the recording")
    added = {"date": stamp["date"], "command": stamp["command"], "methods": list(new["methods"])}
    return old | {
        "rows": [
            row | {"methods": row["methods"] | rows.get(key(row), {"methods": {}})["methods"]}
            for row in old["rows"]
        ],
        "methods": old["methods"] | new["methods"],
        "drift": old.get("drift", {}) | new.get("drift", {}),
        "absent": new["absent"],
        "named": new["named"],
        "added": [*old.get("added", []), added],
    }


DRIFT = "drift"


class Scoreboard(Experiment):
    """The parts are the settings, some chains at several lengths, and the drift of lossy rules."""

    name = "scoreboard"
    what = "every drafter and every rule beside plain decoding, by kind of text and temperature"
    time = "30 minutes"
    quick = (
        "--methods",
        "draft model",
        "prompt lookup",
        "draft model × lenient(0.6)",
        *"--prompts 2 --turns 2 --new-tokens 10 --lengths 1 --minutes 0.3".split(),
    )
    unrelated = ("minutes",)
    model = "pair"

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--methods", nargs="+", help="names of rows; default: all")
        parser.add_argument("--add", action="store_true", help="add rows to the recording")
        parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
        parser.add_argument(
            "--lengths",
            type=int,
            nargs="*",
            default=LENGTHS,
            help="draft lengths of some chains; none: no sweep",
        )
        parser.add_argument("--prompts", type=int, default=6, help="prompts per kind, at least 2")
        parser.add_argument("--new-tokens", type=int, default=48)
        parser.add_argument("--turns", type=int, default=20, help="paired turns per setting")
        parser.add_argument(
            "--minutes",
            type=float,
            help="time for all settings; each takes at least one turn per prompt",
        )
        parser.add_argument("--clock", choices=CLOCKS, default="wall")
        parser.set_defaults(model=cls.model)

    def check(self):
        options = self.options
        for name, least in (("prompts", 2), ("new_tokens", 2 * GAMMA + 2), ("turns", 1)):
            if getattr(options, name) < least:
                raise ValueError(f"--{name.replace('_', '-')}: must be at least {least}")
        if options.lengths and min(options.lengths) < 1:
            raise ValueError(f"--lengths {options.lengths}: must be whole numbers ≥ 1")
        if min(options.temperatures) < 0:
            raise ValueError(f"--temperatures {options.temperatures}: must be ≥ 0")
        if options.minutes is not None and not options.minutes > 0:
            raise ValueError(f"--minutes {options.minutes}: must be above 0")
        if options.clock == "cpu" and torch.get_num_threads() > 1:
            raise ValueError("--clock cpu: adds the seconds of all threads; set OMP_NUM_THREADS=1")
        available = [name for name, each in METHODS.items() if not each.why_not(self.model)]
        if unknown := [name for name in options.methods or () if name not in available]:
            raise ValueError(f"--methods {unknown[0]!r}: must be among {', '.join(available)}")
        if options.add and not options.methods:
            raise ValueError("--add: needs --methods, the rows to add")
        if options.add and not self.path.is_file():
            raise ValueError(f"--add: {self.path} does not exist yet")

    @cached_property
    def methods(self) -> dict[str, Method]:
        """The rows to measure."""
        return {
            name: each
            for name, each in METHODS.items()
            if not each.why_not(self.model)
            and (not self.options.methods or name in self.options.methods)
        }

    @cached_property
    def bench(self) -> Bench:
        """All rows in every setting."""
        return make_bench(self.options, self.methods)

    @cached_property
    def sweep(self) -> Bench | None:
        """The chains that are measured at several lengths; None if there is no sweep."""
        options = self.options
        swept = {name: self.methods[name] for name in SWEPT if name in self.methods}
        if not swept or not options.lengths or options.add:
            return None
        return make_bench(options, swept, gammas=options.lengths, temperatures=(1.0,))

    @cached_property
    def shares(self) -> dict[str, Shares]:
        """The time of the settings and of the sweep."""
        minutes = self.options.minutes
        if not minutes or self.sweep is None:
            return {"rows": Shares(minutes), "lengths": Shares(None)}
        return {"rows": Shares(0.8 * minutes), "lengths": Shares(0.2 * minutes)}

    @cached_property
    def settings(self) -> dict[str, dict]:
        """The settings by the names of their parts, apart for rows and lengths."""
        sweep = self.sweep.settings if self.sweep else []
        return {
            "rows": {str(setting): setting for setting in self.bench.settings},
            "lengths": {f"lengths: {setting}": setting for setting in sweep},
        }

    @cached_property
    def state(self) -> dict:
        """The state of the machine when the run starts."""
        return timing.machine_state()

    def parts(self):
        logging.set_verbosity_error()
        drift = [DRIFT] if self.model == "pair" else []
        return [*self.settings["rows"], *self.settings["lengths"], *drift]

    def run(self, part):
        assert self.state
        if part == DRIFT:
            return drifts(self.bench, self.methods)
        kind = "rows" if part in self.settings["rows"] else "lengths"
        bench = self.bench if kind == "rows" else self.sweep
        left = sum(name not in self.rows for name in self.settings[kind])
        others = partial(
            plain.others, self.model, self.options.new_tokens, stops=tuple(self.bench.stops)
        )
        clock = CLOCKS[self.options.clock]
        with (
            mock.patch.object(speculation, "perf_counter", clock),
            mock.patch.object(hugging_face, "perf_counter", clock),
        ):
            return measure(
                bench,
                self.settings[kind][part],
                self.shares[kind].deadline(left),
                plains=others if kind == "rows" else lambda temperature: {},
            )

    def summarise(self, rows):
        record = describe_run(self.methods, self.options)
        for kind, settings in self.settings.items():
            record[kind] = [rows[part] for part in settings]
        if DRIFT in rows:
            record[DRIFT] = rows[DRIFT]
        record["state"] = {"start": self.state, "end": timing.machine_state()}
        return round_numbers(record)

    def merge(self, stamp, data):
        if not self.options.add:
            return stamp, data
        old = json.loads(self.path.read_text(encoding="utf-8"))
        merged = merge_recordings(old, data, stamp)
        return {name: merged.pop(name) for name in stamps.STAMP}, merged

    def restore(self, data):
        return {}  # rounded, and with the rows of other runs


class ScoreboardSmolLM2(Scoreboard):
    """The same for SmolLM2."""

    name = "scoreboard-smollm2"
    time = "1 hour"
    quick = (
        "--methods",
        "prompt lookup",
        *"--prompts 2 --turns 2 --new-tokens 10 --lengths --temperatures 0 --minutes 0.1".split(),
    )
    model = "smollm2"
