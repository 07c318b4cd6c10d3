"""Trees: shapes, the dynamic program against all trees, draws, fed nodes, and inner sessions."""

from itertools import product

import pytest
from hypothesis import given, settings, strategies as st
from models_zoo import PROMPT, native, perturbed

from specdec_lite import TokenTree, generate, stream
from specdec_lite.acceptance import k_seq, sample_and_match, speculative_sampling
from specdec_lite.drafters import (
    FixedTreeDrafter,
    MergedDrafter,
    ModelDrafter,
    SequoiaDrafter,
    SpecExecDrafter,
)
from specdec_lite.drafters.trees import (
    balanced,
    best_shape,
    expected_tokens,
    sibling_rates,
    with_replacement,
)
from specdec_lite.measure.timing import Costs
from specdec_lite.proposal import Step

TARGET = native()
DRAFT = perturbed(TARGET)


def steps_of(drafter, temperature=1.0, **options):
    return list(stream(TARGET, PROMPT, drafter, 40, temperature, seed=5, **options))


def fits(tree, shape, node=-1, place=-1):
    """Return whether every node has the children that the shape gives it."""
    below = list(zip(tree.children(node), shape.children(place), strict=True))
    return all(fits(tree, shape, child, twin) for child, twin in below)


def test_every_full_round_has_the_shape_and_one_pass_per_inner_level():
    shape = TokenTree([0, 0, 1, 0], [-1, -1, 0, 0])
    steps = steps_of(FixedTreeDrafter(DRAFT, shape))
    assert all(fits(step.tree, shape) and step.draft_passes == 2 for step in steps[:-3])
    assert all(len(set(s.tree.tokens[list(s.tree.children(-1))].tolist())) == 2 for s in steps[:-3])


def test_rows_that_run_out_of_tokens_have_fewer_children():
    steps = steps_of(FixedTreeDrafter(DRAFT, balanced([4, 1])), top_k=2)
    assert {len(step.tree.children(-1)) for step in steps[:-2]} == {2}


def test_independent_draws_share_nodes_under_k_seq():
    drafter = FixedTreeDrafter(TARGET, balanced([3, 2]), with_replacement)
    steps = steps_of(drafter, 0.4, rule=k_seq(6))
    assert all(step.accepted == 2 for step in steps[:-2]), "p = q: rho is 1"
    assert any(len(step.tree) < step.drafted for step in steps)


def test_k_seq_refuses_a_shape_that_it_cannot_verify_before_decoding():
    class Never(FixedTreeDrafter):
        def start(self, context):
            raise AssertionError("decoding began")

    for drafter, message in (
        (Never(TARGET, balanced([3, 1]), with_replacement), "at most 2 draws"),
        (Never(TARGET, balanced([2, 1])), "independent"),
    ):
        with pytest.raises(ValueError, match=message):
            steps_of(drafter, rule=k_seq(2))
    assert steps_of(FixedTreeDrafter(TARGET, balanced([1, 1])), rule=k_seq(2))


def test_specexec_keeps_the_likeliest_nodes_under_both_rules():
    step = steps_of(SpecExecDrafter(DRAFT, 6, width=3))[0]
    assert len(step.tree) == 6 and step.draw_counts == (1,) * 6 and set(step.q) == {1.0}
    walked, matched = (
        sum(s.accepted for s in steps_of(SpecExecDrafter(DRAFT, 6), rule=rule)) > 0
        for rule in (speculative_sampling, sample_and_match)
    )
    assert walked and matched
    greedy = steps_of(SpecExecDrafter(TARGET, 4, width=1), 0.0)
    assert all(step.accepted == step.tree.levels for step in greedy) and greedy[0].accepted == 4


def test_equal_greedy_drafts_are_merged_into_one():
    both = steps_of(MergedDrafter([ModelDrafter(DRAFT, 3)] * 3), 0.0)
    one = steps_of(ModelDrafter(DRAFT, 3), 0.0)
    assert [s.tokens for s in both] == [s.tokens for s in one]
    assert all(len(step.tree) == len(other.tree) for step, other in zip(both, one))
    assert all(step.draft_passes == 9 for step in both[:-3])


# Shapes -------------------------------------------------------------------------------------------

TOY = (0.6, 0.15, 0.06, 0.03)
RATES = st.lists(st.floats(0, 1), min_size=1, max_size=3).map(
    lambda rates: [rate / max(1, sum(rates)) for rate in rates]
)


def every_tree(nodes):
    """Yield all trees of n nodes whose siblings have ranks in order."""
    for parents in product(*(range(-1, node) for node in range(nodes))):
        ranks = [parents[:node].count(parent) for node, parent in enumerate(parents)]
        yield TokenTree(ranks, parents)


@given(RATES, st.integers(0, 5), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_no_tree_is_better_than_the_best_one(rates, nodes, depth):
    best = best_shape(rates, nodes, depth)
    assert len(best) <= nodes and best.levels <= depth
    fitting = [
        expected_tokens(tree, rates)
        for size in range(nodes + 1)
        for tree in every_tree(size)
        if tree.levels <= depth and max(tree.tokens.tolist(), default=0) < len(rates)
    ]
    assert expected_tokens(best, rates) == pytest.approx(max(fitting))


@given(RATES, st.integers(1, 24), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_with_falling_rates_the_greedy_tree_is_as_good(rates, nodes, depth):
    rates = sorted(rates, reverse=True)
    greedy = TokenTree.best([rates] * depth, nodes)
    assert expected_tokens(best_shape(rates, nodes, depth), rates) == pytest.approx(
        expected_tokens(greedy, rates)
    )


def test_a_better_second_sibling_still_needs_the_first():
    """A greedy choice would add the second sibling without the first."""
    assert best_shape((0.1, 0.8), 2).parents == (-1, -1)
    assert TokenTree.best([(0.1, 0.8)] * 2, 2).tokens.tolist() == [1, 1]


@pytest.mark.parametrize("nodes, tree, chain", [(4, 2.33, 2.31), (8, 2.71, 2.47), (16, 3.09, 2.50)])
def test_expected_tokens_of_the_toy_example(nodes, tree, chain):
    assert expected_tokens(best_shape(TOY, nodes), TOY) == pytest.approx(tree, abs=5e-3)
    assert expected_tokens(balanced([1] * nodes), TOY) == pytest.approx(chain, abs=5e-3)


def test_sequoia_drafts_the_best_shape_and_takes_the_clock_into_account():
    assert SequoiaDrafter(DRAFT, 16, 2, TOY).tree == best_shape(TOY, 16, 2)
    of = lambda nodes, target, **costs: (
        SequoiaDrafter(DRAFT, nodes, None, TOY, Costs(target, **costs)).tree
    )
    flat, steep = {1: 1.0, 65: 1.0}, {k: float(k) for k in (1, 2, 33)}
    assert of(32, flat) == best_shape(TOY, 32) and len(of(64, {1: 1.0, 9: 1.0})) == 8
    assert len(of(32, steep)) == 0 and len(of(8, steep, overhead=50.0)) == 8
    assert of(16, flat, draft=9.0, draft_in_loop=1.0) == of(16, flat, draft=1.0) != of(16, flat)
    drafter = SequoiaDrafter(DRAFT, 16, costs=Costs(steep))
    assert drafter.limits().nodes == 0
    assert generate(TARGET, PROMPT, drafter, 8).stats.tokens == 8


def test_rates_are_counted_from_the_tests():
    step = lambda path, tests: Step((), TokenTree((), ()), path, 0, "recovered", tests, (), (), ())
    steps = [step((0,), (1, 2)), step((), (2,)), step((4,), (2, 2))]
    assert sibling_rates(steps, 2) == [1 / 5, 1 / 5]
