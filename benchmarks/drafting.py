"""What a draft without a model costs by itself: milliseconds a proposal, seconds and bytes an index.

    python -m benchmarks.drafting    # two minutes; results/drafting-<machine>.json

The text is code that the library's datastore does not hold, its tokens SmolLM2's. Every drafter
proposes at each of the last places of the same text, transformers' prompt lookup too; no model
runs. What token recycling does after a pass, reading its rows, is told apart from its proposals.
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

from specdec_lite import results, timing
from specdec_lite.drafters import (
    HashPoolDrafter,
    NgramDrafter,
    PromptLookupDrafter,
    RestDrafter,
    SuffixDrafter,
)
from specdec_lite.drafters.indexes import Counts, SuffixArray
from specdec_lite.drafters.recycling import TokenRecyclingSession, update
from specdec_lite.loading.corpus import held_out_text
from specdec_lite.loading.smollm2 import smollm2_folder
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context, Drafter
from specdec_lite.tree import TokenTree

from .smollm2 import library


def context(text: torch.Tensor, vocab_size: int, temperature: float = 0.0) -> Context:
    return Context(text, None, Sampling(temperature), SeededRng(0), 64, vocab_size)


def proposals(
    drafter: Drafter, text: torch.Tensor, first: int, vocab_size: int, temperature: float = 0.0
) -> dict:
    """Seconds to start on the first tokens of a text, and of a proposal at each place behind."""
    began = perf_counter()
    session = drafter.start(context(text[:first], vocab_size, temperature))
    session.propose(context(text[:first], vocab_size, temperature))
    start = perf_counter() - began
    seconds = []
    for place in range(first + 1, len(text) + 1):
        here = context(text[:place], vocab_size, temperature)
        began = perf_counter()
        session.propose(here)
        seconds.append(perf_counter() - began)
    return {"start": start, **spread(seconds)}


def spread(seconds: list[float]) -> dict:
    return {"median": median(seconds), "p95": float(np.quantile(seconds, 0.95))}


def theirs(text: torch.Tensor, first: int, gamma: int) -> dict:
    """The same of transformers' candidate generator."""
    generator = PromptLookupCandidateGenerator(
        num_output_tokens=gamma, max_matching_ngram_size=3, max_length=len(text) + 64
    )
    seconds = []
    for place in range(first + 1, len(text) + 1):
        began = perf_counter()
        generator.get_candidates(text[None, :place])
        seconds.append(perf_counter() - began)
    return {"start": 0.0, **spread(seconds)}


def recycling(text: torch.Tensor, vocab_size: int, nodes: int, count: int) -> dict[str, dict]:
    """Token recycling's two halves: filling the tree, and reading the rows of a pass over it."""
    rng = torch.Generator().manual_seed(0)
    session = TokenRecyclingSession.__new__(TokenRecyclingSession)
    session.drafter = type("Shape", (), {"tree": TokenTree.best([(0.4, 0.2, 0.1)] * 6, nodes)})
    session.table = {
        t: torch.randint(vocab_size, (8,), generator=rng).tolist() for t in text.tolist()
    }
    logits = torch.randn(nodes + 1, vocab_size, generator=rng)
    filled, read = [], []
    for place in range(len(text) - count, len(text)):
        here = context(text[: place + 1], vocab_size)
        began = perf_counter()
        session.propose(here)
        filled.append(perf_counter() - began)
        update(session.table, text[: nodes + 1].tolist(), logits)
        read.append(perf_counter() - began - filled[-1])
    return {
        f"token recycling, {nodes} nodes": {"start": 0.0, **spread(filled)},
        "token recycling, after the pass": {"start": 0.0, **spread(read)},
    }


def built(make: Callable) -> tuple[object, float]:
    began = perf_counter()
    return make(), perf_counter() - began


def main(arguments: list[str] | None = None, tokenizer=None, datastore=None) -> Path:
    """The command line; returns the recording's path."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drafting")
    parser.add_argument("--context", type=int, default=2000, help="tokens before a proposal")
    parser.add_argument("--count", type=int, default=300, help="proposals that are timed")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(arguments)
    tokenizer = tokenizer or AutoTokenizer.from_pretrained(smollm2_folder())
    vocab_size = len(tokenizer)
    stored = library(tokenizer) if datastore is None else datastore
    text = torch.tensor(tokenizer.encode("\n".join(held_out_text()["code"])))[: options.context]
    first = len(text) - options.count
    array, array_seconds = built(lambda: SuffixArray(stored))
    counts, counts_seconds = built(lambda: Counts(stored, vocab_size, 3))
    state = {"start": timing.machine_state()}
    ngram = NgramDrafter(counts, 4)
    timed = lambda drafter, temperature=0.0: proposals(
        drafter, text, first, vocab_size, temperature
    )
    rows = {
        "transformers' prompt lookup": theirs(text, first, 8),
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
    stamp = results.stamp(
        "seconds of a draft without a model, and of the indexes that some need",
        "python -m benchmarks.drafting",
    )
    path = options.out or Path("results") / f"drafting-{results.slug(stamp['machine'])}.json"
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
    results.save(path, stamp, record)
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
