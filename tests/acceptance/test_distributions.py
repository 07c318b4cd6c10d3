"""The exact distributions, compared with sums done by hand."""

import pytest
import torch

from specdec_lite.acceptance import (
    BlockDistribution,
    Verdict,
    block_distribution,
    draw_chain,
    joint_distribution,
    output_distribution,
    speculative_sampling,
)
from specdec_lite.sampling import outcomes

P, Q = (torch.tensor(row, dtype=torch.float64) for row in ([0.6, 0.3, 0.1], [0.2, 0.3, 0.5]))
TARGET, DRAFT = (lambda prefix: P.roll(len(prefix))), (lambda prefix: Q.roll(sum(prefix)))


def test_one_drafted_token_by_hand():
    blocks = block_distribution(TARGET, DRAFT, speculative_sampling, 1)
    after, accepted = P.roll(1).tolist(), [0.2, 0.3, 0.1]  # the missing .4 is recovered as 0
    expected = {(x, y): accepted[x] * after[y] for x in range(3) for y in range(3)} | {(0,): 0.4}
    assert blocks.blocks == pytest.approx(expected) and blocks.mean_length == pytest.approx(1.6)
    keeps = lambda proposal, target_probs, rng: Verdict((0,), 0, "bonus", (1,))
    assert torch.equal(output_distribution(P.tolist(), Q.tolist(), keeps), Q)


def test_short_blocks_are_continued_by_the_target_and_long_ones_cut():
    joint = joint_distribution(TARGET, 2)
    assert joint.dtype == torch.float64 and torch.allclose(joint, P[:, None] * P.roll(1)[None])
    cut = BlockDistribution({(0,): 0.5, (1, 2, 0): 0.5}).completed(TARGET, 2)
    assert torch.allclose(cut[0], 0.5 * P.roll(1)) and cut[1, 2] == 0.5 == 1 - cut[0].sum()


def test_draw_chain_reports_the_rows_it_drew_from():
    for proposal, weight in outcomes(lambda rng: draw_chain(DRAFT, 2, rng)):
        first, second = proposal.tree.tokens.tolist()
        assert torch.equal(proposal.probs, torch.stack([Q, DRAFT((first,))]))
        assert weight == pytest.approx((Q[first] * DRAFT((first,))[second]).item())
