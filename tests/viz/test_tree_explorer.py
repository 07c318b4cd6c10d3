"""The tree-mask explorer: its JavaScript against `TokenTree` and a search over all trees, its use."""

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
def every_tree(count: int) -> list[tuple[int, ...]]:
    return (
        [()]
        if count == 0
        else [
            (*parents, last) for parents in every_tree(count - 1) for last in range(-1, count - 1)
        ]
    )


@pytest.mark.parametrize("accuracies", HEADS)
def test_the_best_tree_is_the_best_of_all_trees(accuracies):
    budgets = range(1, 7)
    given = evaluate("tree_explorer", "bestTree", [[accuracies, budget] for budget in budgets])
    for budget, parents in zip(budgets, given, strict=True):
        candidates = [
            list(p)
            for count in range(budget + 1)
            for p in every_tree(count)
            if fits(list(p), accuracies)
        ]
        assert fits(parents, accuracies) and len(parents) <= budget
        assert value(parents, accuracies) == pytest.approx(
            max(value(p, accuracies) for p in candidates), rel=1e-12
        )


def test_the_tree_of_the_start_leaves_something_to_find():
    accuracies = GUESSES["accuracies"]
    best = formula("tree_explorer", "bestTree", accuracies, 8)
    assert value(TreeExplorer().parents, accuracies) < value(best, accuracies)


@pytest.mark.browser
def test_the_task_is_solved_by_keyboard(used):
    """Remove all nodes of the first tree, then build the best tree, with one undo."""
    page = used(TreeExplorer())
    open_phone_folds(page)
    page.get_by_role("tree").get_by_role("treeitem", selected=True).focus()
    for key in ("Home", "ArrowRight", "Delete", "ArrowRight", "Delete"):
        page.keyboard.press(key)
    assert page.evaluate("model.get('parents')") == []
    says(page, ".sdl-task-state", "You may add 8 more")
    page.keyboard.press("Delete")
    says(page, ".sdl-summary", "The root is")
    for key in [*["Enter"] * 3, "ArrowRight", *["Enter"] * 3, "ArrowRight", "Enter"]:
        page.keyboard.press(key)
    says(page, ".sdl-task-state", "You may add 1 more")
    assert page.evaluate("document.activeElement.textContent").startswith("node 3")
    # the last node is node 2, above it is node 1
    for key in ("ArrowLeft", "ArrowLeft", "End", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate("model.get('parents')") == [-1, -1, -1, 0, 0, 0, 3, 1]
    says(page, ".sdl-task-state", "Solved")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    says(page, ".sdl-task-state", "over the budget")
    page.get_by_role("button", name="Undo").press("Enter")
    says(page, ".sdl-task-state", "Solved")


@pytest.mark.browser
def test_nodes_are_added_and_removed_by_mouse(used):
    page = used(TreeExplorer())
    open_phone_folds(page)
    nodes = page.get_by_role("treeitem")
    nodes.nth(2).click()
    assert nodes.nth(2).get_attribute("aria-selected") == "true"
    page.locator(".sdl-ghost").click()
    assert page.evaluate("model.get('parents')") == [-1, -1, 0, 0, 0, 1, 1, 1, 2]
    assert nodes.count() == 10
    says(page, ".sdl-summary", "Added under node 2. Node 8")
    page.get_by_role("button", name="Remove").click()
    assert page.evaluate("model.get('parents')") == [-1, -1, 0, 0, 1, 1, 1], (
        "node 2 and its new child are gone"
    )
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Undo").click()
    assert page.evaluate("model.get('parents')") == TreeExplorer().parents
    page.get_by_role("button", name="Show the best tree").click()
    says(page, ".sdl-task-state", "you asked to see")
    assert (
        f"{value(page.evaluate('''model.get('parents')'''), GUESSES['accuracies']):.3f}"
        in page.locator("dl").first.inner_text()
    )
    page.get_by_role("button", name="Reset").click()
    says(page, ".sdl-task-state", "gives more")


@pytest.mark.browser
def test_a_node_shows_its_mask_row_and_its_leaks(mounted):
    page = mounted(TreeExplorer())
    fates = lambda: [
        element.get_attribute("class").split("sdl-")[-1]
        for element in page.get_by_role("treeitem").all()
    ]
    page.get_by_role("treeitem").filter(has_text="node 5").hover()
    says(
        page,
        ".sdl-summary",
        "Node 5 “girl”, position +2, attends to the context, to node 1 above it, and to itself",
    )
    assert fates() == ["seen", *["hidden-from"] * 4, "seen", "shown", *["hidden-from"] * 2]
    assert page.locator(".sdl-cell-leak").count() == 0
    page.get_by_role("button", name="Naive causal mask").click()
    page.get_by_role("treeitem").filter(has_text="node 5").hover()
    says(page, ".sdl-summary", "node 5 attends to node 4, its cousin")
    assert fates() == ["seen", *["leaked"] * 4, "seen", "shown", *["hidden-from"] * 2]
    mask = of(TreeExplorer().parents).mask
    leaks = sum(not mask[i, j] for i in range(8) for j in range(i))
    marks = [page.locator(f".sdl-cell-leak{part}").count() for part in ("", " text")]
    assert marks == [leaks] * 2, "told by a mark, not by color alone"
    assert page.evaluate("model.get('mask_kind')") == "causal"
    page.evaluate("model.set('parents', [-1, 0, 1])")
    says(page, ".sdl-summary", "Nothing leaks")


@pytest.mark.browser
def test_a_full_tree_is_readable_and_takes_no_more(used):
    full = [-1, -1, -1, -1, 0, 0, 0, 0, 4, 4, 4, 8, 8, 8, 1, 1]
    page = used(TreeExplorer(parents=full, mask_kind="causal"))
    assert page.get_by_role("button", name="Naive causal mask").is_visible(), "the mask is open"
    open_phone_folds(page)
    page.get_by_text("Accuracies and nodes").click()
    assert page.locator("details table").last.locator("tbody tr").count() == 16
    boxes = [element.bounding_box() for element in page.get_by_role("treeitem").all()]
    assert all(box["width"] >= 44 and box["height"] >= 24 for box in boxes)
    clash = [
        (a, b)
        for i, a in enumerate(boxes)
        for b in boxes[:i]
        if a["x"] < b["x"] + b["width"]
        and b["x"] < a["x"] + a["width"]
        and a["y"] < b["y"] + b["height"]
        and b["y"] < a["y"] + a["height"]
    ]
    assert clash == []
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
