"""The exact distributions, compared with sums done by hand."""

import pytest
import torch

from specdec_lite.acceptance import (
    BlockDistribution,
    Proposal,
    Verdict,
    block_distribution,
    draw_chain,
    joint_distribution,
    output_distribution,
    sample_and_match,
    speculative_sampling,
)
from specdec_lite.sampling import SeededRng, outcomes

P, Q = (torch.tensor(row, dtype=torch.float64) for row in ([0.6, 0.3, 0.1], [0.2, 0.3, 0.5]))
TARGET, DRAFT = (lambda prefix: P.roll(len(prefix))), (lambda prefix: Q.roll(sum(prefix)))


def test_joint_distribution_is_a_product_along_the_text():
    law = joint_distribution(TARGET, 2)
    assert law.shape == (3, 3)
    assert law.dtype == torch.float64
    assert torch.allclose(law, P[:, None] * P.roll(1)[None])


def test_a_rule_that_keeps_everything_emits_the_drafts_distribution():
    keeps = lambda proposal, target_probs, rng: Verdict((0,), 0, "bonus", (1,))
    assert torch.equal(output_distribution(P, Q, keeps), Q)
    assert (
        output_distribution(P.tolist(), Q.tolist(), speculative_sampling) - P
    ).abs().max() < 1e-12


def test_block_distribution_by_hand_for_one_token():
    law = block_distribution(TARGET, DRAFT, speculative_sampling, 1)
    accepted = torch.minimum(P, Q)  # [.2, .3, .1]; rejected .4, recovered as 0
    expected = {
        (x, y): accepted[x].item() * P.roll(1)[y].item() for x in range(3) for y in range(3)
    } | {(0,): 0.4}
    assert set(law.blocks) == set(expected)
    assert all(law.blocks[b] == pytest.approx(w, abs=1e-12) for b, w in expected.items())
    assert law.mean_length == pytest.approx(1.6)
    assert sum(law.blocks.values()) == pytest.approx(1, abs=1e-12)


def test_short_blocks_are_continued_by_the_target_and_long_ones_cut():
    law = BlockDistribution({(0,): 0.5, (1, 2, 0): 0.5}).completed(TARGET, 2)
    assert torch.allclose(law[0], 0.5 * P.roll(1))
    assert law[1, 2] == 0.5
    assert law.sum() == pytest.approx(1)


def test_the_mean_length_is_the_formula_when_acceptance_is_independent():
    still = block_distribution(lambda _: P, lambda _: Q, speculative_sampling, 3)
    assert still.mean_length == pytest.approx((1 - 0.6**4) / 0.4, abs=1e-12)
    matched = block_distribution(lambda _: P, lambda _: Q, sample_and_match, 2)
    agreement = (P * Q).sum().item()
    assert matched.mean_length == pytest.approx(1 + agreement + agreement**2, abs=1e-12)


def test_draw_chain_reports_the_rows_it_drew_from():
    for proposal, weight in outcomes(lambda rng: draw_chain(DRAFT, 2, rng)):
        tokens = proposal.tree.tokens.tolist()
        assert weight == pytest.approx(
            (DRAFT(())[tokens[0]] * DRAFT((tokens[0],))[tokens[1]]).item()
        )
        assert torch.equal(proposal.probs, torch.stack([DRAFT(()), DRAFT((tokens[0],))]))
    assert isinstance(draw_chain(DRAFT, 3, SeededRng(0)), Proposal)
