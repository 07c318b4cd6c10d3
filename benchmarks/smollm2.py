"""What experiments on SmolLM2 share: its end of text and the datastore."""

from functools import cache

import numpy as np

from specdec_lite.drafters.ngrams import Counts, SuffixArray
from specdec_lite.texts.corpus import training_text

STOP = 2
SKIPPED = (12, 16, 20)
"""Blocks, out of thirty, that a draft made of SmolLM2 itself leaves out."""


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
