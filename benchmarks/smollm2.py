"""Define what is timed with SmolLM2 as the target: drafters, requests and Hugging Face's
contenders.

    python -m benchmarks run speed-smollm2    # ten minutes on one core
    python -m benchmarks run speed-smollm2 --gammas 8 --drafters prompt_lookup suffix

The prompts are six kinds of request and an agent's turns. Hugging Face's prompt lookup and early
exit are timed with ours. T(k) is measured in both formats. DRAFTERS has one line per drafter.
Answers end at the stop token for every contender.
"""

import argparse
import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, cached_property

import numpy as np
import torch

from specdec_lite import CausalLM, TokenTree, generate, load_smollm2
from specdec_lite.drafters import (
    EagleDrafter,
    EarlyExitDrafter,
    HashPoolDrafter,
    NgramDrafter,
    PromptLookupDrafter,
    RestDrafter,
    SuffixDrafter,
    TokenRecyclingDrafter,
)
from specdec_lite.drafters.copying.indexes import Counts, SuffixArray
from specdec_lite.loading.pairs import Pair
from specdec_lite.loading.smollm2 import smollm2_folder
from specdec_lite.speculation import Drafter
from specdec_lite.texts.corpus import training_text
from specdec_lite.texts.smollm2_tasks import AGENT, HISTORY, KINDS, TASKS, chat

from .experiment import Experiment
from .hugging_face import HuggingFaceLookup
from .speed import Bench, Other

STOP = 2
SKIPPED = (12, 16, 20)
"""Blocks, out of thirty, that a draft made of SmolLM2 itself leaves out."""
EXIT = {"layers": 10, "gamma": 1}
"""Settings of the early-exit draft, which uses a third of the layers. It has no adapter, as in Hugging
Face. It is seldom right, so a longer draft would cost more.
"""
TREE = TokenTree.best([[0.5, 0.13, 0.06, 0.03]] * 4, 7)
"""Best tree for the accuracy of the head's first four guesses in a trial. With its root it has eight
tokens; a pass of SmolLM2 over eight tokens costs little more than over one.
"""
SHORT = {
    "new_tokens": 20,
    "domains": KINDS,
    "drafters": ["prompt_lookup", "eagle", "eagle_tree", "early_exit"],
}
"""Options of the short form."""
DRAFTERS: dict[str, Callable[[Pair, int], Drafter]] = {
    "prompt_lookup": lambda pair, gamma: PromptLookupDrafter(gamma),
    "eagle": lambda pair, gamma: EagleDrafter.from_pretrained(pair.target, draft=gamma),
    "eagle_tree": lambda pair, gamma: EagleDrafter.from_pretrained(pair.target, draft=TREE),
    "early_exit": lambda pair, gamma: EarlyExitDrafter(pair.target, **EXIT),
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
"""Functions from the target, as a pair without a draft, and γ to a drafter. For a tree, γ is the number
of nodes. The first drafter leads the row of a setting. `prompt_lookup` and `early_exit` are compared with
transformers' own.
"""


class OnSmolLM2(Experiment):
    """An experiment on SmolLM2 in the precision of its option `dtype`, or in float32."""

    @cached_property
    def model(self):
        """SmolLM2 and its tokenizer."""
        return load_smollm2("cpu", getattr(self.options, "dtype", "float32"))


def without_blocks(target: CausalLM, blocks: Sequence[int]) -> CausalLM:
    """Return a model without some of its blocks; the other blocks are shared, not copied."""
    model = copy.copy(target.model)
    model._modules = dict(model._modules)
    model.blocks = torch.nn.ModuleList(
        block for index, block in enumerate(target.model.blocks) if index not in blocks
    )
    model.config = replace(target.model.config, num_layers=len(model.blocks))
    return CausalLM(model)


@cache
def library(tokenizer) -> np.ndarray:
    """Return the datastore: the standard library's sources and reference topics as token ids."""
    texts = training_text()
    pieces = (*texts["docs"], *texts["library"])
    return np.concatenate([np.asarray(tokenizer.encode(t), np.int64) for t in pieces])


@cache
def array(tokenizer) -> SuffixArray:
    """Return the suffix array of the datastore."""
    return SuffixArray(library(tokenizer))


@cache
def counts(tokenizer) -> Counts:
    """Return the trigram counts of the datastore."""
    return Counts(library(tokenizer), len(tokenizer), 3)


@cache
def history(target, tokenizer) -> list[list[int]]:
    """Return an agent's earlier turns with the target's answers; none of them is measured."""
    prompts = [chat(tokenizer, task.text) for task in HISTORY]
    answer = lambda ids: generate(target, ids, None, 96, stop_token_ids=(STOP,)).tokens.tolist()
    return [[*ids, *answer(ids)] for ids in prompts]


def warm(pair: Pair, drafter: Drafter) -> Drafter:
    """Teach a drafter the agent's earlier turns and return it."""
    for text in history(pair.target, pair.tokenizer):
        drafter.learn(text)
    return drafter


def bench(options: argparse.Namespace) -> Bench:
    """Return the bench of SmolLM2 on requests of six kinds and on an agent's later turns."""

    @cache
    def load(dtype: str) -> Pair:
        target, tokenizer = load_smollm2(options.device, dtype)
        return Pair(target, None, tokenizer)

    tokenizer = load(options.dtypes[0]).tokenizer
    drafters = options.drafters or DRAFTERS
    tasks = {**TASKS, "agent": AGENT}
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
        drafters={name: DRAFTERS[name] for name in drafters},
        stops=(STOP,),
        others=hugging_face_contenders(options.gammas[0], drafters)
        if "float32" in options.dtypes and options.device == "cpu"
        else {},
    )


def hugging_face_contenders(gamma: int, drafters: Collection[str]) -> dict[str, Other]:
    """Return Hugging Face on the same weights: plain, and the counterparts of our drafters."""
    theirs = HuggingFaceLookup(smollm2_folder(), "float32", gamma, STOP)
    others = {
        "hf_plain": Other(theirs, False, "plain"),
        "hf_lookup": Other(theirs, True, "prompt_lookup"),
        "hf_early_exit": Other(theirs.early_exit(**EXIT), True, "early_exit"),
    }
    return {name: each for name, each in others.items() if each.against in ("plain", *drafters)}
