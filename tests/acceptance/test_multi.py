"""Rules for several draws at one place, held against what they promise, against the best that any
rule can do, and against the published mistakes.
"""

from functools import partial
from itertools import product

import broken
import numpy as np
import pytest
import torch
from broken import grow
from chosen import one_in
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog
from text_laws import bias, random_law

from specdec_lite import theory
from specdec_lite.acceptance import (
    Proposal,
    block_distribution,
    block_verification,
    draw_chain,
    draw_tree,
    joint_distribution,
    k_seq,
    output_distribution,
    sample_and_match,
    speculative_sampling,
    traversal_verification,
)
from specdec_lite.acceptance.multi import plan
from specdec_lite.drafters.trees import (
    drawn_then_chosen,
    likeliest,
    merge,
    with_replacement,
    without_replacement,
)
from specdec_lite.sampling import Sampling, SeededRng, outcomes
from specdec_lite.tree import TokenTree

EXACT = 1e-12
row = partial(torch.tensor, dtype=torch.float64)
P, Q = row([0.5, 0.3, 0.2]), row([0.3, 0.5, 0.2])
SEEDS = st.integers(0, 2**31)
THREE = pytest.param(3, marks=pytest.mark.registry)  # many more outcomes than two
chosen = lambda row, count, rng: likeliest(row, count)
chosen_first = lambda row, count, rng: drawn_then_chosen(row, count, rng)[::-1]


def accepted(p, q, rule, siblings, k):
    """Return how often one of k siblings is accepted, by running the rule over every outcome."""
    law = block_distribution(lambda _: p, lambda _: q, rule, 1, draw_tree(siblings, k))
    return law.mean_length - 1


def two_drafts(law, gamma, rng):
    """Return two merged chains of different models, as in SpecInfer."""
    other = lambda prefix: (law(prefix) ** 2 + 0.1) / (law(prefix) ** 2 + 0.1).sum()
    return merge([draw_chain(law, gamma, rng), draw_chain(other, gamma, rng)])[0]


# Lossless -----------------------------------------------------------------------------------------

TREES = {
    "with replacement": draw_tree(with_replacement, 2),
    "with replacement, not merged": grow(broken.with_replacement(2)),
    "without replacement": draw_tree(without_replacement, 2),
    "chosen": draw_tree(chosen, 2),
    "drawn, then chosen": draw_tree(drawn_then_chosen, 2),
    "chosen, then drawn": draw_tree(chosen_first, 2),
    "two drafts merged": two_drafts,
}


WALKS = [speculative_sampling, sample_and_match, traversal_verification]
THREE_LEVELS = ["without replacement", "drawn, then chosen", "two drafts merged"]


@pytest.mark.parametrize("rule, way, zeros", one_in(14, product(WALKS, TREES, [False, True])))
def test_trees_of_two_levels_are_lossless(rule, way, zeros):
    target, draft = random_law(3, 3, zeros), random_law(12, 3, zeros)
    assert bias(target, draft, rule, 2, TREES[way]) < EXACT


@pytest.mark.parametrize("rule, way", one_in(3, product(WALKS[::2], THREE_LEVELS)))
def test_trees_of_three_levels_are_lossless(rule, way):
    assert bias(random_law(4, 2), random_law(13, 2), rule, 3, TREES[way]) < EXACT


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    "k, gamma, vocabulary", one_in(3, [(1, 2, 3), (2, 1, 5), (3, 1, 4), (2, 2, 2)], ["2 1 5"])
)
def test_k_seq_is_lossless(k, gamma, vocabulary, zeros):
    for seed in range(2):
        target, draft = random_law(seed, vocabulary, zeros), random_law(seed + 9, vocabulary, zeros)
        assert bias(target, draft, k_seq(3), gamma, draw_tree(with_replacement, k)) < EXACT


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("gamma, vocabulary", [(1, 5), (2, 3), (3, 3)])
def test_traversal_of_a_chain_is_block_verification(gamma, vocabulary, zeros):
    target, draft = random_law(5, vocabulary, zeros), random_law(14, vocabulary, zeros)
    block = block_distribution(target, draft, block_verification, gamma).blocks
    ours = block_distribution(target, draft, traversal_verification, gamma).blocks
    assert {text for text, weight in ours.items() if weight > EXACT} <= set(block)
    assert all(ours[text] == pytest.approx(weight, abs=EXACT) for text, weight in block.items())


def at(temperature, law):
    return lambda prefix: Sampling(temperature)(law(prefix).log())


@pytest.mark.parametrize("vocabulary", [2, THREE])
@given(SEEDS, st.sampled_from([0.0, 0.2, 1.0, 3.0]))
@settings(max_examples=8, deadline=None)
def test_any_distributions_at_any_temperature(vocabulary, seed, temperature):
    target, draft = (at(temperature, random_law(each, vocabulary)) for each in (seed, seed + 1))
    way = draw_tree(without_replacement, 2)
    assert bias(target, draft, traversal_verification, 2, way) < EXACT
    assert bias(target, draft, k_seq(2), 1, draw_tree(with_replacement, 2)) < EXACT


# How much is accepted -----------------------------------------------------------------------------


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
        tokens = frozenset(token for token, _ in family)
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
    assert accepted(p, q, speculative_sampling, chosen_first, k) <= ours + EXACT


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


def test_the_prefixes_are_those_of_the_ratio():
    """Order by falling q/p, not by falling q; tokens that p never emits come first."""
    p, q = [0.0, 0.6, 0.4], [0.2, 0.7, 0.1]
    subsets = [[], [0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]
    cuts = [sum(p[i] for i in h) + 1 - sum(q[i] for i in h) ** 2 for h in subsets]
    assert theory.optimal_acceptance(p, q, 2) == pytest.approx(min(cuts), abs=EXACT)


# Negative controls --------------------------------------------------------------------------------

pair = lambda seed, vocabulary=3: (random_law(seed, vocabulary), random_law(seed + 9, vocabulary))
BROKEN = {
    "equal draws merged into one": (
        speculative_sampling,
        grow(broken.with_replacement(2), merge="draws"),
        1,
        0.02,
    ),
    "each draw against the untouched p": (
        broken.residual_not_carried,
        grow(broken.with_replacement(2)),
        1,
        0.02,
    ),
    "siblings sorted by q": (speculative_sampling, grow(broken.sorted_by_q(2)), 1, 0.02),
    "the original q after removal": (
        speculative_sampling,
        grow(broken.without_replacement(2, honest=False)),
        1,
        0.02,
    ),
    "K-SEQ with rho = 1 and a clamp": (
        broken.k_seq_clamped(1.0),
        draw_tree(with_replacement, 2),
        1,
        0.02,
    ),
    "an ancestor's weight computed again": (
        broken.traversal(again=True),
        grow(broken.with_replacement(2)),
        2,
        0.01,
    ),
    "refused siblings forgotten": (
        broken.traversal(independent=True),
        grow(broken.with_replacement(2)),
        2,
        0.02,
    ),
    "paths judged alone, the longest kept": (
        broken.longest_of_independent_paths,
        grow(broken.with_replacement(2)),
        1,
        0.02,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_published_mistakes_are_caught(name):
    rule, way, gamma, margin = BROKEN[name]
    assert any(bias(*pair(seed), rule, gamma, way) > margin for seed in range(3))


def test_the_controls_own_frame_is_right_where_nothing_is_broken():
    way = grow(broken.with_replacement(2))
    assert bias(*pair(0), broken.traversal(), 2, way) < EXACT
    p, q = pair(0)[0](()), pair(0)[1](())
    rho = plan(p, q, 2)[0]
    assert (
        bias(lambda _: p, lambda _: q, broken.k_seq_clamped(rho), 1, draw_tree(with_replacement, 2))
        < 1e-9
    )


# What is counted, and what is refused -------------------------------------------------------------


def test_traversal_counts_the_draws_it_looks_at():
    """Both siblings and the child of the first are rejected, from the leaves up."""
    rows = torch.eye(4).double()
    proposal = Proposal(TokenTree([0, 1, 2], [-1, 0, -1]))
    verdict = traversal_verification(proposal, rows[[3, 0, 0, 0]], SeededRng(0))
    assert (verdict.path, verdict.token, verdict.kind) == ((), 3, "recovered")
    assert verdict.tests == (2, 1)
    verdict = traversal_verification(proposal, rows[[0, 1, 3, 0]], SeededRng(0))
    assert (verdict.path, verdict.token, verdict.kind, verdict.tests) == (
        (0, 1),
        3,
        "bonus",
        (1, 1),
    )


def test_k_seq_of_one_draw_is_speculative_sampling():
    assert (
        output_distribution(P, Q, k_seq(1)) - output_distribution(P, Q, speculative_sampling)
    ).abs().max() < EXACT
    proposal = Proposal(TokenTree([0], [-1]), P[None].expand(2, -1), [0, 0])
    verdict = k_seq(2)(proposal, torch.stack([P, Q]), SeededRng(0))
    assert (verdict.path, verdict.tests, verdict.kind) == ((0,), (1,), "bonus")


@pytest.mark.parametrize(
    "rule, way, message",
    [
        (k_seq(2), draw_tree(without_replacement, 2), "rows at a node"),
        (k_seq(2), draw_tree(chosen, 2), "rows at a node"),
        (k_seq(2), two_drafts, "rows at a node"),
        (k_seq(1), draw_tree(with_replacement, 2), r"k_seq\(1\)"),
    ],
)
def test_k_seq_refuses_draws_that_are_not_independent(rule, way, message):
    with pytest.raises(ValueError, match=message):
        block_distribution(*pair(0), rule, 1, way)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: k_seq(0), "k=0"),
        (lambda: k_seq(1.5), "k=1.5"),
        (lambda: theory.optimal_acceptance(P, Q, 0), "k must be a whole number"),
        (lambda: theory.optimal_acceptance(P, [0.5, 0.5], 2), "share one vocabulary"),
        (lambda: theory.optimal_acceptance([P.tolist()], Q, 2), "one row each"),
        (lambda: theory.optimal_acceptance([1 / 16] * 16, [1 / 16] * 16, 2, False), "at most 12"),
    ],
)
def test_bad_settings_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
