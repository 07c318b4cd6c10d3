"""How much a rule for several draws at one node accepts, beside the best that any rule can reach."""

from functools import partial

import numpy as np
import pytest
import torch
from broken import backwards, draw_tree
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog
from test_rules import TREES
from text_laws import random_law

from specdec_lite import theory
from specdec_lite.acceptance import (
    Proposal,
    block_distribution,
    joint_distribution,
    k_seq,
    sample_and_match,
    speculative_sampling,
    traversal_verification,
)
from specdec_lite.acceptance.multi import plan
from specdec_lite.drafters.trees import drawn_then_chosen, with_replacement, without_replacement
from specdec_lite.sampling import outcomes
from specdec_lite.tree import TokenTree

EXACT = 1e-12
row = partial(torch.tensor, dtype=torch.float64)
P, Q = row([0.5, 0.3, 0.2]), row([0.3, 0.5, 0.2])
SEEDS = st.integers(0, 2**31)
THREE = pytest.param(3, marks=pytest.mark.registry)  # many more outcomes than two


def accepted(p, q, rule, siblings, k):
    """Return how often one of k siblings is accepted, by running the rule over every outcome."""
    law = block_distribution(lambda _: p, lambda _: q, rule, 1, draw_tree(siblings, k))
    return law.mean_length - 1


def test_the_running_example():
    """p = (.5, .3, .2), q = (.3, .5, .2), two draws."""
    assert accepted(P, Q, speculative_sampling, with_replacement, 1) == pytest.approx(0.8)
    assert accepted(P, Q, sample_and_match, with_replacement, 2) == pytest.approx(0.552)
    assert accepted(P, Q, speculative_sampling, with_replacement, 2) == pytest.approx(0.86)
    assert accepted(P, Q, k_seq(2), with_replacement, 2) == pytest.approx(0.8965, abs=5e-5)
    assert accepted(P, Q, speculative_sampling, without_replacement, 2) == pytest.approx(
        0.92, abs=5e-3
    )
    assert plan(P, Q, 2)[0] == pytest.approx(1.322, abs=5e-4)
    assert theory.optimal_acceptance(P, Q, 2) == pytest.approx(1.0)
    assert theory.optimal_acceptance(P, Q, 2, replace=False) == pytest.approx(1.0)


def sets_of(q, k, siblings):
    """Return {set of drawn tokens: probability}."""
    law = {}
    for family, weight in outcomes(lambda rng: siblings(q, k, rng)):
        tokens = frozenset(family.tokens[family.masses > 0].tolist())
        law[tokens] = law.get(tokens, 0.0) + weight
    return law


def best_by_linear_program(p, law):
    """Return the largest probability, over joint distributions, that a token of p is in a drawn set."""
    sets = list(law)
    cost = [[-float(y in tokens) for y in range(len(p))] for tokens in sets]
    rows = np.zeros((len(sets) + len(p), len(sets) * len(p)))
    for i in range(len(sets)):
        for y in range(len(p)):
            rows[i, i * len(p) + y] = rows[len(sets) + y, i * len(p) + y] = 1
    found = linprog(np.ravel(cost), A_eq=rows, b_eq=[*law.values(), *p.tolist()])
    return -found.fun


RULES = {
    "walk, independent": (speculative_sampling, with_replacement, True),
    "match, independent": (sample_and_match, with_replacement, True),
    "K-SEQ": (k_seq(3), with_replacement, True),
    "traversal, independent": (traversal_verification, with_replacement, True),
    "walk, without replacement": (speculative_sampling, without_replacement, False),
    "traversal, without replacement": (traversal_verification, without_replacement, False),
}


@given(SEEDS, st.sampled_from([(2, 3), (2, 5), (3, 3)]), st.booleans())
@settings(max_examples=8, deadline=None)
def test_the_cut_is_what_a_linear_program_finds_and_no_rule_beats_it(seed, sizes, zeros):
    k, vocabulary = sizes
    p, q = random_law(seed, vocabulary, zeros)(()), random_law(seed + 1, vocabulary, zeros)(())
    for replace, siblings in ((True, with_replacement), (False, without_replacement)):
        optimum = theory.optimal_acceptance(p, q, k, replace)
        assert optimum == pytest.approx(
            best_by_linear_program(p, sets_of(q, k, siblings)), abs=1e-7
        )
        for rule, way, its in RULES.values():
            assert its != replace or accepted(p, q, rule, way, k) <= optimum + EXACT


@given(SEEDS, st.sampled_from([(2, 4), (3, 4), (3, 5)]))
@settings(max_examples=10, deadline=None)
def test_drawn_then_chosen_reaches_the_optimum_of_its_draws(seed, sizes):
    k, vocabulary = sizes
    p, q = random_law(seed, vocabulary)(()), random_law(seed + 1, vocabulary)(())
    ours = accepted(p, q, speculative_sampling, drawn_then_chosen, k)
    assert ours == pytest.approx(
        best_by_linear_program(p, sets_of(q, k, drawn_then_chosen)), abs=1e-7
    )
    assert accepted(p, q, speculative_sampling, backwards(drawn_then_chosen), k) <= ours + EXACT


@pytest.mark.parametrize("k", [2, THREE])
@given(SEEDS)
@settings(max_examples=12, deadline=None)
def test_k_seq_accepts_its_share_of_the_optimum_and_no_less_than_the_walk(k, seed):
    p, q = random_law(seed, 4)(()), random_law(seed + 1, 4)(())
    ours = accepted(p, q, k_seq(k), with_replacement, k)
    assert ours >= (1 - (1 - 1 / k) ** k) * theory.optimal_acceptance(p, q, k) - EXACT
    rho, owed = plan(p, q, k)
    beta = torch.minimum(p / rho, q).sum().item()
    assert ours == pytest.approx(1 - (1 - beta) ** k, abs=1e-9) and 1 <= rho <= k
    assert owed.sum().item() == pytest.approx(1) and owed.min() >= 0
    assert 1 - (1 - beta) ** k == pytest.approx(rho * beta, abs=1e-9)


@given(SEEDS, st.sampled_from([2]))
@settings(max_examples=5, deadline=None)
def test_traversal_never_accepts_fewer_where_siblings_have_equal_trees(seed, vocabulary):
    target, draft = random_law(seed, vocabulary), random_law(seed + 1, vocabulary)
    for way in ("with replacement", "without replacement", "two drafts merged"):
        lengths = [
            block_distribution(target, draft, rule, 2, TREES[way]).mean_length
            for rule in (traversal_verification, speculative_sampling)
        ]
        assert lengths[0] >= lengths[1] - EXACT


def test_a_later_sibling_with_more_below_it_may_cost_traversal_its_lead():
    """The example of book/11_proofs.md: a chosen token, two independent draws, and under the second
    one the token that the target is sure of. What the first draw takes more of, the second one loses.
    """
    first, p, q = (row(each) for each in ([0, 0.4, 0.6], [0, 0.7, 0.3], [0.5, 0.5, 0]))
    sure = row([0, 0, 1])

    def way(law, gamma, rng):
        tokens = [2, rng.draw(q), rng.draw(q)]
        last = 2 if tokens[2] == 1 else 0
        rows = torch.stack([sure, q, q, torch.eye(3).double()[last]])
        return Proposal(TokenTree([*tokens, last], [-1, 0, 0, 2]), rows)

    target = lambda text: first if not text else p if len(text) == 1 else sure
    laws = [
        block_distribution(target, target, rule, 3, way)
        for rule in (speculative_sampling, traversal_verification)
    ]
    assert [law.mean_length - 1 for law in laws] == pytest.approx([1.14, 1.02])
    assert all(
        (law.completed(target, 4) - joint_distribution(target, 4)).abs().sum() < EXACT
        for law in laws
    )
