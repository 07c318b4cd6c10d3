"""The live page's loop emits the target's distribution, by enumeration of a toy model."""

import random

import pytest
import torch
from node import live_module


def toy_row(table: list[list[float]], text: tuple[int, ...], vocab: int) -> list[float]:
    """Return the toy model's logits after a text."""
    code = 7
    for token in text:
        code = (code * vocab + token + 1) % len(table)
    return table[code]


def plain_distribution(table, prompt, vocab, length, temperature, stop) -> dict[str, float]:
    """Return the distribution of `length` tokens drawn one by one from the target's softmax."""
    ended, growing = {}, {(): 1.0}
    for _ in range(length):
        longer: dict[tuple, float] = {}
        for text, weight in growing.items():
            logits = torch.tensor(toy_row(table, (*prompt, *text), vocab), dtype=torch.float64)
            for token, prob in enumerate((logits / temperature).softmax(-1).tolist()):
                new = (*text, token)
                (ended if token == stop else longer)[new] = weight * prob
        growing = longer
    return {",".join(map(str, text)): weight for text, weight in (ended | growing).items()}


def variation(first: dict[str, float], second: dict[str, float]) -> float:
    """Return the total variation between two distributions of texts."""
    return (
        sum(abs(first.get(key, 0) - second.get(key, 0)) for key in first.keys() | second.keys()) / 2
    )


@pytest.mark.parametrize("stop", [-1, 1])
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_the_emitted_distribution_is_that_of_the_target(gamma, stop):
    """Enumerate every outcome of the page's loop; an rng that accepts too often fails the test."""
    draw = random.Random(gamma)
    target, draft = [[[draw.gauss(0, 1.2) for _ in range(3)] for _ in range(11)] for _ in range(2)]
    toy = {
        "target": target,
        "draft": draft,
        "vocab": 3,
        "prompt": [2],
        "gamma": gamma,
        "temperature": 0.8,
        "wanted": 3,
        "stop": stop,
    }
    expected = plain_distribution(target, (2,), 3, 3, 0.8, stop)
    assert sum(expected.values()) == pytest.approx(1)
    assert variation(live_module("law", **toy)["blocks"], expected) < 1e-12
    assert variation(live_module("law", **toy, broken=True)["blocks"], expected) > 0.01
