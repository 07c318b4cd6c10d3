"""Speculative sampling held against the one inside transformers, and where the two differ.

The differences, each shown by a test: transformers accepts on u ≤ p/q where the paper and this
library accept on u < p/q, so a token that the target rules out (p = 0) is accepted when the uniform
is exactly 0, once in 2²⁴ draws of float32; a residual that rounds to zero becomes NaN there, and p
here; a token of q = 0 that the target allows is always accepted there, and refused here.
"""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation import utils

from specdec_lite.acceptance import Proposal, speculative_sampling
from specdec_lite.sampling import Sampling
from specdec_lite.tree import TokenTree


class Given:
    """An rng with given uniforms; it records what the next token is drawn from."""

    def __init__(self, uniforms):
        self.left, self.drawn_from = list(uniforms), None

    def flip(self, prob):
        return self.left.pop(0) < prob

    def draw(self, probs):
        self.drawn_from = probs
        return 0


def ours(tokens, q, p, uniforms):
    rng = Given(uniforms)
    verdict = speculative_sampling(Proposal(TokenTree.chain(tokens), q), p, rng)
    return len(verdict.path), rng.drawn_from


def theirs(tokens, q, p, uniforms):
    """Run transformers' own function with given uniforms and record its draw."""
    drawn_from = []
    rand = lambda like: torch.tensor(uniforms, dtype=like.dtype).view_as(like)
    draw = lambda probs, num_samples: drawn_from.append(probs[0]) or torch.zeros(1, 1).long()
    with patch.object(torch, "rand_like", rand), patch.object(torch, "multinomial", draw):
        _, matches = utils._speculative_sampling(
            torch.tensor([tokens]), q.log()[None], len(tokens), p.log()[None]
        )
    return int(matches), drawn_from[0]


def laws(seed, count, vocabulary, sampling):
    generator = torch.Generator().manual_seed(seed)
    return sampling(3 * torch.randn(count, vocabulary, generator=generator, dtype=torch.float64))


SAMPLINGS = [Sampling(), Sampling(0.3), Sampling(2.0), Sampling(top_k=3), Sampling(top_p=0.8)]


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 9), st.sampled_from(SAMPLINGS))
@settings(max_examples=80, deadline=None)
def test_equal_uniforms_give_equal_acceptance_and_equal_residuals(
    seed, gamma, vocabulary, sampling
):
    p, q = laws(seed, gamma + 1, vocabulary, sampling), laws(seed + 1, gamma, vocabulary, sampling)
    generator = torch.Generator().manual_seed(seed)
    tokens = q.multinomial(1, generator=generator)[:, 0].tolist()
    uniforms = torch.rand(gamma, generator=generator, dtype=torch.float64).clamp(min=1e-9).tolist()
    accepted, law = ours(tokens, q, p, uniforms)
    matches, other = theirs(tokens, q, p, uniforms)
    assert accepted == matches and torch.allclose(law, other, atol=1e-12)


P = torch.tensor([[0.0, 0.6, 0.4], [0.2, 0.3, 0.5]], dtype=torch.float64)
Q = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)


def test_difference_one_a_uniform_of_exactly_zero():
    assert theirs([0], Q, P, [0.0])[0] == 1 and ours([0], Q, P, [0.0])[0] == 0
    assert theirs([0], Q, P, [1e-12])[0] == 0 == ours([0], Q, P, [1e-12])[0]


def test_difference_two_a_zero_residual():
    """If p is below q everywhere by rounding, a rejection is possible and leaves no residual."""
    q = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    p = torch.cat((q * (1 - 1e-15), q))
    assert p[0, 0] < q[0, 0]
    uniform = 1 - 2**-53
    accepted, law = ours([0], q, p, [uniform])
    assert accepted == 0 and torch.allclose(law, p[0])
    # Their softmax would normalize p back to q.
    with patch.object(torch.Tensor, "softmax", lambda self, dim: self.exp()):
        matches, other = theirs([0], q, p, [uniform])
    assert matches == 0 and other.isnan().all()


def test_difference_three_a_token_that_its_row_cannot_draw():
    q = torch.tensor([[0.0, 0.5, 0.5]], dtype=torch.float64)
    assert theirs([0], q, P[[1, 1]], [0.999])[0] == 1
    with pytest.raises(ValueError, match="draft probability 0"):
        ours([0], q, P[[1, 1]], [0.999])
