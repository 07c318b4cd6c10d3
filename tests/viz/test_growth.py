"""Trees that grow up to a budget: what a session drafts, and a place for each node."""

import torch
from heads_zoo import random_head
from javascript import formula
from models_zoo import VOCABULARY, native

from specdec_book.viz.growth import MAX_NODES, draft_trees
from specdec_lite import generate
from specdec_lite.drafters import EagleDrafter


class Numbers:
    """A tokenizer that decodes ids to numbers."""

    def encode(self, text):
        return [int(word) for word in text.split()]

    def decode(self, ids):
        return " ".join(str(int(token)) for token in ids)


def test_every_node_has_a_place_of_its_own():
    tree = [{"parent": parent} for parent in (-1, -1, 0, 0, 1, 2, 2, 4, -1)]
    places = formula("growth", "places", tree)
    assert len({(p["column"], p["row"]) for p in places}) == len(tree)


def test_draft_trees_returns_the_trees_of_a_session():
    target = native()
    drafter = EagleDrafter(target, random_head(target))
    text = "5 17 3 41 9"
    trees = draft_trees(drafter, Numbers(), text, levels=3)
    truth = generate(target, [5, 17, 3, 41, 9], max_new_tokens=3).tokens.tolist()
    for name in ("grown", "static"):
        tree = trees[name]
        worths = [node["worth"] for node in tree]
        assert name == "static" or worths == sorted(worths, reverse=True)
        for node in tree:
            above = tree[node["parent"]] if node["parent"] >= 0 else {"worth": 1, "right": True}
            assert node["worth"] <= above["worth"] and above["right"] >= node["right"]
        first = [node for node in tree if node["parent"] == -1]
        assert [node["right"] for node in first] == [int(n["word"]) == truth[0] for n in first]
    assert len(trees["grown"]) == MAX_NODES and VOCABULARY > 4


def test_worth_is_the_probability_of_a_token_in_a_smaller_draft_vocabulary():
    target = native()
    ids = torch.arange(0, VOCABULARY, 2)
    drafter = EagleDrafter(target, random_head(target, ids=ids))
    tree = draft_trees(drafter, Numbers(), "5 17 3 41 9", levels=3)["static"]
    first = [node for node in tree if node["parent"] == -1]
    worths = [node["worth"] for node in first]  # of ranks 0, 1, …
    assert all(int(node["word"]) in ids for node in tree)
    assert len(worths) > 1 and worths == sorted(worths, reverse=True)
    assert worths[0] > 1 / len(ids) and sum(worths) <= 1
