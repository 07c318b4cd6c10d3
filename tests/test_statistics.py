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
COUNT, CELLS = 2000, 16


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


def counted(tokens, p, q, seed, cells=CELLS):
    """Return how many tokens are in each of `cells` equally likely cells of the randomized rank."""
    order, rng = (p - q).argsort(), SeededRng(seed)
    before = torch.empty_like(p).scatter_(0, order, p[order].cumsum(0) - p[order])
    ranks = torch.tensor([before[x].item() + rng.uniform() * p[x].item() for x in tokens])
    return torch.bincount((ranks * cells).long().clamp(max=cells - 1), minlength=cells)


def first_tokens(rule, sampling, seed, count=COUNT):
    """Return the first emitted tokens of `count` rounds with one drafted token."""
    (p, q), rng = laws(sampling), SeededRng(seed)
    both, emitted = torch.stack([p, p]), []
    for _ in range(count):
        token = rng.draw(q)
        verdict = rule(Proposal(TokenTree.chain([token]), q[None]), both, rng)
        emitted.append(token if verdict.path else verdict.token)
    return emitted


def follows(p_value) -> bool:
    """Rerun once on a fresh seed: a false alarm occurs once in 1e8 runs."""
    return any(p_value(seed) > LEVEL for seed in (1, 2))


def first_token_p_value(rule, sampling):
    return lambda seed: (
        stats.chisquare(
            counted(first_tokens(rule, sampling, seed), *laws(sampling), seed + 100).numpy()
        ).pvalue
    )


@pytest.mark.statistical(rate=RATE)
@pytest.mark.parametrize("rule, sampling", one_in(8, product(RULES, SETTINGS)))
def test_every_lossless_rule_on_the_pairs_own_distributions(rule, sampling):
    assert follows(first_token_p_value(rule, sampling))


@pytest.mark.parametrize("sampling", one_in(4, SETTINGS))
def test_a_broken_rule_fails_the_same_test(sampling):
    assert not follows(first_token_p_value(broken.recovered_from_p, sampling))


# Whole generations --------------------------------------------------------------------------------


def row(which, sampling, ids):
    model = getattr(shipped(), which)
    return sampling(model.score(list(ids), model.new_cache(), last=True).logits[0, -1].double())


def generation_p_value(drafter, sampling, rule=None, count=250, side=4):
    """Return the chi-square of the first two tokens of generations, in side × side cells."""
    prompt = tuple(document()[:24])
    seen = cache(lambda ids: (row("target", sampling, ids), row("draft", sampling, ids)))

    def p_value(seed):
        rng, cells = SeededRng(seed), torch.zeros(side, side)
        for number in range(count):
            steps = stream(
                shipped().target,
                prompt,
                drafter,
                3,
                sampling.temperature,
                sampling.top_k,
                sampling.top_p,
                rule,
                rng=rng,
            )
            first, second, _ = (token for step in steps for token in step.tokens)
            ranks = [
                counted([token], *seen(before), 10_000 * seed + number + shift, side).argmax()
                for token, before, shift in ((first, prompt, 0), (second, (*prompt, first), 5_000))
            ]
            cells[tuple(ranks)] += 1
        return stats.chisquare(cells.flatten().numpy()).pvalue

    return p_value


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
    assert follows(generation_p_value(ModelDrafter(shipped().draft, 2), sampling, rule))


@pytest.mark.slow
def test_block_verification_with_an_early_break_fails_the_same_test():
    assert not follows(
        generation_p_value(
            ModelDrafter(shipped().draft, 2), Sampling(1.0), broken.block_with_early_break
        )
    )


def test_the_false_alarm_rate_of_the_whole_suite(request):
    rates = request.config.stash[RATES]
    assert rates and sum(rates) < 1e-4
