"""Will this draft pay for this target on this machine, what decides it, and what is wrong if not?

`measuring` makes the measurements, `verdict` and `faults` conclude from them, and `report` shows
the result.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from tqdm import tqdm

from specdec_lite import checks
from specdec_lite.contract import Drafter
from specdec_lite.decoding import generate, prepare
from specdec_lite.diagnosis.measuring import (
    LEAST,
    PROMPT,
    Measured,
    decode,
    decode_in_graphs,
    examine,
    time_passes,
    without_decoding,
)
from specdec_lite.diagnosis.verdict import Diagnosis, conclude
from specdec_lite.engine.models import CausalLM
from specdec_lite.texts.corpus import evaluation_prompts

__all__ = ["Diagnosis", "diagnose"]
READ = 512
"""The most tokens of a text that are read."""


def diagnose(
    target: CausalLM,
    drafter: Drafter,
    texts: Mapping[str, Sequence] | Sequence | None = None,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    tokenizer=None,
    seed: int = 0,
    progress: bool = False,
) -> Diagnosis:
    """Measure within minutes whether a draft pays, and name what decides it.

    Args:
        target: the model that decodes.
        drafter: any drafter. If a model drafts, acceptance is measured without decoding too.
        texts: {domain: texts}, or texts. Each text is a row of at least 16 ids, or a string if a
            tokenizer is given. None: a few of the shipped prompts if a tokenizer is given, else
            text that the target writes itself.
        max_new_tokens: of every run of the loop, which stops at the target's end of text.
        temperature: of the loop.
        tokenizer: an object with `encode(text)`.
        seed: of the order of the runs, and of the draws.
        progress: show a bar.

    Returns:
        The verdict, the measurements and the faults.

    Raises:
        ValueError: an argument is out of range; raised before any model runs.
        TypeError: an argument has the wrong type; raised before any model runs.
    """
    checks.model("target", target)
    checks.drafter("drafter", drafter)
    checks.whole("max_new_tokens", max_new_tokens, LEAST)
    checks.number("temperature", temperature)
    domains = rows_of(texts, tokenizer, target)
    longest = max((len(text) for rows in domains.values() for text in rows), default=PROMPT)
    prepare(target, [0] * min(PROMPT, longest), drafter, max_new_tokens, temperature)
    with tqdm(total=5, disable=not progress, desc="diagnose", leave=False) as bar:

        def stage(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        stage("reading the texts")
        domains = domains or {"its own text": own_texts(target, seed)}
        acceptance, controls = without_decoding(target, drafter, domains)
        stage("decoding")
        loop = decode(target, drafter, domains, max_new_tokens, temperature, seed)
        graphs = decode_in_graphs(target, drafter, domains, max_new_tokens, temperature, seed)
        stage("looking for faults")
        evidence = examine(target, drafter, loop, temperature, seed)
        stage("timing passes")
        alone, batches = time_passes(target, drafter, domains, loop.nodes)
        stage("concluding")
        times = {"alone": alone, "batches": batches, "graphs": graphs}
        found = Measured(loop, temperature, acceptance, controls, **evidence, **times)
        return conclude(found, target, {name: len(rows) for name, rows in domains.items()})


def rows_of(texts, tokenizer, target: CausalLM) -> dict[str, list[Tensor]]:
    """Return {domain: rows of ids}; empty if the target has to write its own text."""
    if texts is None:
        shipped = evaluation_prompts() if tokenizer is not None else {}
        texts = {name: [row["text"] for row in rows[:2]] for name, rows in shipped.items()}
    elif isinstance(texts, str) or not isinstance(texts, (Mapping, Sequence)) or not len(texts):
        raise ValueError(
            f"texts={texts!r}: must be None, texts, or {{domain: texts}}, at least one of them"
        )
    domains = texts if isinstance(texts, Mapping) else {"text": texts}
    return {str(n): [row_of(row, tokenizer, target) for row in rows] for n, rows in domains.items()}


def row_of(text, tokenizer, target: CausalLM) -> Tensor:
    """Return the ids [≤ READ] of one text on the target's device."""
    if isinstance(text, str):
        if tokenizer is None:
            raise ValueError("texts contains strings: give tokenizer, or rows of token ids")
        text = tokenizer.encode(text)
    row = torch.as_tensor(text).flatten().long()
    if len(row) < LEAST:
        raise ValueError(
            f"texts contains one of {len(row)} tokens: each must have at least {LEAST}"
        )
    outside = row[(row < 0) | (row >= target.vocab_size)].tolist()
    if outside:
        raise ValueError(
            f"texts contains token {outside[0]}: the target's ids are 0 … {target.vocab_size - 1}"
        )
    return row[: min(READ, target.max_positions)].to(target.device)


def own_texts(target: CausalLM, seed: int, count: int = 3) -> list[Tensor]:
    """Return texts that the target writes at temperature 1, each after one random token."""
    rng = torch.Generator().manual_seed(seed)
    starts = torch.randint(target.vocab_size, (count, 1), generator=rng)
    texts = []
    for start in starts:
        out = generate(target, start, None, PROMPT, 1.0, stop_token_ids=(), seed=seed)
        texts.append(torch.cat((start, out.tokens.cpu())).to(target.device))
    return texts
