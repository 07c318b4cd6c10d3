"""What is timed with SmolLM2 as the target: drafters by name, on six kinds of request and an
agent's turns.

    python -m benchmarks --model smollm2 --dtypes float32 --gammas 8 --drafters prompt_lookup suffix

A drafter is a line of DRAFTERS. Answers end at the stop token, for every contender alike.
"""

import argparse
from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from specdec_lite import generate, load_smollm2
from specdec_lite.drafters import (
    HashPoolDrafter,
    NgramDrafter,
    PromptLookupDrafter,
    RestDrafter,
    SuffixDrafter,
    TokenRecyclingDrafter,
)
from specdec_lite.drafters.indexes import Counts, SuffixArray
from specdec_lite.loading.corpus import training_text
from specdec_lite.loading.pairs import Pair
from specdec_lite.loading.smollm2 import smollm2_folder
from specdec_lite.loading.smollm2_tasks import AGENT, HISTORY, TASKS, chat
from specdec_lite.speculation import Drafter

from .hugging_face import HuggingFaceLookup
from .speed import Bench

STOP = 2
DRAFTERS: dict[str, Callable[[Pair, int], Drafter]] = {
    "prompt_lookup": lambda pair, gamma: PromptLookupDrafter(gamma),
    "prompt_lookup_earliest": lambda pair, gamma: PromptLookupDrafter(gamma, latest=False),
    "suffix": lambda pair, gamma: SuffixDrafter(gamma),
    "suffix_tree": lambda pair, gamma: SuffixDrafter(gamma, width=3),
    "suffix_warm": lambda pair, gamma: warm(pair, SuffixDrafter(gamma)),
    "rest": lambda pair, gamma: RestDrafter(array(pair.tokenizer), gamma),
    "rest_chain": lambda pair, gamma: RestDrafter(array(pair.tokenizer), gamma, width=1),
    "recycling": lambda pair, gamma: TokenRecyclingDrafter(pair.target, gamma),
    "ngram": lambda pair, gamma: NgramDrafter(counts(pair.tokenizer), min(gamma, 4)),
    "hash_pool": lambda pair, gamma: HashPoolDrafter(gamma),
}
"""A drafter for (the target as a pair without a draft, γ); γ is the number of nodes for a tree. The
first one leads the row of a setting, and is held against transformers' prompt lookup.
"""


@cache
def library(tokenizer) -> np.ndarray:
    """The datastore: the standard library's sources and reference topics, one after the other."""
    texts = training_text()
    pieces = (*texts["docs"], *texts["library"])
    return np.concatenate([np.asarray(tokenizer.encode(t), np.int64) for t in pieces])


@cache
def array(tokenizer) -> SuffixArray:
    return SuffixArray(library(tokenizer))


@cache
def counts(tokenizer) -> Counts:
    return Counts(library(tokenizer), len(tokenizer), 3)


@cache
def history(target, tokenizer) -> list[list[int]]:
    """An agent's earlier turns with the answers that the target gave. None of them is measured."""
    prompts = [chat(tokenizer, task.text) for task in HISTORY]
    answer = lambda ids: generate(target, ids, None, 96, stop_token_ids=(STOP,)).tokens.tolist()
    return [[*ids, *answer(ids)] for ids in prompts]


def warm(pair: Pair, drafter: Drafter) -> Drafter:
    for text in history(pair.target, pair.tokenizer):
        drafter.learn(text)
    return drafter


def bench(options: argparse.Namespace) -> Bench:
    """SmolLM2 on requests of six kinds, and on an agent's later turns."""

    @cache
    def load(dtype: str) -> Pair:
        target, tokenizer = load_smollm2(options.device, dtype)
        return Pair(target, None, tokenizer)

    tokenizer = load(options.dtypes[0]).tokenizer
    tasks = {**TASKS, "agent": AGENT}
    lookup = "float32" in options.dtypes and options.device == "cpu"
    return Bench(
        load=load,
        prompts={
            kind: [torch.tensor(chat(tokenizer, task.text)) for task in rows[: options.prompts]]
            for kind, rows in tasks.items()
        },
        gammas=options.gammas,
        dtypes=options.dtypes,
        temperatures=options.temperatures,
        new_tokens=options.new_tokens,
        turns=options.turns,
        least=options.least,
        drafters={name: DRAFTERS[name] for name in options.drafters or DRAFTERS},
        stops=(STOP,),
        hugging_face=HuggingFaceLookup(smollm2_folder(), "float32", options.gammas[0], STOP)
        if lookup
        else None,
    )
