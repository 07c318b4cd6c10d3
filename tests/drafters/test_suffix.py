"""Test suffix decoding: longest match, most frequent continuation, draft length, memory."""

import torch
from models_zoo import native

from specdec_lite import generate
from specdec_lite.drafters import SuffixDrafter
from specdec_lite.drafters.copying import frequency_tree
from specdec_lite.measure.replay import replay

TARGET = native()


def first_tree(drafter, text):
    return replay(drafter, text, [0] * 40, 48)[0].tree


def test_a_draft_is_as_long_as_its_match_and_follows_the_majority():
    text = [1, 2, 3, 9, 8, 7, 9, 9, 5, 2, 3, 4, 6, 6, 6, 1, 2, 3]
    assert first_tree(SuffixDrafter(), text).tokens.tolist() == [9, 8, 7]
    assert first_tree(SuffixDrafter(2), text).tokens.tolist() == [9, 8]
    assert len(first_tree(SuffixDrafter(factor=2.0), text)) == 6
    often = [3, 5, 1, 3, 5, 2, 3, 4, 1, 3]
    assert first_tree(SuffixDrafter(factor=9.0), often).tokens.tolist()[:1] == [5]


def test_frequency_tree_is_the_tree_of_counts():
    rows = [[1, 2, 3], [1, 2, 4], [1, 5], [6]]
    tree, promised = frequency_tree(rows, 3)
    assert (tree.tokens.tolist(), tree.parents) == ([1, 2, 6], (-1, 0, -1))
    assert promised == (3 + 2 + 1) / 4
    assert frequency_tree(rows, 9, width=1)[0].is_chain
    assert frequency_tree(rows, 9, least=0.5)[0].tokens.tolist() == [1, 2]
    assert len(frequency_tree([], 5)[0]) == 0


def test_only_learn_fills_the_memory():
    """The benchmark's trap: a memory that holds the answer already. Nothing but `learn` fills it,
    texts are the same in any order and at any warmth, and only tokens a round differ."""
    prompts = [[5, 17, 3], [41, 9, 28], [33, 12, 7]]
    plain = [generate(TARGET, prompt, max_new_tokens=60).tokens for prompt in prompts]
    drafter = SuffixDrafter()
    cold = [generate(TARGET, prompt, drafter, 60) for prompt in prompts]
    again = [generate(TARGET, prompt, drafter, 60) for prompt in reversed(prompts)][::-1]
    assert [len(out.steps) for out in cold] == [len(out.steps) for out in again]
    for prompt, out in zip(prompts, plain):
        drafter.learn([*prompt, *out.tolist()])
    warm = [generate(TARGET, prompt, drafter, 60) for prompt in prompts]
    assert all(torch.equal(a, b.tokens) for a, b in zip(3 * plain, [*cold, *again, *warm]))
    tau = lambda outs: sum(len(o.tokens) for o in outs) / sum(len(o.steps) for o in outs)
    assert tau(warm) > 3 > tau(cold)


def test_drafts_do_not_run_across_texts_of_the_memory():
    drafter = SuffixDrafter(factor=9.0)
    drafter.learn([1, 2, 3])
    drafter.learn([4, 5, 6])
    assert first_tree(drafter, [9, 1, 2]).tokens.tolist() == [3]
