"""Text written in fixed shapes: greedy rows equal the target's, others its distribution."""

import random

import pytest
import torch
from models_zoo import native

from specdec_lite import generate
from specdec_lite.training import static_text
from specdec_lite.training.static_text import GRAM, Order, Writer, first_repetitions


def random_prompts(count, longest, seed=0):
    rng = random.Random(seed)
    return [tuple(rng.randrange(48) for _ in range(rng.randint(2, longest))) for _ in range(count)]


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_refilled_rows_equal_generation_one_by_one(rows, monkeypatch):
    monkeypatch.setattr(static_text, "WIDTH", 16)
    target = native()
    prompts = random_prompts(11, 40)
    plain = [generate(target, p, max_new_tokens=21, stop_token_ids=()).tokens for p in prompts]
    stop = int(plain[0][12])
    writer = Writer(target, rows, 64, (stop,))
    for _ in range(2):  # a writer serves several lists of orders
        texts = list(writer.write([Order(prompt, 0.0) for prompt in prompts], 21))
        assert sorted(order.prompt for order, _ in texts) == sorted(prompts)
        by_prompt = {order.prompt: text.tolist() for order, text in texts}
        for prompt, tokens in zip(prompts, plain):
            answer = tokens.tolist()
            answer = answer[: answer.index(stop) + 1] if stop in answer else answer
            assert by_prompt[prompt] == [*prompt, *answer]


def test_sampled_tokens_follow_the_targets_law():
    target, rows = native(), 4096
    torch.manual_seed(0)
    prompt = (3, 14, 15, 9)
    writer = Writer(target, rows, 64, ())
    orders = [Order(prompt, temperature) for temperature in (0.7, 0.0) for _ in range(rows // 2)]
    drawn: dict[float, list[int]] = {0.7: [], 0.0: []}
    for order, text in writer.write(orders, 1):
        drawn[order.temperature].append(int(text[-1]))
    logits = target.score(torch.tensor([prompt]), target.new_cache()).logits[0, -1].double()
    assert set(drawn[0.0]) == {int(logits.argmax())}
    p = (logits / 0.7).softmax(-1)
    counts = torch.bincount(torch.tensor(drawn[0.7]), minlength=len(p)).double()
    distance = (counts - rows / 2 * p).square() / (rows / 2 * p)
    # chi-square with 47 degrees of freedom: above 100 in 1 of 10⁵ runs, and the seed is fixed
    assert float(distance.sum()) < 100
    warmer = (logits / 0.9).softmax(-1)
    assert float(((counts - rows / 2 * warmer).square() / (rows / 2 * warmer)).sum()) > 100


def test_at_the_deadline_texts_come_as_they_are():
    target, prompts = native(), random_prompts(9, 20)
    texts = list(Writer(target, 4, 64, ()).write([Order(p, 0.0) for p in prompts], 40, seconds=0))
    assert texts == []
    writer = Writer(target, 4, 64, ())
    steps = []
    writer.step = lambda width: (steps.append(width), Writer.step(writer, width))  # type: ignore
    clock = iter([0.0, 0.0, 0.0, 9.0])
    static_text.time, kept = type("Clock", (), {"monotonic": lambda: next(clock)}), static_text.time
    try:
        texts = list(writer.write([Order(p, 0.0) for p in prompts], 40, seconds=5))
    finally:
        static_text.time = kept
    assert len(texts) == 4 and len(steps) == 32
    assert all(len(text) == len(order.prompt) + 32 for order, text in texts)


def slow_end(text, start):
    """Return the length that `first_repetitions` gives, by looking at every pair."""
    grams = set()
    for at in range(start, len(text) - GRAM + 1):
        gram = tuple(text[at : at + GRAM])
        if gram in grams:
            return at + GRAM
        grams.add(gram)
    return len(text)


def test_texts_end_with_their_first_repetition():
    rng = random.Random(0)
    texts, starts = [], []
    for number in range(300):
        text = [rng.randrange(1 + number % 4) for _ in range(rng.randint(1, 60))]
        if number % 3 == 0:
            part = [rng.randrange(40_000) for _ in range(rng.randint(8, 20))]
            text += part + [7] + part + text
        texts.append(torch.tensor(text))
        starts.append(rng.randint(0, min(12, len(text))))
    ends = first_repetitions(texts, starts)
    assert ends == [slow_end(text.tolist(), start) for text, start in zip(texts, starts)]
    assert sum(end < len(text) for end, text in zip(ends, texts)) > 50
    assert first_repetitions([torch.arange(5)], [0]) == [5]
