"""The tree-mask explorer: its JavaScript against `TokenTree` and a search over all trees, large trees."""

import itertools
import random
from functools import cache

import pytest
from browsing import accessibility_faults
from javascript import evaluate, formula
from mounting import open_phone_folds, says
from test_formulas import HEADS, TREES, fits, of, value

from specdec_book.viz import TreeExplorer
from specdec_book.viz.interactives import GUESSES


def test_removing_a_node_removes_its_subtree():
    rng = random.Random(1)
    cases = [(parents, rng.randrange(len(parents))) for (parents,) in TREES if parents]
    given = evaluate("tree_explorer", "remove", cases)
    for (parents, node), left in zip(cases, given, strict=True):
        tree = of(parents)
        kept = [i for i in range(len(tree)) if not tree.mask[i, node]]
        names = lambda t, old: sorted(tuple(old[i] for i in t.path(leaf)) for leaf in range(len(t)))
        assert names(of(left), kept) == sorted(tree.path(i) for i in kept)


def test_sample_words_belong_to_the_samples_heads_alone():
    own = TreeExplorer(parents=[-1, 0], accuracies=[[0.5], [0.5]], budget=2)
    assert own.guesses == [] and own.context == ""


@cache
def every_tree(count: int) -> list[list[int]]:
    """Return all trees of a number of nodes."""
    if count == 0:
        return [[]]
    return [[*tree, last] for tree in every_tree(count - 1) for last in range(-1, count - 1)]


@pytest.mark.parametrize("accuracies", HEADS)
def test_the_best_tree_is_the_best_of_all_trees(accuracies):
    budgets = range(1, 7)
    given = evaluate("tree_explorer", "bestTree", [[accuracies, budget] for budget in budgets])
    worths = [0.0]
    for budget, parents in zip(budgets, given, strict=True):
        fitting = [tree for tree in every_tree(budget) if fits(tree, accuracies)]
        worths.append(max([worths[-1], *(value(tree, accuracies) for tree in fitting)]))
        assert fits(parents, accuracies) and len(parents) <= budget
        assert value(parents, accuracies) == pytest.approx(worths[-1], rel=1e-12)


def test_the_tree_of_the_start_leaves_something_to_find():
    accuracies = GUESSES["accuracies"]
    best = formula("tree_explorer", "bestTree", accuracies, 8)
    assert value(TreeExplorer().parents, accuracies) < value(best, accuracies)


@pytest.mark.browser
def test_a_full_tree_is_readable_and_takes_no_more(used):
    full = [-1, -1, -1, -1, 0, 0, 0, 0, 4, 4, 4, 8, 8, 8, 1, 1]
    page = used(TreeExplorer(parents=full, mask_kind="causal"))
    open_phone_folds(page)
    page.get_by_text("Accuracies and nodes").click()
    assert page.locator("details table").last.locator("tbody tr").count() == 16
    boxes = [element.bounding_box() for element in page.get_by_role("treeitem").all()]
    assert all(box["width"] >= 44 and box["height"] >= 24 for box in boxes)
    beside = lambda a, b, start, size: (
        a[start] + a[size] <= b[start] or b[start] + b[size] <= a[start]
    )
    for a, b in itertools.combinations(boxes, 2):
        assert beside(a, b, "x", "width") or beside(a, b, "y", "height")
    page.get_by_role("button", name="Add child").click()
    says(page, ".sdl-summary", "Nothing added")


@pytest.mark.browser
def test_a_deep_tree_scrolls_inside_its_own_frame(mounted):
    """With six heads on a narrow phone, only the tree scrolls, and the focused node is visible."""
    page = mounted(
        TreeExplorer(parents=[-1, 0, 1, 2, 3, 4], accuracies=[[0.6, 0.2]] * 6, budget=6), 340
    )
    open_phone_folds(page)
    page.get_by_role("treeitem").first.focus()
    page.keyboard.press("End")
    says(page, ".sdl-summary", "Node 5, position +6")
    box = page.get_by_role("treeitem").last.bounding_box()
    assert box["width"] >= 40 and box["x"] + box["width"] <= 340
    assert page.evaluate("document.documentElement.scrollWidth") <= 340
    assert accessibility_faults(page) == []
    assert page.evaluate(
        "[...document.querySelectorAll('.sdl-node small')].every((text) => text.scrollWidth <="
        " text.clientWidth)"
    )
