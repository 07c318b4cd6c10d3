"""Measure which draft length is best for which text: some chains at several γ, on the shipped pair.

    python -m benchmarks run draft-lengths

On each kind of text every chain and plain decoding decode the same prompts one after the other, in a
new random order for each prompt, at temperature 1 and in float32. The machine must be quiet.
"""

from dataclasses import replace
from functools import cached_property

import torch

from specdec_lite import timing
from specdec_lite.measure.intervals import ratio
from specdec_lite.texts.benchmark_prompts import KINDS, SHA256

from .experiment import Experiment
from .methods import METHODS
from .scoreboard_counts import encoded_prompts, load_models
from .speed import WARM, Bench, Setting, contenders, take_turns

CHAINS = ("draft model", "EAGLE-1, a chain", "early exit", "prompt lookup", "n-gram model")
LENGTHS = (1, 2, 4, 8)
TEMPERATURE = 1.0


class DraftLengths(Experiment):
    """The parts are the kinds of text."""

    name = "draft-lengths"
    what = "speed of some chains at several draft lengths, by kind of text, at temperature 1"
    time = "10 minutes, quiet"
    quick = tuple("--prompts 2 --turns 2 --new-tokens 10 --lengths 1 --kinds json".split())
    threads = 1

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=[*KINDS])
        parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="values of γ")
        parser.add_argument("--prompts", type=int, default=8, help="prompts per kind, at least 2")
        parser.add_argument("--new-tokens", type=int, default=64)
        parser.add_argument("--turns", type=int, default=16, help="paired turns per kind")

    def check(self):
        options = self.options
        if min(options.lengths) < 1:
            raise ValueError(f"--lengths {options.lengths}: must be whole numbers ≥ 1")
        self.check_least(prompts=2, new_tokens=2, turns=1)

    def parts(self):
        return [*self.options.kinds]

    @cached_property
    def bench(self) -> Bench:
        """The chains and the prompts."""
        options = self.options
        pair = load_models("pair", "float32")
        return Bench(
            load=lambda dtype: pair,
            prompts=encoded_prompts(pair.tokenizer, options.kinds, options.prompts),
            gammas=options.lengths,
            dtypes=("float32",),
            new_tokens=options.new_tokens,
            turns=options.turns,
            drafters={name: METHODS[name].make for name in CHAINS},
        )

    def run(self, part):
        assert self.state
        setting, prompts = Setting("float32", part, TEMPERATURE), self.bench.prompts[part]
        for each in contenders(replace(self.bench, new_tokens=WARM), setting).values():
            each.run(prompts[0], 0)
        every = contenders(self.bench, setting)
        runs = take_turns(every, prompts, self.bench)
        per_token = {
            name: [[run.seconds / run.tokens for run in row] for row in rows]
            for name, rows in runs.items()
        }
        total = lambda name, get: [[get(run) for run in row] for row in runs[name]]
        return {
            "turns": sum(map(len, runs["plain"])),
            "chains": [
                {
                    "name": each.name,
                    "gamma": each.gamma,
                    "tau": ratio(
                        total(label, lambda run: run.tokens),
                        total(label, lambda run: len(run.steps)),
                    ),
                    "speedup": ratio(per_token["plain"], per_token[label]),
                }
                for label, each in every.items()
                if each.drafter
            ],
        }

    def summarise(self, rows):
        return {
            "temperature": TEMPERATURE,
            "dtype": "float32",
            "threads": torch.get_num_threads(),
            "new_tokens": self.options.new_tokens,
            "prompts": self.options.prompts,
            "prompts_sha256": SHA256,
            "kinds": rows,
            "state": {"start": self.state, "end": timing.machine_state()},
        }

    def restore(self, data):
        return data["kinds"]
