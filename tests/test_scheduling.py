"""A schedule verifies the likeliest survivors, and no token is left out because of its value.

The example that notebooks/17b_verify_what_survives.ipynb enumerates is enumerated here too.
"""

import itertools
import random

import numpy as np
import pytest
import torch
from models_zoo import PROMPT, native, perturbed

from specdec_lite import generate, generate_batch
from specdec_lite.acceptance import block_distribution, block_verification, speculative_sampling
from specdec_lite.batch import run_round, start_rows
from specdec_lite.diagnosis.lossless import tiny_draft, tiny_target
from specdec_lite.drafters import ModelDrafter, TokenRecyclingDrafter
from specdec_lite.options import prepare
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import outcomes
from specdec_lite.scheduling import (
    Confidence,
    FirstDrop,
    StaleBudget,
    best_budget,
    by_survival,
    first_drop,
    within,
)
from specdec_lite.simulation.goodput import estimated
from specdec_lite.simulation.simulate import Running, fixed, poisson, simulate
from specdec_lite.tree import TokenTree

STEPS_PER_SECOND = (1.0, 0.5, 0.45)
"""Of the example in DSpark's appendix A: rounds that verify 0, 1 or 2 tokens of one request."""
EXAMPLE = lambda rows, drafted: 1 / STEPS_PER_SECOND[drafted]


class BestOfAll(FirstDrop):
    """Broken on purpose: search all budgets with predictions that have read the drawn tokens."""

    def lengths(self, chances):
        return within(best_budget(chances, self.seconds), chances)


class Known(Confidence):
    """Predictions that are stated for each text."""

    def __init__(self, chance):
        super().__init__(0)
        self.chance = chance

    def chances(self, proposal):
        tokens = proposal.tree.tokens.tolist()
        return [self.chance(tuple(tokens[:position])) for position in range(len(tokens))]


# What is chosen -----------------------------------------------------------------------------------


def brute_force(chances, seconds):
    """Return the tokens per second of the best prefixes, by trying all of them."""
    choices = itertools.product(*(range(len(row) + 1) for row in chances))
    value = lambda lengths: (
        (len(chances) + sum(np.cumprod(row)[:n].sum() for row, n in zip(chances, lengths)))
        / seconds(len(chances), sum(lengths))
    )
    return max(map(value, choices))


@pytest.mark.parametrize("seed", range(20))
def test_the_best_budget_is_the_best_of_all_prefixes(seed):
    rng = random.Random(seed)
    chances = [[rng.random() for _ in range(rng.randint(0, 3))] for _ in range(3)]
    steps = [1.0]
    for _ in range(9):
        steps.append(steps[-1] + rng.choice([0.0, 0.05, 0.4]))
    seconds = lambda rows, drafted: steps[drafted]
    lengths = within(best_budget(chances, seconds), chances)
    found = len(chances) + sum(np.cumprod(row)[:n].sum() for row, n in zip(chances, lengths))
    assert found / seconds(3, sum(lengths)) == pytest.approx(brute_force(chances, seconds))
    assert first_drop(chances, seconds) <= best_budget(chances, seconds)


def test_an_earlier_token_never_comes_after_a_later_one():
    order = by_survival([[1.0, 1.0, 0.5], [0.9, 1.0]])
    assert [(row, at) for _, at, row in order] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]
    assert within(3, [[1.0, 1.0, 0.5], [0.9, 1.0]]) == [2, 1]
    assert within(99, [[0.5], []]) == [1, 0] and within(0, [[0.5]]) == [0]


def test_first_drop_stops_where_the_search_looks_further():
    """A second token that surely survives pays for a first one that does not pay alone."""
    assert first_drop([[0.8, 1.0]], EXAMPLE) == 0 and best_budget([[0.8, 1.0]], EXAMPLE) == 2
    assert FirstDrop(lambda rows, drafted: 1.0).lengths([[0.1, 0.1], [0.9]]) == [2, 1], "free"
    assert FirstDrop(lambda rows, drafted: 1 + 10 * drafted).lengths([[0.9]]) == [0], "expensive"


# What it emits ------------------------------------------------------------------------------------

FLAT = lambda *row: torch.tensor(row, dtype=torch.float64)
P = lambda text: FLAT(0.7, 0.3) if text == () else FLAT(1, 0)
Q = lambda text: {(): FLAT(0.5, 0.5), (0,): FLAT(1, 0)}.get(text, FLAT(0, 1))
CHANCE = lambda text: {(): 0.8, (0,): 1.0}.get(text, 0.0)


def emitted(schedule, rule, first_round=None):
    """Return the distribution of the first token in the paper's example."""

    def propose(row_after, gamma, rng):
        if first_round is not None:
            schedule.budget = first_round
        tokens, rows = [], []
        for _ in range(gamma):
            rows.append(row_after(tuple(tokens)))
            tokens.append(rng.draw(rows[-1]))
        return schedule.schedule([Proposal(TokenTree.chain(tokens), torch.stack(rows))])[0]

    blocks = block_distribution(P, Q, rule, 2, propose)
    return blocks.completed(P, 1).tolist()


@pytest.mark.parametrize("rule", [speculative_sampling, block_verification])
def test_a_search_of_all_lengths_changes_the_distribution_and_both_cures_keep_it(rule):
    assert emitted(BestOfAll(EXAMPLE, Known(CHANCE)), rule) == pytest.approx([0.85, 0.15])
    assert emitted(FirstDrop(EXAMPLE, Known(CHANCE)), rule) == pytest.approx([0.7, 0.3])
    for budget in range(3):
        stale = StaleBudget(EXAMPLE, Known(CHANCE))
        assert emitted(stale, rule, first_round=budget) == pytest.approx([0.7, 0.3])


SCHEDULES = {FirstDrop: True, StaleBudget: True, BestOfAll: False}
"""Schedules, and whether they keep the distribution."""


def apart(kind) -> float:
    """Return the largest difference from the target's distribution of a row's first token.

    Two rows run one round of a scheduled batch, over all outcomes of their chance.
    """
    target = tiny_target(vocab_size=2)
    drafter = ModelDrafter(tiny_draft(target), 2)
    # Only all four tokens together pay, and only if both second tokens will surely survive.
    seconds = lambda rows, drafted: (1.0, 1.5, 2.0, 2.5, 2.5)[drafted]
    prompts = ([1, 0, 0], [0, 1])
    requests = [prepare(target, prompt, drafter, 4, 1.0) for prompt in prompts]

    def experiment(rng):
        rows, storage = start_rows(requests, [rng, rng])
        schedule = kind(seconds, Known(CHANCE))
        schedule.budget = 2  # of a round before, for `StaleBudget`
        run_round(storage, rows, schedule)
        return [row.steps[0].tokens[0] for row in rows]

    sums = np.zeros((2, 2))
    for tokens, weight in outcomes(experiment):
        sums[[0, 1], tokens] += weight
    logits = (target.score(prompt, target.new_cache()).logits[0, -1] for prompt in prompts)
    return abs(sums - [row.softmax(-1).tolist() for row in logits]).max()


@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_row_of_a_scheduled_batch_keeps_the_distribution_and_a_search_changes_it(kind):
    """All outcomes of a round of two rows that share a budget."""
    assert apart(kind) < 1e-9 if SCHEDULES[kind] else apart(kind) > 1e-3


# A batch of models --------------------------------------------------------------------------------

TARGET = native(dtype=torch.float64)
DRAFT = perturbed(TARGET, 0.5, seed=5)
PROMPTS = [PROMPT, PROMPT[:3], [7, 2]]


@pytest.mark.parametrize("kind", [FirstDrop, StaleBudget])
def test_a_scheduled_batch_writes_the_greedy_text_and_verifies_less(kind):
    drafter = ModelDrafter(DRAFT, 5)
    schedule = kind(lambda rows, drafted: 1 + 0.05 * drafted)
    plain = [generate(TARGET, prompt, None, 24).tokens.tolist() for prompt in PROMPTS]
    outs = generate_batch(TARGET, PROMPTS, drafter, 24, schedule=schedule)
    assert [out.tokens.tolist() for out in outs] == plain
    verified = lambda outs: sum(step.drafted for out in outs for step in out.steps)
    assert 0 < verified(outs) < verified(generate_batch(TARGET, PROMPTS, drafter, 24))


def test_trees_are_refused_by_name():
    schedule = FirstDrop(lambda rows, drafted: 1.0)
    with pytest.raises(ValueError, match="chains"):
        generate_batch(TARGET, PROMPTS, TokenRecyclingDrafter(TARGET), 12, schedule=schedule)


# Confidence ---------------------------------------------------------------------------------------


def chain(rows) -> Proposal:
    rows = torch.tensor(rows, dtype=torch.float64)
    return Proposal(TokenTree.chain(rows.argmax(-1)), rows)


def test_a_confidence_begins_at_the_largest_probability_and_reads_no_token():
    rows = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]
    confidence = Confidence()
    assert confidence.chances(chain(rows)) == pytest.approx([0.7, 0.8])
    other = Proposal(TokenTree.chain([1, 0]), torch.tensor(rows, dtype=torch.float64))
    assert confidence.chances(other) == confidence.chances(chain(rows))
    assert Confidence().chances(Proposal(TokenTree.chain([1, 0]))) == [0.5, 0.5]


def test_a_confidence_learns_the_rate_of_each_position():
    """Rows that are sure of tokens which are accepted in 90 and 30 of 100 rounds."""
    rng, confidence = random.Random(0), Confidence()
    proposal = chain([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1]])
    for _ in range(3000):
        first, second = rng.random() < 0.9, rng.random() < 0.3
        path = (0, 1) if first and second else (0,) if first else ()
        confidence.observe(proposal, Verdict(path, 0, "recovered", (1,) * (1 + len(path))))
    assert confidence.chances(proposal) == pytest.approx([0.9, 0.3], abs=0.05)
    never = Confidence(0)
    never.observe(proposal, Verdict((), 0, "recovered", (1,)))
    assert never.chances(proposal) == pytest.approx([0.6, 0.6])


# Under load ---------------------------------------------------------------------------------------

TOY = estimated(lambda batch, k: max(1.0, batch * k / 64), lambda batch: 0.02)


def test_a_simulation_accounts_for_every_token_of_a_schedule():
    rng, survival = np.random.default_rng(0), FirstDrop(TOY.of_drafted).lengths
    requests = poisson(0.6 * 64 / 40, 200, 40, [0.7], rng, spread=0.5)
    run = simulate(requests, TOY, fixed(6), 64, rng, schedule=survival)
    assert sum(each.emitted for each in run.rounds) == 200 * 40


def test_a_spread_keeps_the_mean_acceptance():
    rng = np.random.default_rng(0)
    running = poisson(1.0, 1, 10**6, [0.7], rng, spread=0.5)[0]
    chances = Running(running, 0.0).draft(20_000, rng)
    assert chances.mean() == pytest.approx(0.7, abs=0.02)
    assert chances.var() == pytest.approx(0.5 * 0.7 * 0.3, rel=0.05)
