"""Token trees: depth, mask, paths and builders; merging joins nodes and keeps siblings in order."""

from itertools import product

import pytest
import torch
from hypothesis import given, strategies as st
from strategies import trees

from specdec_lite.tree import TokenTree


def texts(tree):
    """Return the path of tokens to every node."""
    return [tuple(tree.tokens[list(tree.path(node))].tolist()) for node in range(len(tree))]


@given(trees())
def test_depth_mask_children_and_paths_agree(tree):
    n = len(tree)
    assert tree.depth.tolist() == [len(tree.path(node)) - 1 for node in range(n)]
    assert tree.mask.shape == (n, n) and tree.mask.dtype == torch.bool
    for node in range(n):
        assert tree.mask[node].nonzero()[:, 0].tolist() == sorted(tree.path(node))
        assert node in tree.children(tree.parents[node])
        assert list(tree.children(node)) == sorted(tree.children(node))
    assert sum(len(tree.children(node)) for node in range(-1, n)) == n
    leaves = [path[-1] for path in tree.paths()]
    assert leaves == [node for node in range(n) if not tree.children(node)]
    assert {node for path in tree.paths() for node in path} == set(range(n))


@given(st.lists(st.integers(0, 9), max_size=6))
def test_a_chain_is_a_tree_of_only_children(tokens):
    tree = TokenTree.chain(tokens)
    assert tree == TokenTree(tokens, range(-1, len(tokens) - 1)) and tree.is_chain
    assert tree == TokenTree.chain(torch.tensor(tokens, dtype=torch.long))
    assert not TokenTree([1, 2], [-1, -1]).is_chain


def test_cartesian_has_every_combination():
    tree = TokenTree.cartesian([[1], [2, 3], [4, 5, 6]])
    leaves = [(1, b, c) for b in (2, 3) for c in (4, 5, 6)]
    assert texts(tree) == [(1,), (1, 2), (1, 3), *leaves]
    assert TokenTree.cartesian([]) == TokenTree([], [])


@given(st.lists(trees(6), max_size=4))
def test_merge_maps_every_node_to_one_with_its_text(inputs):
    merged, maps = TokenTree.merge(inputs)
    spelled = texts(merged)
    assert len(set(spelled)) == len(spelled) and [len(m) for m in maps] == [len(t) for t in inputs]
    for tree, new in zip(inputs, maps):
        assert [spelled[node] for node in new] == texts(tree)
    assert merged.along([9]) == ()
    for node, text in enumerate(spelled):
        assert merged.along(text) == merged.path(node) == merged.along((*text, 9))
    assert set(spelled) == {text for tree in inputs for text in texts(tree)}


def test_merge_keeps_siblings_in_the_order_of_their_first_draw():
    merged, maps = TokenTree.merge([TokenTree([7, 2, 7, 5], [-1] * 4), TokenTree([5, 9], [-1] * 2)])
    assert merged.tokens.tolist() == [7, 2, 5, 9] and maps == [(0, 1, 0, 2), (2, 3)]


def test_what_a_tree_hands_out_is_the_callers_own():
    TokenTree([1, 2], [-1, 0]).mask[:] = False
    TokenTree([1, 2], [-1, 0]).depth[:] = 9
    assert TokenTree([3, 4], [-1, 0]).mask.tolist() == [[True, False], [True, True]]
    assert TokenTree([3, 4], [-1, 0]).depth.tolist() == [0, 1]


def test_repr_and_equality():
    tree = TokenTree([1, 2], [-1, 0])
    assert eval(repr(tree)) == tree != TokenTree([1, 2], [-1, -1]) and tree != "tree"


# Shapes: trees of ranks ---------------------------------------------------------------------------


TABLES = st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=3), min_size=1, max_size=3)


def every_shape(table, budget):
    """Return all sets of rank paths that are closed under prefixes, adding one node at a time."""
    paths = [
        path
        for level in range(1, len(table) + 1)
        for path in product(*(range(len(row)) for row in table[:level]))
    ]
    found, frontier = {frozenset()}, {frozenset()}
    for _ in range(budget):
        frontier = {
            chosen | {path}
            for chosen in frontier
            for path in paths
            if path not in chosen and (len(path) == 1 or path[:-1] in chosen)
        }
        found |= frontier
    return found


def value(table, path):
    return (
        torch.tensor([table[level][rank] for level, rank in enumerate(path)], dtype=torch.float64)
        .prod()
        .item()
    )


@given(TABLES, st.integers(0, 4))
def test_no_shape_of_this_size_is_worth_more_than_the_best(table, budget):
    tree = TokenTree.best(table, budget)
    most = max(sum(value(table, path) for path in chosen) for chosen in every_shape(table, budget))
    assert len(tree) <= budget and tree.worth(table).sum().item() == pytest.approx(most, abs=1e-12)
    assert tree.worth(table).tolist() == pytest.approx([value(table, text) for text in texts(tree)])
    assert len(set(texts(tree))) == len(tree)


@given(TABLES, st.integers(1, 12))
def test_the_best_shape_begins_with_the_best_smaller_ones(table, budget):
    tree, smaller = TokenTree.best(table, budget), TokenTree.best(table, budget - 1)
    worth = tree.worth(table).tolist()
    assert worth == sorted(worth, reverse=True) and all(worth)
    assert tree.prune(range(len(smaller)))[0] == smaller


def test_the_best_shape_where_ranks_are_out_of_order():
    tree = TokenTree.best([[0.1, 0.6], [0.3, 0.2]], 3)
    assert texts(tree) == [(1,), (1, 0), (1, 1)]
    assert TokenTree.best([[0.5, 0.0]], 9) == TokenTree.chain([0])


def test_a_shape_is_filled_with_the_guesses_of_its_levels():
    shape = TokenTree([0, 2, 1, 0], [-1, -1, 0, 2])
    guesses = torch.tensor([[10, 11, 12], [20, 21, 22], [30, 31, 32]])
    assert shape.fill(guesses) == TokenTree([10, 12, 21, 30], shape.parents)
    assert TokenTree([], []).fill(guesses) == TokenTree([], [])
    # If all ranks are equal, the smallest rank is also the largest.
    assert TokenTree.chain([0, 0]).fill(guesses[:2, :1]) == TokenTree.chain([10, 20])


@given(trees(), st.data())
def test_pruning_keeps_the_text_of_what_stays(tree, data):
    keep = {
        above
        for node in data.draw(st.sets(st.integers(0, max(0, len(tree) - 1))))
        if node < len(tree)
        for above in tree.path(node)
    }
    pruned, old = tree.prune(keep)
    assert old == tuple(sorted(keep)) and [texts(tree)[node] for node in old] == texts(pruned)


def test_a_tree_copies_the_tensor_of_its_tokens():
    buffer = torch.tensor([1, 2])
    tree = TokenTree.chain(buffer)
    buffer[0] = 9
    assert tree.tokens.tolist() == [1, 2]
