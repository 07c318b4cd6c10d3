"""Exact laws for the tests: of texts that a drafter helped to decode, of the target's own texts, of
random next-token laws.
"""

import torch
from models_zoo import WINDOW, hugging_face, native

from specdec_lite import stream
from specdec_lite.acceptance import block_law, draw_chain, joint_law
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


def exact_text_law(target, drafter, sampling, length, rule=None):
    """{text: probability} of the first `length` tokens, over every outcome of every draw."""

    def run(rng):
        steps = stream(
            target,
            [1, 2],
            drafter,
            length,
            sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            rule,
            rng=rng,
        )
        return tuple(token for step in steps for token in step.tokens)

    law = {}
    for text, weight in outcomes(run):
        law[text] = law.get(text, 0.0) + weight
    return law


def own_text_law(target, sampling, length):
    law = {(): 1.0}
    for _ in range(length):
        rows = {
            text: sampling(target.model(torch.tensor([[1, 2, *text]]))[0, -1]).tolist()
            for text in law
        }
        law = {
            (*text, x): weight * p
            for text, weight in law.items()
            for x, p in enumerate(rows[text])
            if p > 0
        }
    return law


def distance(ours, theirs):
    return (
        sum(
            abs(ours.get(text, 0.0) - theirs.get(text, 0.0)) for text in ours.keys() | theirs.keys()
        )
        / 2
    )


SAMPLINGS = [
    Sampling(),
    Sampling(0.5),
    Sampling(1.5, top_k=2),
    Sampling(1.0, top_p=0.7),
    Sampling(0.0),
]


def random_law(seed, vocabulary=3, zeros=False):
    """A next-token law: prefix → probabilities, different after every prefix; with zeros, some
    tokens are impossible.
    """

    def law(prefix):
        generator = torch.Generator().manual_seed(hash((seed, *prefix)) % (1 << 31))
        weights = torch.rand(vocabulary, generator=generator, dtype=torch.float64) ** 2 + 1e-3
        if zeros:
            weights[int(torch.randint(vocabulary, (), generator=generator))] = 0
        return weights / weights.sum()

    return law


def bias(target, draft, rule, gamma, propose=draw_chain):
    """Total variation between the law of the first γ+1 tokens under the rule and the target's own."""
    emitted = block_law(target, draft, rule, gamma, propose).completed(target, gamma + 1)
    return (emitted - joint_law(target, gamma + 1)).abs().sum().item() / 2
