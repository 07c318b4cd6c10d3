"""Time drafters without a model: milliseconds per proposal, seconds and bytes per index.

    python -m benchmarks run proposal-times    # two minutes

The text is code outside the library's datastore, in SmolLM2's tokens. Every drafter, including
transformers' prompt lookup, proposes at each of the last positions of the same text. No model runs.
The time that token recycling needs to read its rows after a pass is recorded separately.
"""

from collections.abc import Callable
from functools import cached_property
from statistics import median
from time import perf_counter

import numpy as np
import torch
from transformers import AutoTokenizer
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from specdec_lite import timing
from specdec_lite.drafters import (
    HashPoolDrafter,
    NgramDrafter,
    PromptLookupDrafter,
    RestDrafter,
    SuffixDrafter,
)
from specdec_lite.drafters.copying.indexes import Counts, SuffixArray
from specdec_lite.drafters.copying.recycling import TokenRecyclingSession
from specdec_lite.drafters.copying.successors import update
from specdec_lite.loading.smollm2 import smollm2_folder
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context, Drafter
from specdec_lite.texts.corpus import held_out_text
from specdec_lite.tree import TokenTree

from .experiment import Experiment
from .smollm2 import library


def context(text: torch.Tensor, vocab_size: int, temperature: float = 0.0) -> Context:
    """Return the context of a text without model scores."""
    return Context(text, None, Sampling(temperature), SeededRng(0), 64, vocab_size)


def proposals(
    drafter: Drafter, text: torch.Tensor, first: int, vocab_size: int, temperature: float = 0.0
) -> dict:
    """Return the seconds to start on the first tokens, and per proposal at each later position."""
    began = perf_counter()
    session = drafter.start(context(text[:first], vocab_size, temperature))
    session.propose(context(text[:first], vocab_size, temperature))
    start = perf_counter() - began
    seconds = []
    for position in range(first + 1, len(text) + 1):
        here = context(text[:position], vocab_size, temperature)
        began = perf_counter()
        session.propose(here)
        seconds.append(perf_counter() - began)
    return {"start": start, **spread(seconds)}


def spread(seconds: list[float]) -> dict:
    """Return the median and the 95th percentile of some seconds."""
    return {"median": median(seconds), "p95": float(np.quantile(seconds, 0.95))}


def transformers_lookup(text: torch.Tensor, first: int, gamma: int) -> dict:
    """Return the same for transformers' candidate generator."""
    generator = PromptLookupCandidateGenerator(
        num_output_tokens=gamma, max_matching_ngram_size=3, max_length=len(text) + 64
    )
    seconds = []
    for position in range(first + 1, len(text) + 1):
        began = perf_counter()
        generator.get_candidates(text[None, :position])
        seconds.append(perf_counter() - began)
    return {"start": 0.0, **spread(seconds)}


def recycling(text: torch.Tensor, vocab_size: int, nodes: int, count: int) -> dict[str, dict]:
    """Time token recycling's two halves: filling the tree, and reading the rows of a pass."""
    rng = torch.Generator().manual_seed(0)
    session = TokenRecyclingSession.__new__(TokenRecyclingSession)
    session.drafter = type("Shape", (), {"tree": TokenTree.best([(0.4, 0.2, 0.1)] * 6, nodes)})
    session.table = {
        t: torch.randint(vocab_size, (8,), generator=rng).tolist() for t in text.tolist()
    }
    logits = torch.randn(nodes + 1, vocab_size, generator=rng)
    filled, read = [], []
    for position in range(len(text) - count, len(text)):
        here = context(text[: position + 1], vocab_size)
        began = perf_counter()
        session.propose(here)
        filled.append(perf_counter() - began)
        update(session.table, text[: nodes + 1].tolist(), logits)
        read.append(perf_counter() - began - filled[-1])
    return {
        f"token recycling, {nodes} nodes": {"start": 0.0, **spread(filled)},
        "token recycling, after the pass": {"start": 0.0, **spread(read)},
    }


def time_build(make: Callable) -> tuple[object, float]:
    """Return the result of a function and the seconds it took."""
    began = perf_counter()
    return make(), perf_counter() - began


class ProposalTimes(Experiment):
    """The parts are the indexes, the drafters, and token recycling."""

    name = "proposal-times"
    what = "seconds of a draft without a model, and of the indexes that some need"
    time = "2 minutes"
    quick = "--context 200 --count 5".split()
    threads = 1

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--context", type=int, default=2000, help="tokens of the text")
        parser.add_argument("--count", type=int, default=300, help="number of timed proposals")

    def check(self):
        if not 1 <= self.options.count < self.options.context:
            raise ValueError(f"--count {self.options.count}: must be between 1 and --context")

    def load(self):
        """Return the tokenizer and the token ids to index."""
        tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
        return tokenizer, library(tokenizer)

    @cached_property
    def source(self):
        """The tokenizer and the token ids to index."""
        return self.load()

    @cached_property
    def text(self) -> torch.Tensor:
        """The text as token ids [n]."""
        tokens = self.source[0].encode("\n".join(held_out_text()["code"]))
        return torch.tensor(tokens)[: self.options.context]

    @cached_property
    def array(self) -> tuple[SuffixArray, float]:
        """The suffix array and the seconds that it took."""
        return time_build(lambda: SuffixArray(self.source[1]))

    @cached_property
    def counts(self) -> tuple[Counts, float]:
        """The trigram counts and the seconds that they took."""
        return time_build(lambda: Counts(self.source[1], len(self.source[0]), 3))

    def timed(self, drafter: Drafter, temperature: float = 0.0) -> dict:
        """Return `proposals` of a drafter on the text."""
        first = len(self.text) - self.options.count
        return proposals(drafter, self.text, first, len(self.source[0]), temperature)

    def jobs(self) -> dict[str, Callable[[], dict]]:
        """Return the function that measures each row, by name."""
        ngram = lambda: NgramDrafter(self.counts[0], 4)
        first = len(self.text) - self.options.count
        return {
            "transformers' prompt lookup": lambda: transformers_lookup(self.text, first, 8),
            "prompt lookup": lambda: self.timed(PromptLookupDrafter(8)),
            "suffix decoding, a chain": lambda: self.timed(SuffixDrafter(16)),
            "suffix decoding, a tree": lambda: self.timed(SuffixDrafter(16, width=3)),
            "REST, 16 nodes": lambda: self.timed(RestDrafter(self.array[0], 16)),
            "hash pool": lambda: self.timed(HashPoolDrafter(16)),
            "n-gram model, γ = 4, chosen": lambda: self.timed(ngram()),
            "n-gram model, γ = 4, drawn": lambda: self.timed(ngram(), 1.0),
        }

    def parts(self):
        return ["indexes", *self.jobs(), "recycling"]

    def run(self, part):
        assert self.state
        if part == "recycling":
            return recycling(self.text, len(self.source[0]), 16, self.options.count)
        if part != "indexes":
            return self.jobs()[part]()
        (array, seconds), (counts, counts_seconds) = self.array, self.counts
        size = sum(part.nbytes for part in (*counts.keys, *counts.counts))
        return {
            "suffix array": {"seconds": seconds, "bytes": array.text.nbytes + array.order.nbytes},
            "3-gram counts": {"seconds": counts_seconds, "bytes": size},
        }

    def summarise(self, rows):
        return {
            "context": len(self.text),
            "count": self.options.count,
            "vocab_size": len(self.source[0]),
            "datastore_tokens": len(self.source[1]),
            "threads": torch.get_num_threads(),
            "state": {"start": self.state, "end": timing.machine_state()},
            "rows": {part: rows[part] for part in self.jobs()} | rows["recycling"],
            "indexes": rows["indexes"],
        }

    def restore(self, data):
        names = self.jobs()
        recycled = {name: row for name, row in data["rows"].items() if name not in names}
        rows = {name: row for name, row in data["rows"].items() if name in names}
        return rows | {"recycling": recycled, "indexes": data["indexes"]}
