"""Measure which draft length is best for which text: some chains at several γ, on the shipped pair.

On each kind of text every chain and plain decoding decode the same prompts one after the other, in a
new random order for each prompt, at temperature 1 and in float32. The machine must be quiet.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch

from specdec_lite.measure.intervals import ratio
from specdec_lite.texts.benchmark_prompts import KINDS, SHA256

from .experiment import Run, experiment
from .methods import METHODS
from .scoreboard_counts import encoded_prompts, load_models
from .speed import WARM, Bench, Setting, contenders, take_turns

CHAINS = ("draft model", "EAGLE-1, a chain", "early exit", "prompt lookup", "n-gram model")
TEMPERATURE = 1.0


def chains(bench: Bench, kind: str) -> dict:
    """Return τ and the speedup of every chain on a kind of text."""
    setting, prompts = Setting("float32", kind, TEMPERATURE), bench.prompts[kind]
    for each in contenders(replace(bench, new_tokens=WARM), setting).values():
        each.run(prompts[0], 0)
    every = contenders(bench, setting)
    runs = take_turns(every, prompts, bench)
    table = lambda name, get: [[get(run) for run in row] for row in runs[name]]
    tokens, per_token = lambda run: run.tokens, lambda run: run.seconds / run.tokens
    return {
        "turns": sum(map(len, runs["plain"])),
        "chains": [
            {
                "name": each.name,
                "gamma": each.gamma,
                "tau": ratio(table(label, tokens), table(label, lambda run: len(run.steps))),
                "speedup": ratio(table("plain", per_token), table(label, per_token)),
            }
            for label, each in every.items()
            if each.drafter
        ],
    }


@experiment(
    "draft-lengths",
    "speed of some chains at several draft lengths, by kind of text, at temperature 1",
    time="10 minutes, quiet",
    quick={"prompts": 2, "turns": 2, "new_tokens": 10, "lengths": (1,), "kinds": ("json",)},
    least={"prompts": 2, "new_tokens": 2},
    threads=1,
)
def draft_lengths(
    run: Run,
    *,
    kinds: Sequence[Literal[*KINDS]] = KINDS,
    lengths: Sequence[int] = (1, 2, 4, 8),
    prompts: int = 8,
    new_tokens: int = 64,
    turns: int = 16,
) -> dict:
    """Return the chains of every kind of text.

    Args:
        lengths: values of γ
        prompts: prompts per kind
        turns: paired turns per kind
    """
    pair = load_models("pair", "float32")
    bench = Bench(
        load=lambda dtype: pair,
        prompts=encoded_prompts(pair.tokenizer, kinds, prompts),
        gammas=lengths,
        dtypes=("float32",),
        new_tokens=new_tokens,
        turns=turns,
        drafters={name: METHODS[name].make for name in CHAINS},
    )
    rows = run({kind: partial(chains, bench, kind) for kind in kinds})
    return {
        "temperature": TEMPERATURE,
        "dtype": "float32",
        "threads": torch.get_num_threads(),
        "new_tokens": new_tokens,
        "prompts": prompts,
        "prompts_sha256": SHA256,
        "kinds": rows,
        "state": run.states(),
    }
