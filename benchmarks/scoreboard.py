"""One table of everything: every drafter and every rule of the library on the same prompts, in one
loop, beside plain decoding.

    python -m benchmarks.scoreboard                              # the shipped pair, half an hour
    python -m benchmarks.scoreboard --model smollm2 --minutes 60
    python -m benchmarks.scoreboard --methods Sequoia SpecExec   # some rows
    python -m benchmarks.scoreboard --add --methods Hydra        # rows into the table that is there

It writes results/scoreboard.json (with SmolLM2 results/scoreboard-smollm2.json). A setting is kept
as soon as it is done, so the same command goes on where an interrupted one stopped.

What lives here: the columns, and the order in which they are measured. What does not: the rows
(`methods`), the other plain decoders (`plain`), and how turns are taken (`speed`). On a machine
that others use too, `--clock cpu` counts the processor's seconds of this process, which must have
one thread, in place of the wall's.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from specdec_lite import (
    TokenTree,
    generate,
    load_pair,
    load_smollm2,
    results,
    speculation,
    theory,
    timing,
)
from specdec_lite.acceptance.rule import RuleFunction
from specdec_lite.loading import pair_tasks
from specdec_lite.loading.pairs import Pair
from specdec_lite.loading.smollm2_tasks import TASKS, chat
from specdec_lite.measure.intervals import ratio
from specdec_lite.proposal import Proposal, one_hot
from specdec_lite.sampling import Sampling
from specdec_lite.speculation import Step

from . import hugging_face, plain
from .__main__ import Kept, every_setting
from .command import parser_for, typed
from .methods import METHODS, Method, bytes_beside
from .named import NAMED
from .smollm2 import STOP
from .speed import Bench, Contender, Setting, Turns, contenders, drafted_shape, take_turns

GAMMA = 4
LENGTHS = [1, 2, 4, 8]
SWEPT = ("draft model", "EAGLE-1, a chain", "early exit", "prompt lookup", "n-gram model")
"""What is measured at several draft lengths too."""
CLOCKS = {"wall": perf_counter, "cpu": process_time}
DISTURBED = 1.2
ATTEMPTS = 3
SAME = ("gamma", "new_tokens", "prompts_per_kind", "threads", "clock")
"""What rows must have in common with the recording they are added to, its machine aside."""


# What is measured -----------------------------------------------------------------------------------


@cache
def loaded(model: str) -> Pair:
    """In float32 on the CPU; SmolLM2 as a pair without a draft."""
    if model == "pair":
        return load_pair(device="cpu", dtype="float32")
    target, tokenizer = load_smollm2("cpu", "float32")
    return Pair(target, None, tokenizer)


def texts(model: str, count: int) -> dict[str, list[list[int]]]:
    """Prompts of six kinds, none of which any training text contains."""
    tokenizer = loaded(model).tokenizer
    if model == "smollm2":
        return {kind: [chat(tokenizer, t.text) for t in TASKS[kind][:count]] for kind in TASKS}
    asked = pair_tasks.tasks()
    return {kind: [tokenizer.encode(text) for text in rows[:count]] for kind, rows in asked.items()}


def made(options: argparse.Namespace, methods: dict[str, Method], **more) -> Bench:
    asked = {
        "load": lambda dtype: loaded(options.model),
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
    return Bench(**asked | more)


# One setting ----------------------------------------------------------------------------------------


def measure(
    bench: Bench, setting: Setting, deadline: float, plains: Callable[[float], dict[str, Contender]]
) -> dict:
    """Every contender's columns on one kind of text at one temperature. A setting whose plain
    decoding was disturbed, by which all others are divided, is measured again.

    plains: temperature → the other plain decoders by name, which take turns with the rest.
    """
    prompts = bench.prompts[setting.domain]
    every = contenders(bench, setting)
    others = plains(setting.temperature)
    target = bench.pair(setting.dtype).target
    for each in every.values():  # warms up
        options = {"temperature": setting.temperature, "rule": each.rule, "seed": 0}
        generate(target, prompts[0][-8:], each.drafter, 4, **options)
    for each in others.values():
        each.run(prompts[0], 0)
    for attempt in range(ATTEMPTS):
        runs = take_turns(every | others, prompts, bench, str(setting), deadline)
        columns = Columns(runs, ("plain", *others))
        if columns.disturbed <= DISTURBED:
            break
    named = {name: contender for name, contender in every.items() if contender.drafter}
    return asdict(setting) | {
        "turns": sum(map(len, columns.runs["plain"])),
        "attempts": attempt + 1,
        "plain": columns.plain(),
        "methods": {name: columns.of(name, each) for name, each in named.items()},
    }


class Columns:
    """What the runs of a setting say about each method.

    plains: the runs without a draft; "plain" is the loop's own.
    """

    def __init__(self, runs: Turns, plains: Sequence[str]):
        self.runs = runs
        self.one = median(step.verifying for step in self.steps("plain"))
        self.rates = {name: 1 / float(np.mean(self.pace(name))) for name in plains}
        self.best = max(self.rates, key=self.rates.get)

    def steps(self, name: str) -> list[Step]:
        return [step for row in self.runs[name] for run in row for step in run.steps]

    def sums(self, name: str, get: Callable[[Step], float]) -> list[list[float]]:
        """[prompts, sweeps] of a number of each step, summed over a run."""
        return [[sum(map(get, run.steps)) for run in row] for row in self.runs[name]]

    def pace(self, name: str) -> list[list[float]]:
        """Seconds a token [prompts, sweeps]."""
        return [[run.seconds / run.tokens for run in row] for row in self.runs[name]]

    def texts(self, name: str) -> list[list[int]]:
        """What the runs wrote."""
        return [
            [token for step in run.steps for token in step.tokens]
            for row in self.runs[name]
            for run in row
        ]

    @property
    def disturbed(self) -> float:
        """Plain decoding's seconds a token over those of its median round."""
        return float(np.mean(self.pace("plain"))) / median(s.seconds for s in self.steps("plain"))

    def plain(self) -> dict:
        costs = timing.round_costs(self.steps("plain"), self.one)
        return {
            "seconds": self.one,
            "round": costs.total,
            "tokens_per_second": self.rates,
            "best": self.best,
        }

    def of(self, name: str, contender: Contender) -> dict:
        """A method's columns.

        tau: emitted ÷ passes. alpha: accepted ÷ tested. drafted: accepted ÷ drafted. positions:
        the share of drafting rounds in which at least so many levels were accepted; conditional:
        of those that accepted all levels before it and drafted this one. empty: the share of rounds
        without a draft. used: emitted ÷ verified. c, verify, overhead: a drafted level, the pass
        and the rest of a round, in units of T(1). speedup: over the loop's own plain decoding;
        over_best: over the quickest plain decoder of the machine. formula: the speedup of a chain
        by α, c and the lengths it drafted; from_costs: τ over what a round costs. same: the share
        of runs whose text is plain decoding's.
        """
        steps = self.steps(name)
        shape = contender.drafter.shape() or drafted_shape(steps)
        costs = timing.round_costs(steps, self.one)
        plain = timing.round_costs(self.steps("plain"), self.one).total
        accepted = self.sums(name, lambda step: step.accepted)
        emitted = self.sums(name, lambda step: len(step.tokens))
        tau = ratio(emitted, self.sums(name, lambda step: 1))
        alpha = ratio(accepted, self.sums(name, lambda step: step.tested))
        is_chain = contender.rule is None and all(step.tree.is_chain for step in steps)
        depths = [depth_of(step) for step in steps]
        known = is_chain and alpha["value"] is not None
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
            "formula": predicted(alpha["value"], depths, costs.draft) if known else None,
            "from_costs": tau["value"] * plain / costs.total,
            "same": sum(one == other for one, other in texts) / len(texts),
        }


def depth_of(step: Step) -> int:
    """Levels that a round drafted."""
    return int(step.tree.depth.max()) + 1 if len(step.tree) else 0


def by_position(steps: Sequence[Step], levels: int) -> dict[str, list[float | None]]:
    """Acceptance by level, of all rounds that drafted, and of those that came as far as the level
    before it and drafted this one; None where none did.
    """
    rounds = [(step.accepted, depth_of(step)) for step in steps if len(step.tree)]
    reached = [sum(accepted >= level for accepted, _ in rounds) for level in range(1, levels + 1)]
    tried = [
        sum(accepted >= level - 1 and depth >= level for accepted, depth in rounds)
        for level in range(1, levels + 1)
    ]
    return {
        "positions": [count / max(1, len(rounds)) for count in reached],
        "conditional": [count / of if of else None for count, of in zip(reached, tried)],
    }


def predicted(alpha: float, lengths: Sequence[int], draft: float) -> float:
    """The formula's speedup of a chain whose rounds draft so many tokens, where a round spends
    `draft` on drafting in units of T(1), and its pass costs 1.
    """
    tokens = [theory.expected_tokens(alpha, length) if length else 1.0 for length in lengths]
    return sum(tokens) / len(tokens) / (1 + draft)


# Drift ----------------------------------------------------------------------------------------------


class Told:
    """An rng whose coin falls as told, and whose die is read instead of thrown."""

    def __init__(self, side: bool):
        self.side = side
        self.prob: float | None = None
        self.row: Tensor | None = None

    def flip(self, prob: float) -> bool:
        self.prob = min(1.0, prob)
        return self.side

    def draw(self, row: Tensor) -> int:
        self.row = row
        return 0


def first_token_law(p: Tensor, q: Tensor, rule: RuleFunction, mass: float = 1.0) -> Tensor:
    """The law [V] of the first token that a rule emits when one token is drawn from q and judged
    against p: `acceptance.output_law` for whole vocabularies.

    p, q: [V]. mass: of q whose likeliest tokens are looked at; the rest is left out, and the law is
    renormalised. For rules that flip at most once a token and draw after that.
    """
    law = torch.zeros_like(p)
    order = q.argsort(descending=True)
    count = int((q[order].cumsum(0) < mass - 1e-9).sum()) + 1
    rows = torch.stack([p, p])
    for token in (x for x in order[:count].tolist() if q[x] > 0):
        proposal = Proposal(TokenTree.chain([token]), q[None])
        kept = Told(True)
        path = rule(proposal, rows, kept).path
        share = (kept.prob if kept.prob is not None else 1.0) if path else 0.0
        law[token] += q[token] * share
        if share < 1:
            refused = Told(False)
            verdict = rule(proposal, rows, refused)
            left = one_hot(verdict.token, p) if refused.row is None else refused.row
            law += q[token] * (1 - share) * left
    return law / law.sum()


def drift(pair: Pair, rule: RuleFunction, prompts: list[Tensor], places: int, mass: float) -> dict:
    """Total variation between the target's law and that of a rule's first token, the draft model
    drafting one: its mean over so many places of every prompt.
    """
    sampling = Sampling(1.0)
    found = []
    for ids in prompts:
        rows = [
            sampling(model.score(ids, model.new_cache(capacity=len(ids))).logits[0]).double()
            for model in (pair.target, pair.draft)
        ]
        for place in torch.linspace(16, len(ids) - 1, places).long().tolist():
            p, q = (row[place] for row in rows)
            law = first_token_law(p, q, rule, mass)
            found.append(0.5 * (law - p).abs().sum().item())
    return {"mean": sum(found) / len(found), "most": max(found), "places": len(found)}


@torch.inference_mode()
def drifts(bench: Bench, methods: dict[str, Method], places: int = 2, mass: float = 0.999) -> dict:
    """{method: drift} of the lossy rules that judge a chain of the draft model."""
    pair = bench.pair("float32")
    prompts = [rows[0] for rows in bench.prompts.values()]
    return {
        name: drift(pair, method.rule, prompts, places, mass)
        for name, method in methods.items()
        if not method.lossless and name.startswith("draft model ×")
    }


# The recording --------------------------------------------------------------------------------------


def minutes_of_training(method: Method, model: str) -> float | None:
    """What a shipped drafter's report says; None where nothing was trained or nothing is said."""
    path = method.weights and method.trained(model) / "report.json"
    if not path or not path.is_file():
        return None
    said = json.loads(path.read_text(encoding="utf-8"))
    seconds = said.get("seconds") or said.get("training", {}).get("seconds")
    return seconds and seconds / 60


def described(name: str, method: Method, options: argparse.Namespace) -> dict:
    """What is known of a method before it runs."""
    pair = loaded(options.model)
    return {
        "source": method.source,
        "chapter": method.chapter,
        "rule": method.rule.name if method.rule else None,
        "lossless": method.lossless,
        "bytes": bytes_beside(method.make(pair, GAMMA), pair.target),
        "minutes": minutes_of_training(method, options.model),
        "trained": method.weights is not None,
    }


def rounded(data):
    """Numbers with four digits: more is noise, and the file is read by pages."""
    if isinstance(data, dict):
        return {key: rounded(value) for key, value in data.items()}
    if isinstance(data, list):
        return [rounded(value) for value in data]
    return float(f"{data:.4g}") if isinstance(data, float) else data


def command_line() -> argparse.ArgumentParser:
    parser = parser_for("benchmarks.scoreboard", __doc__)
    parser.add_argument("--model", choices=("pair", "smollm2"), default="pair")
    parser.add_argument("--methods", nargs="+", help="rows by name; default all")
    parser.add_argument("--add", action="store_true", help="rows into the recording that is there")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument(
        "--lengths", type=int, nargs="*", default=LENGTHS, help="of some chains; none: no sweep"
    )
    parser.add_argument("--prompts", type=int, default=6, help="of each kind, at least 2")
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--turns", type=int, default=20, help="paired turns a setting")
    parser.add_argument(
        "--minutes", type=float, help="take fewer turns where due, one a prompt in any case"
    )
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--out", type=Path, help="default results/scoreboard[-smollm2].json")
    parser.add_argument("--work", type=Path, default=Path(".work/scoreboard"))
    return parser


def chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Method]:
    """The rows that are asked for and that this model has."""
    for name, least in (("prompts", 2), ("new_tokens", 2 * GAMMA + 2), ("turns", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name.replace('_', '-')}: must be at least {least}")
    if options.lengths and min(options.lengths) < 1:
        parser.error(f"--lengths {options.lengths}: must be whole numbers ≥ 1")
    if min(options.temperatures) < 0:
        parser.error(f"--temperatures {options.temperatures}: must be ≥ 0")
    if options.minutes is not None and not options.minutes > 0:
        parser.error(f"--minutes {options.minutes}: must be above 0")
    if options.clock == "cpu" and torch.get_num_threads() > 1:
        parser.error("--clock cpu: adds the seconds of all threads; set OMP_NUM_THREADS=1")
    here = {name: each for name, each in METHODS.items() if not each.why_not(options.model)}
    if unknown := [name for name in options.methods or () if name not in here]:
        parser.error(f"--methods {unknown[0]!r}: must be among {', '.join(here)}")
    if options.add and not options.methods:
        parser.error("--add: needs --methods, the rows to add")
    return {name: here[name] for name in options.methods or here}


def known(methods: dict[str, Method], options: argparse.Namespace) -> dict:
    """What is known of a recording before anything is measured."""
    absent = {name: each.why_not(options.model) for name, each in METHODS.items()}
    return {
        "model": options.model,
        "clock": options.clock,
        "threads": torch.get_num_threads(),
        "gamma": GAMMA,
        "new_tokens": options.new_tokens,
        "prompts_per_kind": options.prompts,
        "lengths": [],
        "methods": {name: described(name, each, options) for name, each in methods.items()},
        "absent": {name: why for name, why in absent.items() if why},
        "named": NAMED,
    }


def joined(old: dict, new: dict, stamp: dict) -> dict:
    """A recording with the rows of another beside its own, or in place of those of the same name.
    What was measured beside them, plain decoding above all, stays each row's own.

    Raises ValueError where the two were measured otherwise.
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
        raise ValueError(f"{sorted(missing)[0]} is no setting of the recording")
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


def main(arguments: list[str] | None = None) -> Path:
    """The command line; returns the recording's path."""
    parser = command_line()
    options = parser.parse_args(arguments)
    methods = chosen(parser, options)
    logging.set_verbosity_error()
    stamp = results.stamp(
        "every drafter and every rule beside plain decoding, by kind of text and temperature",
        typed(parser, arguments),
    )
    name = "scoreboard" if options.model == "pair" else "scoreboard-smollm2"
    path = options.out or results.FOLDER / f"{name}.json"
    if options.add and not path.is_file():
        parser.error(f"--add: {path} is not there yet")
    asked = {k: v for k, v in vars(options).items() if k not in ("minutes", "out", "work")}
    asked |= {"machine": stamp["machine"], "versions": stamp["versions"]}
    bench = made(options, methods)
    state = {"start": timing.machine_state()}
    record = known(methods, options)
    swept = {name: methods[name] for name in SWEPT if name in methods}
    parts = {"rows": bench}
    if swept and options.lengths and not options.add:
        parts["lengths"] = made(options, swept, gammas=options.lengths, temperatures=(1.0,))
    shares = {"rows": 0.8, "lengths": 0.2} if "lengths" in parts else {"rows": 1.0}
    plains = partial(plain.others, options.model, options.new_tokens, stops=tuple(bench.stops))
    beside = {"rows": plains, "lengths": lambda temperature: {}}
    files = []
    clock = CLOCKS[options.clock]
    with (
        mock.patch.object(speculation, "perf_counter", clock),
        mock.patch.object(hugging_face, "perf_counter", clock),
    ):
        for part, each in parts.items():
            stem = f"{path.stem}-{part}{'-added' * options.add}"
            try:
                kept = Kept(options.work / f"{stem}.jsonl", asked)
            except ValueError as error:
                parser.error(str(error))
            minutes = options.minutes and shares[part] * options.minutes
            how = partial(measure, plains=beside[part])
            record[part] = every_setting(each, kept, minutes, how)
            files.append(kept.path)
    if options.model == "pair":
        record["drift"] = drifts(bench, methods)
    record["state"] = state | {"end": timing.machine_state()}
    record = rounded(record)
    if options.add:
        old = json.loads(path.read_text(encoding="utf-8"))
        record = joined(old, record, stamp)
        stamp = {name: record.pop(name) for name in results.STAMP}
    results.save(path, stamp, record)
    for file in files:
        file.unlink()
    print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
