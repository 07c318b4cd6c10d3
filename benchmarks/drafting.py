"""Time drafters without a model: milliseconds per proposal, seconds and bytes per index.

    python -m benchmarks.drafting    # two minutes; results/drafting-<machine>.json

The text is code outside the library's datastore, in SmolLM2's tokens. Every drafter, including
transformers' prompt lookup, proposes at each of the last positions of the same text. No model runs.
The time that token recycling needs to read its rows after a pass is recorded separately.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
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
from specdec_lite.drafters.parts.indexes import Counts, SuffixArray
from specdec_lite.drafters.parts.successors import update
from specdec_lite.drafters.recycling import TokenRecyclingSession
from specdec_lite.loading.smollm2 import smollm2_folder
from specdec_lite.measure import stamps
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context, Drafter
from specdec_lite.texts.corpus import held_out_text
from specdec_lite.tree import TokenTree

from .smollm2 import library


def context(text: torch.Tensor, vocab_size: int, temperature: float = 0.0) -> Context:
    """Return the context of a text without model scores.

    Args:
        text: Token ids [n].
        vocab_size: Size of the vocabulary.
        temperature: Sampling temperature.
    """
    return Context(text, None, Sampling(temperature), SeededRng(0), 64, vocab_size)


def proposals(
    drafter: Drafter, text: torch.Tensor, first: int, vocab_size: int, temperature: float = 0.0
) -> dict:
    """Return the seconds to start on the first tokens, and per proposal at each later position.

    Args:
        drafter: Drafter to time.
        text: Token ids [n].
        first: Number of tokens at the start.
        vocab_size: Size of the vocabulary.
        temperature: Sampling temperature.
    """
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
    """Return the same for transformers' candidate generator.

    Args:
        text: Token ids [n].
        first: Number of tokens at the start.
        gamma: Draft length.
    """
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
    """Time token recycling's two halves: filling the tree, and reading the rows of a pass.

    Args:
        text: Token ids [n].
        vocab_size: Size of the vocabulary.
        nodes: Nodes of the tree.
        count: Number of proposals.
    """
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


def main(arguments: list[str] | None = None, tokenizer=None, datastore=None) -> Path:
    """Run the command line.

    Args:
        arguments: Arguments; None uses those of this process.
        tokenizer: Tokenizer; None uses SmolLM2's.
        datastore: Token ids to index; None uses the library's own.

    Returns:
        Path of the recording.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drafting")
    parser.add_argument("--context", type=int, default=2000, help="tokens of the text")
    parser.add_argument("--count", type=int, default=300, help="number of timed proposals")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(arguments)
    tokenizer = tokenizer or AutoTokenizer.from_pretrained(smollm2_folder())
    vocab_size = len(tokenizer)
    stored = library(tokenizer) if datastore is None else datastore
    text = torch.tensor(tokenizer.encode("\n".join(held_out_text()["code"])))[: options.context]
    first = len(text) - options.count
    array, array_seconds = time_build(lambda: SuffixArray(stored))
    counts, counts_seconds = time_build(lambda: Counts(stored, vocab_size, 3))
    state = {"start": timing.machine_state()}
    ngram = NgramDrafter(counts, 4)
    timed = lambda drafter, temperature=0.0: proposals(
        drafter, text, first, vocab_size, temperature
    )
    rows = {
        "transformers' prompt lookup": transformers_lookup(text, first, 8),
        "prompt lookup": timed(PromptLookupDrafter(8)),
        "suffix decoding, a chain": timed(SuffixDrafter(16)),
        "suffix decoding, a tree": timed(SuffixDrafter(16, width=3)),
        "REST, 16 nodes": timed(RestDrafter(array, 16)),
        "hash pool": timed(HashPoolDrafter(16)),
        "n-gram model, γ = 4, chosen": timed(ngram),
        "n-gram model, γ = 4, drawn": timed(ngram, 1.0),
        **recycling(text, vocab_size, 16, options.count),
    }
    state["end"] = timing.machine_state()
    stamp = stamps.stamp(
        "seconds of a draft without a model, and of the indexes that some need",
        "python -m benchmarks.drafting",
    )
    path = options.out or Path("results") / f"drafting-{stamps.slug(stamp['machine'])}.json"
    indexes = {
        "suffix array": {"seconds": array_seconds, "bytes": array.text.nbytes + array.order.nbytes},
        "3-gram counts": {
            "seconds": counts_seconds,
            "bytes": sum(part.nbytes for part in (*counts.keys, *counts.counts)),
        },
    }
    record = {
        "context": len(text),
        "count": options.count,
        "vocab_size": vocab_size,
        "datastore_tokens": len(stored),
        "threads": torch.get_num_threads(),
        "state": state,
        "rows": rows,
        "indexes": indexes,
    }
    stamps.save(path, stamp, record)
    table = Table("drafter", "start [ms]", "median [ms]", "95 % [ms]")
    for name, row in rows.items():
        table.add_row(name, *(f"{1e3 * row[key]:.3f}" for key in ("start", "median", "p95")))
    console = Console()
    console.print(table)
    for name, index in indexes.items():
        console.print(f"{name}: {index['seconds']:.1f} s, {index['bytes'] / 1e6:.0f} MB")
    console.print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
