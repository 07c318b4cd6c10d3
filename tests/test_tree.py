"""Token trees: depth, mask, paths, builders; and merging, which joins nodes and keeps siblings in order."""
import pytest
import torch
from hypothesis import given, strategies as st

from specdec_lite.tree import TokenTree


@st.composite
def trees(draw, size=12):
    parents = [draw(st.integers(-1, node - 1)) for node in range(draw(st.integers(0, size)))]
    return TokenTree([draw(st.integers(0, 3)) for _ in parents], parents)


def texts(tree):
    """The text of every node."""
    return [tuple(tree.tokens[list(tree.path(node))].tolist()) for node in range(len(tree))]


@given(trees())
def test_depth_mask_children_and_paths_agree(tree):
    n = len(tree)
    assert tree.depth.tolist() == [len(tree.path(node)) - 1 for node in range(n)]
    assert tree.mask.shape == (n, n) and tree.mask.dtype == torch.bool
    for node in range(n):
        assert tree.mask[node].nonzero()[:, 0].tolist() == sorted(tree.path(node))
        assert node in tree.children(tree.parents[node]) and list(tree.children(node)) == sorted(tree.children(node))
    assert sum(len(tree.children(node)) for node in range(-1, n)) == n
    leaves = [path[-1] for path in tree.paths()]
    assert leaves == [node for node in range(n) if not tree.children(node)]
    assert {node for path in tree.paths() for node in path} == set(range(n))


@given(st.lists(st.integers(0, 9), max_size=6))
def test_a_chain_is_a_tree_of_only_children(tokens):
    tree = TokenTree.chain(tokens)
    assert tree.is_chain and tree.depth.tolist() == list(range(len(tokens))) and len(tree.paths()) == bool(tokens)
    assert torch.equal(tree.mask, torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril())
    assert tree == TokenTree.chain(torch.tensor(tokens, dtype=torch.long)) and not TokenTree([1, 2], [-1, -1]).is_chain


def test_cartesian_has_every_combination():
    tree = TokenTree.cartesian([[1, 2], [3, 4, 5]])
    assert len(tree) == 2 + 6 and sorted(tuple(tree.tokens[list(path)].tolist()) for path in tree.paths()) == [(a, b) for a in (1, 2) for b in (3, 4, 5)]
    assert TokenTree.cartesian([]) == TokenTree([], [])


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=5))
def test_from_paths_spells_every_path_with_the_fewest_nodes(paths):
    tree = TokenTree.from_paths(paths)
    prefixes = {tuple(path[:i]) for path in paths for i in range(1, len(path) + 1)}
    assert sorted(texts(tree)) == sorted(prefixes)


@given(st.lists(trees(6), max_size=4))
def test_merge_maps_every_node_to_one_with_its_text(inputs):
    merged, maps = TokenTree.merge(inputs)
    spelled = texts(merged)
    assert len(set(spelled)) == len(spelled) and [len(m) for m in maps] == [len(t) for t in inputs]
    for tree, new in zip(inputs, maps):
        assert [spelled[node] for node in new] == texts(tree)
    assert set(spelled) == {text for tree in inputs for text in texts(tree)}


def test_merge_keeps_siblings_in_the_order_of_their_first_draw():
    merged, maps = TokenTree.merge([TokenTree([7, 2, 7, 5], [-1] * 4), TokenTree([5, 9], [-1] * 2)])
    assert merged.tokens.tolist() == [7, 2, 5, 9] and maps == [(0, 1, 0, 2), (2, 3)]


def test_what_a_tree_hands_out_is_the_callers_own():
    TokenTree([1, 2], [-1, 0]).mask[:] = False
    TokenTree([1, 2], [-1, 0]).depth[:] = 9
    assert TokenTree([3, 4], [-1, 0]).mask.tolist() == [[True, False], [True, True]] and TokenTree([3, 4], [-1, 0]).depth.tolist() == [0, 1]


@pytest.mark.parametrize("tokens, parents, message", [
    ([1], [0], r"parents\[0\]=0"), ([1, 2], [-1, 1], r"parents\[1\]=1"), ([1, 2], [-1, -2], r"parents\[1\]=-2"), ([1, 2], [1, -1], r"parents\[0\]=1"),
    ([1], [-1, 0], "one length"), ([[1, 2]], [-1, 0], "one length")])
def test_parents_that_are_no_tree_are_refused(tokens, parents, message):
    with pytest.raises(ValueError, match=message):
        TokenTree(tokens, parents)


def test_repr_and_equality():
    tree = TokenTree([1, 2], [-1, 0])
    assert eval(repr(tree)) == tree != TokenTree([1, 2], [-1, -1]) and tree != "tree"
