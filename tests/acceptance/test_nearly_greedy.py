"""The approximate rules of blockwise decoding: text that is nearly the greedy one. Source: Stern et
al. 2018, section 5.
"""

import pytest
import torch
from heads_zoo import random_heads, taught_heads
from models_zoo import PROMPT, VOCABULARY, native

from specdec_lite import generate
from specdec_lite.acceptance import Proposal, distance_match, top_k_match
from specdec_lite.drafters import BlockwiseDrafter
from specdec_lite.sampling import SeededRng
from specdec_lite.tree import TokenTree

ROWS = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.7, 0.0], [0.25] * 4], dtype=torch.float64)


def judged(rule, tokens, rows=ROWS):
    return rule(Proposal(TokenTree.chain(tokens)), rows, SeededRng(0))


def test_top_k_match_keeps_what_is_among_the_k_likeliest():
    assert [judged(top_k_match(k), [1, 2]).path for k in (1, 2)] == [(), (0, 1)]
    assert [judged(top_k_match(k), [2, 1]).path for k in (1, 2, 3)] == [(), (), (0, 1)]
    assert judged(top_k_match(4), [3, 0]).path == ()  # p = 0: never
    ties = ROWS[[2, 0]]
    assert [judged(top_k_match(k), [x], ties).path for k, x in ((1, 0), (1, 1), (2, 1))] == [
        (0,),
        (),
        (0,),
    ]  # ties rank by id
    verdict = judged(top_k_match(2), [1, 0])
    assert (verdict.path, verdict.token, verdict.kind) == ((0,), 2, "recovered")


def test_distance_match_keeps_what_is_near_the_argmax():
    paths = [judged(distance_match(epsilon), [1, 0]).path for epsilon in (0, 1, 2)]
    assert paths == [(), (0,), (0, 1)]
    unlike = lambda drafted, likeliest: (drafted != likeliest).double()
    assert judged(distance_match(0.5, unlike), [1]).path == ()
    assert judged(distance_match(1, unlike), [1]).path == (0,)


def decoded(heads, rule, tokens):
    drafter = BlockwiseDrafter(native(), heads, 4, draft_temperature=0)
    return generate(drafter.target, PROMPT, drafter, tokens, 1.0, rule=rule, seed=0)


@pytest.mark.parametrize("rule", [top_k_match(1), distance_match(0)], ids=lambda rule: rule.name)
def test_at_their_strictest_both_write_the_greedy_text(rule):
    out = decoded(taught_heads("native"), rule, 36)
    assert torch.equal(out.tokens, generate(native(), PROMPT, max_new_tokens=36).tokens)
    assert out.stats.accepted and not rule.lossless


def test_laxer_rules_accept_more_and_change_the_text():
    outs = [decoded(random_heads(native()), top_k_match(k), 60) for k in (1, 8, VOCABULARY)]
    passes = [out.stats.target_passes for out in outs]
    assert passes[0] > passes[1] > passes[2] == 15
    assert outs[0].tokens.tolist() != outs[2].tokens.tolist()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: top_k_match(0), "k=0"),
        (lambda: top_k_match(1.5), "k=1.5"),
        (lambda: distance_match(-1), "epsilon=-1"),
        (lambda: distance_match(float("nan")), "epsilon=nan"),
    ],
)
def test_bad_thresholds_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
