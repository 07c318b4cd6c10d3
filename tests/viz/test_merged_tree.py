"""A merged tree: leaves are apart, parents are between their children, a ring for each draw."""

from specdec_book.viz.pictures import coordinates, merged_tree
from specdec_lite.tree import TokenTree

TREE = TokenTree([5, 6, 7, 8], [-1, 0, 0, -1])


def test_leaves_are_one_apart_and_parents_between_them():
    places = coordinates(TREE)
    assert [places[node] for node in (1, 2, 3)] == [(2, 0.0), (2, 1.0), (1, 2.0)]
    assert places[0] == (1, 0.5) and places[-1] == (0, 1.25)


def test_each_draft_has_rings_of_its_own_size():
    fig = merged_tree(TREE, ["a", "b", "c", "d"], "It", {"one": [0, 1], "two": [0, 2, 3]})
    rings = [trace for trace in fig.data if trace.mode == "markers"]
    assert [(ring.name, len(ring.x)) for ring in rings] == [("one", 2), ("two", 3)]
    assert rings[0].marker.size < rings[1].marker.size
    assert [note.text for note in fig.layout.annotations] == ["a", "b", "c", "d", "It"]
