"""The tree-budget explorer: its JavaScript against the dynamic program, and its use in a browser."""

import pytest
from javascript import evaluate, formula
from mounting import says

from specdec_book.viz import TreeBudget
from specdec_lite.drafters.trees import best_shape, expected_tokens, fastest_shape

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
    target = {k: 1 + stretch * (t - 1) for k, t in zip(KS, TIMES)}
    right = fastest_shape(RATES[0], target, 0.06, 0.05)
    between = lambda k: formula("tree_budget", "pass", KS, TIMES, k, stretch)
    price = lambda tree: between(1 + len(tree)) + 0.06 * tree.levels + 0.05
    assert found["all"][found["nodes"]] == pytest.approx(
        expected_tokens(right, RATES[0]) / price(right)
    )


@pytest.mark.browser
def test_the_task_is_solved_by_keyboard_and_mouse(used):
    page = used(TreeBudget(**STATE))
    says(page, ".sdl-task-state", "Set the growth")
    growth = page.get_by_label("Growth of T(k)")
    for _ in range(10):
        growth.press("ArrowRight")
    found = formula("tree_budget", "fastest", STATE | {"stretch": 2.0})
    budget = page.get_by_role("slider", name="Budget")
    budget.press("Home")
    for _ in range(found["nodes"]):
        budget.press("ArrowRight")
    says(page, ".sdl-task-state", "Solved")
