"""Test tree shapes: the dynamic program against all trees, and against measured times."""

from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from specdec_lite.drafters.trees import (
    balanced,
    best_shape,
    expected_tokens,
    fastest_shape,
    sibling_rates,
)
from specdec_lite.speculation import Step
from specdec_lite.tree import TokenTree

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


def test_the_fastest_shape_depends_on_the_measured_times():
    flat = {1: 1.0, 65: 1.0}
    assert len(fastest_shape(TOY, flat, nodes=32)) == 32
    steep = {k: float(k) for k in (1, 2, 33)}
    assert len(fastest_shape(TOY, steep, nodes=32)) == 0
    assert fastest_shape(TOY, flat, draft=1.0, nodes=16).levels < best_shape(TOY, 16).levels
    free, paid = (fastest_shape(TOY, {1: 1.0, 9: 1.4}, draft=d) for d in (0.0, 0.3))
    assert len(free) <= 8 and paid.levels <= free.levels


def test_rates_are_counted_from_the_tests():
    step = lambda path, tests: Step((), TokenTree((), ()), path, 0, "recovered", tests, (), (), ())
    steps = [step((0,), (1, 2)), step((), (2,)), step((4,), (2, 2))]
    assert sibling_rates(steps, 2) == [1 / 5, 1 / 5]
