"""Test REST: the suffix array, the tree, and the bias of the published code's sampling."""

import numpy as np
import pytest
import torch
from broken import drawn_again, draws_per_path

from specdec_lite import Proposal, TokenTree, corpus, load_pair
from specdec_lite.acceptance import sample_and_match, speculative_sampling
from specdec_lite.drafters import RestDrafter
from specdec_lite.drafters.ngrams import SuffixArray
from specdec_lite.measure.replay import replay
from specdec_lite.sampling import outcomes

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def first_token_law(rule, children):
    """Return the distribution of the first token under a rule, with chosen children of the root."""
    proposal = Proposal(TokenTree(children, [-1] * len(children)))
    rows = P.expand(len(children) + 1, 3)
    law = [0.0] * 3
    for verdict, weight in outcomes(lambda rng: rule(proposal, rows, rng)):
        first = children[verdict.path[0]] if verdict.path else verdict.token
        law[first] += weight
    return law


@pytest.mark.parametrize(
    "rule, children, law",
    [
        (draws_per_path, [0], [0.75, 0.15, 0.10]),
        (draws_per_path, [0, 1], [0.675, 0.255, 0.07]),
        (drawn_again, [0, 1], [0.6, 0.36, 0.04]),
        (sample_and_match, [0, 1], [0.5, 0.3, 0.2]),
        (speculative_sampling, [0, 1], [0.5, 0.3, 0.2]),
    ],
    ids=["a draw per path", "a draw per path, two children", "drawn again", "one draw", "walk"],
)
def test_the_distribution_of_one_round(rule, children, law):
    assert first_token_law(rule, children) == pytest.approx(law, abs=1e-12)


def test_the_suffix_array_finds_every_ngram_in_order():
    text = np.random.default_rng(0).integers(0, 4, 300).tolist()
    index = SuffixArray(text, 8)
    for n in (1, 2, 5, 8):
        for start in range(0, 290, 17):
            run = text[start : start + n]
            places = index.find(run).tolist()
            assert sorted(places) == [i for i in range(301 - n) if text[i : i + n] == run]
            following = [text[place : place + 8] for place in places]
            assert following == sorted(following)
    assert len(index.find([9, 9])) == 0 and len(SuffixArray([], 4).find([1])) == 0


def test_the_tree_has_the_most_frequent_continuations():
    text = [1, 2, 3, 9, 1, 2, 3, 8, 7, 2, 3, 5, 1, 2, 3, 8, 6]
    drafter = RestDrafter.from_text(text, 3, levels=2)
    tree = replay(drafter, [4, 1, 2, 3], [0] * 9, 48)[0].tree
    assert tree == TokenTree([8, 9, 7], [-1, -1, 0]) or tree == TokenTree([8, 9, 6], [-1, -1, 0])
    assert not replay(drafter, [4, 4, 4], [0] * 9, 48)[0].tree.tokens.numel()


def test_held_out_text_is_absent_from_the_datastore():
    """No 50 consecutive tokens of the prompts are in the text of the book's datastore."""
    encode = load_pair().tokenizer.encode
    held_out = [
        encode(row["text"]) for rows in corpus.evaluation_prompts().values() for row in rows
    ]
    text = [t for part in corpus.training_text()["docs"] for t in encode(part)]
    index = SuffixArray([*text, *held_out[0]], 64)
    grams = [ids[i : i + 50] for ids in held_out for i in range(len(ids) - 49)]
    seen = [gram for gram in grams if len(index.find(gram))]
    assert len(seen) == max(0, len(held_out[0]) - 49) > 0, "only the one that was put there"
