"""What experiments on SmolLM2 share: the model, a draft made of its blocks, and the datastore."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import torch

from specdec_lite import CausalLM
from specdec_lite.drafters.ngrams import Counts, SuffixArray
from specdec_lite.texts.corpus import training_text

STOP = 2
SKIPPED = (12, 16, 20)
"""Blocks, out of thirty, that a draft made of SmolLM2 itself leaves out."""


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
