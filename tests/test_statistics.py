"""The distribution of the shipped pair's text, by sampling, over temperatures, top-k and top-p.

A chi-square test must pass.

**Cells.** A token x drawn from a distribution p has the randomized rank Σ p(tokens before x) + v·p(x)
with v uniform. This rank is uniform for every p, so all cells are equally likely without pooling.
Tokens are ranked by p − q: those that the draft proposes too rarely come last, where a biased rule
shows.

**False alarms.** A chi-square test fails when its p-value is below 1e-4 on one seed and again on a fresh
seed: 1e-8 per test. The marker `statistical(rate)` states the rate of every such test of the suite, and
a test checks that their sum is below 1e-4 per run.
"""

from functools import cache
from itertools import product

import broken
import pytest
import torch
from chosen import one_in
from conftest import RATES
from models_zoo import shipped
from scipy import stats

from specdec_lite import corpus, stream
from specdec_lite.acceptance import (
    Proposal,
    block_verification,
    sample_and_match,
    speculative_sampling,
)
from specdec_lite.drafters import ModelDrafter
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.tree import TokenTree

LEVEL = 1e-4
RATE = LEVEL**2
SETTINGS = [
    Sampling(0.3),
    Sampling(0.7),
    Sampling(1.0),
    Sampling(1.5),
    Sampling(2.0),
    Sampling(1.0, top_k=5),
    Sampling(1.0, top_p=0.9),
    Sampling(2.0, top_k=50, top_p=0.8),
]
RULES = [speculative_sampling, block_verification, sample_and_match]


@cache
def document():
    return shipped().tokenizer.encode(corpus.held_out_text()["code"][0])[:96]


@cache
def logits():
    """Return the rows [96, V] of target and draft, float64, after prefixes of a held-out document."""
    return [
        model.score(document(), model.new_cache()).logits[0].double()
        for model in (shipped().target, shipped().draft)
    ]


@cache
def laws(sampling):
    """Return p and q [V] where recovering from p, not from the residual, is most wrong."""
    p, q = (sampling(rows) for rows in logits())
    rejected = 1 - torch.minimum(p, q).sum(-1, keepdim=True)
    error = (torch.minimum(p, q) + rejected * p - p).abs().sum(-1) / 2
    place = int(error[8:].argmax()) + 8
    return p[place], q[place]


def p_value(texts, rows, side, rng):
    """Return the p-value of a chi-square test of texts [count, length] in side^length cells.

    rows(tokens) → p and q [V] of the next token.
    """

    @cache
    def before(prefix):
        p, q = rows(prefix)
        order = (p - q).argsort()
        return p, torch.empty_like(p).scatter_(0, order, p[order].cumsum(0) - p[order])

    def cell(prefix, token):
        p, mass = before(prefix)
        return min(side - 1, int(side * (mass[token].item() + rng.uniform() * p[token].item())))

    cells = torch.zeros([side] * len(texts[0]))
    for text in texts:
        cells[tuple(cell(text[:i], token) for i, token in enumerate(text))] += 1
    return stats.chisquare(cells.flatten().numpy()).pvalue


def follows(texts_of, rows, side) -> bool:
    """Rerun once on a fresh seed: a false alarm occurs once in 1e8 runs."""
    rngs = (SeededRng(seed) for seed in (1, 2))
    return any(p_value(texts_of(rng), rows, side, rng) > LEVEL for rng in rngs)


def rounds_follow(rule, sampling, count=2000):
    """Test the first emitted tokens of `count` rounds with one drafted token, in 16 cells."""
    p, q = laws(sampling)
    both = torch.stack([p, p])

    def texts(rng):
        for _ in range(count):
            token = rng.draw(q)
            verdict = rule(Proposal(TokenTree.chain([token]), q[None]), both, rng)
            yield (token if verdict.path else verdict.token,)

    return follows(lambda rng: [*texts(rng)], lambda _: (p, q), 16)


@pytest.mark.statistical(rate=RATE)
@pytest.mark.parametrize("rule, sampling", one_in(8, product(RULES, SETTINGS)))
def test_every_lossless_rule_on_the_pairs_own_distributions(rule, sampling):
    assert rounds_follow(rule, sampling)


@pytest.mark.parametrize("sampling", one_in(4, SETTINGS))
def test_a_broken_rule_fails_the_same_test(sampling):
    assert not rounds_follow(broken.recovered_from_p, sampling)


# Whole generations --------------------------------------------------------------------------------


def generations_follow(sampling, rule, count=250):
    """Test the first two tokens of generations that draft two, in 4 × 4 cells."""
    prompt, drafter = document()[:24], ModelDrafter(shipped().draft, 2)
    options = (3, sampling.temperature, sampling.top_k, sampling.top_p, rule)

    def text(rng):
        steps = stream(shipped().target, prompt, drafter, *options, rng=rng)
        return tuple(token for step in steps for token in step.tokens)[:2]

    def rows(prefix):
        ids = [*prompt, *prefix]
        models = (shipped().target, shipped().draft)
        all_logits = [m.score(ids, m.new_cache(), last=True).logits[0, -1] for m in models]
        return [sampling(each.double()) for each in all_logits]

    return follows(lambda rng: [text(rng) for _ in range(count)], rows, 4)


LONG = pytest.mark.weekly


@pytest.mark.slow
@pytest.mark.statistical(rate=RATE)
@pytest.mark.parametrize(
    "sampling",
    [Sampling(1.0), *(pytest.param(s, marks=LONG) for s in SETTINGS if s != Sampling(1.0))],
    ids=str,
)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_whole_generations_of_the_pair(rule, sampling):
    """Draft two tokens: then block verification differs from speculative sampling."""
    assert generations_follow(sampling, rule)


@pytest.mark.slow
def test_block_verification_with_an_early_break_fails_the_same_test():
    assert not generations_follow(Sampling(1.0), broken.block_with_early_break)


def test_the_false_alarm_rate_of_the_whole_suite(request):
    rates = request.config.stash[RATES]
    assert rates and sum(rates) < 1e-4
