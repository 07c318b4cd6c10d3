"""How often the first drafted token of a round is accepted, by γ, on both of the book's models.

    python -m benchmarks.openings                # ten minutes on two cores; writes results/openings.json
    python -m benchmarks.openings --texts 1 --new-tokens 16     # a look at it

The target writes; both models read what it wrote, once; where rounds of every γ would begin in that
text follows (`theory.starts_in_text`), so no draft is drawn and γ is all that differs. Beside it
the same chances in another order: without stretches there is nothing that a long draft could run
through. A part that is there is not made again: delete the file to begin anew.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from specdec_lite import CausalLM, generate, load_pair, load_smollm2, results, theory
from specdec_lite.engine.cache import Cache
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.loading.smollm2_tasks import TASKS, chat
from specdec_lite.measure.intervals import estimate, ratio
from specdec_lite.serving.offline import offline

from .command import parser_for, typed

GAMMAS = (1, 2, 4, 8, 16)
SHUFFLES = 20
SKIPPED = (12, 16, 20)
"""Blocks of SmolLM2 that its draft leaves out, as in `stopping`."""
LEAST = 8
"""Tokens below which a text says nothing about rounds."""


@dataclass(frozen=True)
class WithoutBlocks:
    """A model that leaves out some of its blocks, as far as reading a text needs one."""

    model: CausalLM
    skip: Sequence[int]

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    def new_cache(self, capacity: int) -> Cache:
        skip = [(block, part) for block in self.skip for part in ("attention", "mlp")]
        return self.model.new_cache(capacity=capacity).view(skip=skip)

    def score(self, tokens, cache):
        return self.model.score(tokens, cache)


def shipped(options: argparse.Namespace):
    """(target, draft, its name, prompts, stop tokens)."""
    pair = load_pair(device="cpu", dtype="float32")
    prompts = [
        pair.tokenizer.encode(row["text"])
        for rows in evaluation_prompts().values()
        for row in rows[: options.texts]
    ]
    return pair.target, pair.draft, "the shipped draft", prompts, ()


def smollm2(options: argparse.Namespace):
    target, tokenizer = load_smollm2("cpu", "float32")
    prompts = [
        list(chat(tokenizer, task.text))
        for tasks in TASKS.values()
        for task in tasks[: options.texts]
    ]
    name = f"itself without blocks {', '.join(map(str, SKIPPED))}"
    return target, WithoutBlocks(target, SKIPPED), name, prompts, (2,)


MODELS: dict[str, Callable] = {"pair": shipped, "smollm2": smollm2}


def chances(target, draft, prompts, stops, temperature: float, new_tokens: int) -> list[np.ndarray]:
    """For every text, the chance that its own token is an accepted draft's, at each new position."""
    found = []
    for seed, prompt in enumerate(prompts):
        out = generate(
            target, prompt, None, new_tokens, temperature, stop_token_ids=stops, seed=seed
        )
        if len(out.tokens) < LEAST:
            continue
        text = torch.cat((torch.tensor(prompt), out.tokens))
        read = offline(target, draft, text, temperature or 1.0)
        kept = read.kept if temperature else read.greedy
        found.append(kept[-len(out.tokens) :].numpy())
    return found


def openings(kept: np.ndarray, gamma: int) -> tuple[float, float]:
    """(accepted, tested) first tokens of rounds; the text's last token is drafted by nobody."""
    starts = theory.starts_in_text(kept, gamma)[:-1]
    return float(starts @ kept[:-1]), float(starts.sum())


def by_gamma(texts: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """{γ: [2, texts, 1]}: accepted and tested."""
    return {
        gamma: np.array([openings(kept, gamma) for kept in texts]).T[..., None] for gamma in GAMMAS
    }


def shuffled(texts: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """The same of chances in orders drawn anew; summed over the orders."""
    rng = np.random.default_rng(0)
    orders = [by_gamma([rng.permutation(kept) for kept in texts]) for _ in range(SHUFFLES)]
    return {gamma: sum(order[gamma] for order in orders) for gamma in GAMMAS}


def row(texts: Sequence[np.ndarray], temperature: float) -> dict:
    """Shares with intervals by text; `fall` is that at the least γ minus that at the greatest."""
    ways = {"first": by_gamma(texts), "shuffled": shuffled(texts)}
    least, most = min(GAMMAS), max(GAMMAS)
    difference = lambda a, b, c, d: a / b - c / d
    every = np.array([[kept[:-1].sum(), len(kept) - 1] for kept in texts]).T[..., None]
    return {
        "temperature": temperature,
        "texts": len(texts),
        "tokens": sum(map(len, texts)),
        "every": ratio(*every),
        **{
            name: {str(gamma): ratio(*counts) for gamma, counts in way.items()}
            for name, way in ways.items()
        },
        **{
            f"{name}_fall": estimate(difference, *way[least], *way[most])
            for name, way in ways.items()
        },
    }


def main(arguments: list[str] | None = None, models: dict[str, Callable] = MODELS) -> Path:
    parser = parser_for("benchmarks.openings", __doc__)
    parser.add_argument("--texts", type=int, default=4, help="of each kind")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--out", type=Path, default=results.FOLDER / "openings.json")
    options = parser.parse_args(arguments)
    for name, least in (("texts", 1), ("new_tokens", LEAST)):
        if getattr(options, name) < least:
            parser.error(f"--{name.replace('_', '-')}: must be at least {least}")
    stamp = results.stamp(
        "acceptance of rounds' first tokens by γ, from the chances at every position of texts that"
        " the target wrote; intervals by text",
        typed(parser, arguments),
    )
    done = json.loads(options.out.read_text("utf-8"))["targets"] if options.out.exists() else {}
    for name, make in models.items():
        if name in done:
            continue
        target, draft, about, prompts, stops = make(options)
        rows = [
            row(
                chances(target, draft, prompts, stops, temperature, options.new_tokens), temperature
            )
            for temperature in (0.0, 1.0)
        ]
        done[name] = {"draft": about, "gammas": list(GAMMAS), "rows": rows}
        results.save(options.out, stamp, {"targets": done})
    return options.out


if __name__ == "__main__":
    print(main())
