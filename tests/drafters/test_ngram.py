"""Test the n-gram model: counts, rows, draws, and a soft row reported for an argmax."""

from collections import Counter

import pytest
import torch
from models_zoo import native
from text_laws import TINY, distance, exact_text_law, own_text_law

from specdec_lite import Proposal, TokenTree
from specdec_lite.drafters import NgramDrafter, NgramModel
from specdec_lite.drafters.ngrams import Counts
from specdec_lite.sampling import Sampling

TEXT = [0, 1, 2, 0, 1, 1, 0, 1, 2]


def test_counts_are_those_of_the_text():
    counts = Counts(TEXT, 3, 3)
    for run in ([], [0], [1], [0, 1], [1, 2], [2, 2]):
        ends = [i for i in range(len(run), len(TEXT)) if TEXT[i - len(run) : i] == run]
        tokens, times = counts.followers(run)
        found = dict(zip(tokens.tolist(), times.tolist()))
        assert found == Counter(TEXT[end] for end in ends)


def test_a_row_by_hand():
    """After 0 1: counts {1: 1, 2: 2}, two different ones; after 1: {0: 1, 1: 1, 2: 2}, three."""
    unigram = (torch.tensor([3.0, 4.0, 2.0]).double() + 3 / 3) / 12
    bigram = (torch.tensor([1.0, 1.0, 2.0]).double() + 3 * unigram) / 7
    trigram = (torch.tensor([0.0, 1.0, 2.0]).double() + 2 * bigram) / 5
    row = Counts(TEXT, 3, 3).row([0, 1])
    assert torch.allclose(row, trigram, atol=1e-12) and row.sum() == pytest.approx(1)
    assert (Counts([1, 1], 5, 2).row([4]) > 0).all(), "q > 0 everywhere, even for the unseen"


class SoftArgmax(NgramDrafter):
    """Broken: choose the likeliest token and report the soft row."""

    def start(self, context):
        session = super().start(context)
        inner = session.propose

        def propose(context):
            tree = inner(context).tree
            text = context.tokens.tolist()
            rows = []
            for token in tree.tokens.tolist():
                rows.append(self.counts.row(text[-2:]))
                text.append(token)
            return Proposal(tree, torch.stack(rows) if rows else None)

        session.propose = propose
        return session


def test_an_argmax_with_a_soft_row_changes_the_distribution():
    target = native(seed=5, vocab_size=3, **TINY)
    law = lambda kind: exact_text_law(
        target, kind.from_text(TEXT, 3, 3, 2, draft_temperature=0.0), Sampling(1.0), 3
    )
    own = own_text_law(target, Sampling(1.0), 3)
    assert distance(law(NgramDrafter), own) < 1e-12 and distance(law(SoftArgmax), own) > 0.05


def test_the_ngram_model_scores_every_token_of_a_chain_and_of_a_tree():
    counts = Counts(TEXT, 3, 3)
    model = NgramModel(counts)
    expected = lambda text: counts.row(text[-2:]).log()
    cache = model.new_cache()
    rows = model.score([0, 1, 2], cache).logits[0]
    for row, text in zip(rows, ([0], [0, 1], [0, 1, 2])):
        assert torch.equal(row, expected(text))
    tree = TokenTree([1, 2, 0], [-1, -1, 1])
    rows = model.score([0, *tree.tokens.tolist()], cache, tree).logits[0]
    paths = ([2, 0], [2, 0, 1], [2, 0, 2], [0, 2, 0])
    for row, text in zip(rows, paths, strict=True):
        assert torch.equal(row, expected(text))
    cache.keep((0, 2, 3))
    assert cache.tokens == [0, 1, 2, 0, 2, 0] and cache.length == 6
    cache.crop(4)
    assert torch.equal(model.score([1], cache).logits[0, 0], expected([0, 1]))
    alone = NgramModel(Counts(TEXT, 3, 1))
    assert torch.equal(alone.score([1], alone.new_cache()).logits[0, 0], alone.counts.row([]).log())
    with pytest.raises(ValueError, match="no states"):
        model.check_layers(("final",))
