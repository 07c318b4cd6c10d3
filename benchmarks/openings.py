"""Measure how often the first drafted token of a round is accepted, by γ, on both models.

    python -m benchmarks run first-token-acceptance     # ten minutes on two cores

The target writes texts, and both models score each text once. The starts of the rounds in that text
follow for every γ (`theory.starts_in_text`), so no draft is drawn and only γ differs. A control
uses the same probabilities in random order, where a long draft finds no predictable stretches.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch

from specdec_lite import generate, load_pair, load_smollm2, theory
from specdec_lite.diagnosis.offline import offline
from specdec_lite.measure.intervals import estimate, ratio
from specdec_lite.texts.corpus import evaluation_prompts
from specdec_lite.texts.smollm2_tasks import TASKS, chat

from .experiment import Experiment
from .smollm2 import SKIPPED, without_blocks

GAMMAS = (1, 2, 4, 8, 16)
SHUFFLES = 20
LEAST = 8
"""Fewest tokens of a text that is used."""


def shipped(options: argparse.Namespace):
    """Return target, draft, its name, prompts and stop tokens of the shipped pair."""
    pair = load_pair(device="cpu", dtype="float32")
    prompts = [
        pair.tokenizer.encode(row["text"])
        for rows in evaluation_prompts().values()
        for row in rows[: options.texts]
    ]
    return pair.target, pair.draft, "the shipped draft", prompts, ()


def smollm2(options: argparse.Namespace):
    """Return the same for SmolLM2, whose draft is itself without some blocks."""
    target, tokenizer = load_smollm2("cpu", "float32")
    prompts = [
        list(chat(tokenizer, task.text))
        for tasks in TASKS.values()
        for task in tasks[: options.texts]
    ]
    name = f"itself without blocks {', '.join(map(str, SKIPPED))}"
    return target, without_blocks(target, SKIPPED), name, prompts, (2,)


MODELS: dict[str, Callable] = {"pair": shipped, "smollm2": smollm2}


def acceptance_by_position(
    target, draft, prompts, stops, temperature: float, new_tokens: int
) -> list[np.ndarray]:
    """Return, for every text, the acceptance probability of its own token at each new position."""
    probabilities = []
    for seed, prompt in enumerate(prompts):
        out = generate(
            target, prompt, None, new_tokens, temperature, stop_token_ids=stops, seed=seed
        )
        if len(out.tokens) < LEAST:
            continue
        text = torch.cat((torch.tensor(prompt), out.tokens))
        scores = offline(target, draft, text, temperature or 1.0)
        accepted = scores.kept if temperature else scores.greedy
        probabilities.append(accepted[-len(out.tokens) :].numpy())
    return probabilities


def openings(accepted: np.ndarray, gamma: int) -> tuple[float, float]:
    """Return (accepted, tested) for the first tokens of rounds.

    The text's last token is never drafted.
    """
    starts = theory.starts_in_text(accepted, gamma)[:-1]
    return float(starts @ accepted[:-1]), float(starts.sum())


def by_gamma(texts: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Return {γ: accepted and tested [2, texts, 1]}."""
    return {
        gamma: np.array([openings(accepted, gamma) for accepted in texts]).T[..., None]
        for gamma in GAMMAS
    }


def shuffled(texts: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Return the same for probabilities in random order, summed over several orders."""
    rng = np.random.default_rng(0)
    orders = [by_gamma([rng.permutation(accepted) for accepted in texts]) for _ in range(SHUFFLES)]
    return {gamma: sum(order[gamma] for order in orders) for gamma in GAMMAS}


def row(texts: Sequence[np.ndarray], temperature: float) -> dict:
    """Return the acceptance rates with intervals over texts.

    "fall" is the rate at the smallest γ minus that at the largest.
    """
    orders = {"first": by_gamma(texts), "shuffled": shuffled(texts)}
    least, most = min(GAMMAS), max(GAMMAS)
    difference = lambda a, b, c, d: a / b - c / d
    every = np.array([[accepted[:-1].sum(), len(accepted) - 1] for accepted in texts]).T[..., None]
    return {
        "temperature": temperature,
        "texts": len(texts),
        "tokens": sum(map(len, texts)),
        "every": ratio(*every),
        **{
            name: {str(gamma): ratio(*counts) for gamma, counts in way.items()}
            for name, way in orders.items()
        },
        **{
            f"{name}_fall": estimate(difference, *way[least], *way[most])
            for name, way in orders.items()
        },
    }


class FirstTokenAcceptance(Experiment):
    """The parts are the models."""

    name = "first-token-acceptance"
    what = (
        "acceptance of rounds' first tokens by γ, from the chances at every position of texts that"
        " the target wrote; intervals by text"
    )
    time = "10 minutes"
    quick = f"--texts 1 --new-tokens {LEAST}".split()
    make: ClassVar[dict[str, Callable]] = MODELS
    """Functions from the options to a model's parts, by name."""

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--texts", type=int, default=4, help="texts per kind")
        parser.add_argument("--new-tokens", type=int, default=96)

    def check(self):
        self.check_least(texts=1, new_tokens=LEAST)

    def parts(self):
        return list(self.make)

    def run(self, part):
        target, draft, about, prompts, stops = self.make[part](self.options)
        count = self.options.new_tokens
        rows = [
            row(
                acceptance_by_position(target, draft, prompts, stops, temperature, count),
                temperature,
            )
            for temperature in (0.0, 1.0)
        ]
        return {"draft": about, "gammas": list(GAMMAS), "rows": rows}

    def summarise(self, rows):
        return {"targets": dict(rows)}

    def restore(self, data):
        return data["targets"]
