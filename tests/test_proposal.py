"""Proposals: which nodes may be ruled out, and why drawn ones may not."""

import pytest
import torch
from text_laws import bias, random_law

from specdec_lite.acceptance import Proposal, speculative_sampling
from specdec_lite.tree import TokenTree

BAD = [
    (dict(tree=TokenTree.chain([1, 2]), candidates=frozenset({2})), "candidates contains 2"),
    (
        dict(
            tree=TokenTree.chain([1, 2]), probs=torch.full((2, 3), 1 / 3), candidates=frozenset({0})
        ),
        "node 1",
    ),
    (
        dict(tree=TokenTree.chain([9]), probs=torch.full((1, 3), 1 / 3), candidates=frozenset()),
        "node 0",
    ),
]


@pytest.mark.parametrize("arguments, message", BAD)
def test_candidates_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Proposal(**arguments)


def drops_unlikely(law, gamma, rng):
    """Draw one token, and rule it out if its q is small: that discards a drawn token after a look."""
    q = law(())
    token = rng.draw(q)
    return Proposal(
        TokenTree.chain([token]), q[None], candidates=frozenset({0} if q[token] > 0.4 else ())
    )


def test_ruling_out_a_drawn_node_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="was drawn"):
        bias(random_law(0), random_law(9), speculative_sampling, 1, drops_unlikely)
    monkeypatch.setattr(Proposal, "_check_candidates", lambda self, draws: None)
    assert (
        max(
            bias(random_law(s), random_law(s + 9), speculative_sampling, 1, drops_unlikely)
            for s in range(3)
        )
        > 0.02
    )


def test_ruling_out_chosen_nodes_is_legal_whatever_the_rows_say():
    one = torch.tensor([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    proposal = Proposal(TokenTree([1, 2], [-1, -1]), one, candidates=frozenset({1}))
    assert proposal.draws == {-1: ((1, 1),)}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            (TokenTree.chain([1, 2]), torch.full((2, 4), 0.25), [0.7, 1.2]),
            "cannot be interpreted as an integer",
        ),
        ((TokenTree.chain([1]), [[0.5, 0.5]]), "probs is a list"),
        (([],), "tree is a list"),
    ],
    ids=str,
)
def test_wrong_types_in_a_proposal_are_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        Proposal(*arguments)
