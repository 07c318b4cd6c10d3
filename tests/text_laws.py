"""Exact distributions for the tests: of speculative texts, of the target's own texts, and random."""

import math

import torch
from models_zoo import WINDOW, hugging_face, native

from specdec_lite import stream
from specdec_lite.acceptance import block_distribution, draw_chain, joint_distribution
from specdec_lite.diagnosis.enumeration import TooManyOutcomes, distance as distance
from specdec_lite.sampling import Sampling, outcomes

NATIVE = {
    "native": {},
    "native with a window": dict(window=WINDOW),
    "native, all options": dict(num_kv_heads=4, qkv_bias=True, qk_norm=True, tied=True),
}


def model_named(name):
    return native(**NATIVE[name]) if name in NATIVE else hugging_face(name)


TINY = dict(
    hidden_size=16, num_heads=2, num_kv_heads=1, num_layers=1, intermediate_size=16, scale=0.6
)


START = (1, 2)
"""The prompt of the enumerated texts."""


def exact_text_law(
    target,
    drafter,
    sampling,
    length,
    rule=None,
    processors=(),
    prompt=START,
    most=math.inf,
    noise=lambda rng: rng,
):
    """Return {text: probability} of the first `length` tokens, over every outcome of every draw.

    It raises TooManyOutcomes beyond `most` of them. `noise` makes a run's rng of the enumerating one.
    """

    def run(rng):
        steps = stream(
            target,
            prompt,
            drafter,
            length,
            sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            rule,
            (),
            rng=noise(rng),
            processors=processors,
        )
        return tuple(token for step in steps for token in step.tokens)

    probs = {}
    for count, (text, weight) in enumerate(outcomes(run), 1):
        if count > most:
            raise TooManyOutcomes
        probs[text] = probs.get(text, 0.0) + weight
    return probs


def by_the_module(target, ids):
    """Return the logits [V] after a text, of the bare module, without our cache or mask."""
    return target.model(ids[None])[0, -1]


def own_text_law(target, sampling, length, processors=(), prompt=START, logits=by_the_module):
    """Return {text: probability} of the target's first `length` tokens, without a drafter."""

    def row(text):
        ids = torch.tensor([*prompt, *text])
        after = logits(target, ids)
        for processor in processors:
            after = processor(ids, after)
        return sampling(after).tolist()

    probs = {(): 1.0}
    for _ in range(length):
        rows = {text: row(text) for text in probs}
        probs = {
            (*text, x): weight * p
            for text, weight in probs.items()
            for x, p in enumerate(rows[text])
            if p > 0
        }
    return probs


SAMPLINGS = [
    Sampling(),
    Sampling(0.5),
    Sampling(1.5, top_k=2),
    Sampling(1.0, top_p=0.7),
    Sampling(0.0),
]


def random_law(seed, vocabulary=3, zeros=False):
    """Return a random function from a prefix to the probabilities of the next token."""

    def distribution(prefix):
        generator = torch.Generator().manual_seed(hash((seed, *prefix)) % (1 << 31))
        weights = torch.rand(vocabulary, generator=generator, dtype=torch.float64) ** 2 + 1e-3
        if zeros:
            weights[int(torch.randint(vocabulary, (), generator=generator))] = 0
        return weights / weights.sum()

    return distribution


def bias(target, draft, rule, gamma, propose=draw_chain):
    """Return the total variation between the first γ+1 tokens under the rule and the target's own."""
    emitted = block_distribution(target, draft, rule, gamma, propose).completed(target, gamma + 1)
    return (emitted - joint_distribution(target, gamma + 1)).abs().sum().item() / 2
