"""The tree-budget explorer: its JavaScript against the dynamic program."""

import pytest
from javascript import evaluate, formula

from specdec_lite.drafters.trees import best_shape, expected_tokens

RATES = [[0.6, 0.15, 0.06, 0.03], [0.3, 0.3, 0.3], [0.9], [0.05, 0.0]]
KS, TIMES = [1, 2, 5, 17, 65], [1.0, 1.1, 1.15, 1.5, 3.0]
STATE = dict(rates=RATES[0], ks=KS, times=TIMES, draft=0.06, overhead=0.05, stretch=1.0)


def test_the_best_tree_equals_the_dynamic_programs():
    cases = [(rates, n, d) for rates in RATES for n in (0, 1, 5, 16) for d in (1, 3, 16)]
    found = evaluate("tree_budget", "best", map(list, cases))
    for (rates, nodes, depth), tree in zip(cases, found):
        right = expected_tokens(best_shape(rates, nodes, depth), rates)
        assert 1 + sum(node["worth"] for node in tree) == pytest.approx(right)
        assert len(tree) <= nodes and all(node["level"] < depth for node in tree)
        assert all(node["parent"] < i for i, node in enumerate(tree))


@pytest.mark.parametrize("stretch", [0.0, 1.0, 3.0])
def test_the_fastest_budget_equals_the_librarys(stretch):
    found = formula("tree_budget", "fastest", STATE | {"stretch": stretch})
    between = lambda k: formula("tree_budget", "pass", KS, TIMES, k, stretch)
    times = [between(1 + n) for n in range(65)]
    seconds = lambda n, d: times[n] + 0.06 * d + 0.05
    right = best_shape(RATES[0], 64, None, seconds)
    assert found["all"][found["nodes"]] == pytest.approx(
        expected_tokens(right, RATES[0]) / seconds(len(right), right.levels)
    )
