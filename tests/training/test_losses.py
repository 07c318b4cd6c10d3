"""Divergences: values by hand, gradients by differences, and their relation to acceptance."""

import math

import pytest
import torch
import torch.nn.functional as F
from heads_zoo import random_heads
from models_zoo import native

from specdec_lite import theory
from specdec_lite.training.losses import (
    DIVERGENCES,
    forward_kl,
    head_loss,
    hybrid,
    log_acceptance,
    mean_loss,
    negative_log_acceptance,
    reverse_kl,
    total_variation,
    weighted_loss,
)


def random_distributions(rows=6, seed=0, spread=2.0):
    """Return log-probabilities of a target and logits of a draft, [rows, 5] in float64."""
    generator = torch.Generator().manual_seed(seed)
    p, q = spread * torch.randn(2, rows, 5, generator=generator, dtype=torch.float64)
    return p.log_softmax(-1), q


def numeric_gradient(loss, log_p, logits, step=1e-6):
    """Return the gradient by central differences of the logits."""
    result = torch.zeros_like(logits)
    for position in range(logits.shape[-1]):
        shift = torch.zeros(logits.shape[-1], dtype=logits.dtype)
        shift[position] = step
        up, down = (loss(log_p, (logits + s).log_softmax(-1)) for s in (shift, -shift))
        result[..., position] = (up - down) / (2 * step)
    return result


def gradient(loss, log_p, logits):
    logits = logits.clone().requires_grad_()
    loss(log_p, logits.log_softmax(-1)).sum().backward()
    return logits.grad


def constant_weight(log_p, logits):
    """Return the hybrid with its weight at these logits held constant, as its gradient does."""
    alpha = 1 - total_variation(log_p, logits.log_softmax(-1))
    weight = torch.exp(-3.0 * alpha)
    return lambda p, q: weight * forward_kl(p, q) + (1 - weight) * total_variation(p, q)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_gradients_equal_numeric_differences(name):
    log_p, logits = random_distributions()
    loss = DIVERGENCES[name]
    differentiated = constant_weight(log_p, logits) if loss is hybrid else loss
    expected = numeric_gradient(differentiated, log_p, logits)
    result = gradient(loss, log_p, logits)
    assert (result - expected).abs().max() < 1e-8 < expected.abs().max()
    other = DIVERGENCES["reverse KL" if name == "forward KL" else "forward KL"]
    assert (result - gradient(other, log_p, logits)).abs().max() > 1e-3


@pytest.mark.parametrize("name", DIVERGENCES)
def test_divergences_are_zero_only_for_equal_distributions(name):
    log_p, logits = random_distributions()
    loss = DIVERGENCES[name]
    assert loss(log_p, log_p).abs().max() < 1e-12
    assert (loss(log_p, logits.log_softmax(-1)) > 1e-3).all()


def test_values_by_hand():
    p, q = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.9, 0.1]]).log()
    assert forward_kl(p, q).item() == pytest.approx(0.5 * math.log(25 / 9))
    assert reverse_kl(p, q).item() == pytest.approx(0.9 * math.log(1.8) + 0.1 * math.log(0.2))
    assert total_variation(p, q).item() == pytest.approx(0.4)
    assert negative_log_acceptance(p, q).item() == pytest.approx(-math.log(0.6))
    weight = math.exp(-1.8)
    mixed = weight * forward_kl(p, q).item() + (1 - weight) * 0.4
    assert hybrid(p, q).item() == pytest.approx(mixed, rel=1e-6)


def test_one_minus_total_variation_is_the_acceptance_rate():
    log_p, logits = random_distributions(rows=50, seed=1)
    log_q = logits.log_softmax(-1)
    for a, b in zip(log_p, log_q):
        alpha = theory.acceptance_rate(a.exp(), b.exp())
        assert 1 - total_variation(a, b).item() == pytest.approx(alpha, abs=1e-12)
        assert log_acceptance(a, b).exp().item() == pytest.approx(alpha, abs=1e-12)


def test_target_zeros_give_finite_gradients_except_for_reverse_kl():
    log_p = torch.tensor([[0.6, 0.4, 0.0]], dtype=torch.float64).log()
    logits = torch.tensor([[0.3, -0.2, 0.1]], dtype=torch.float64)
    assert reverse_kl(log_p, logits.log_softmax(-1)).isinf().all()
    for loss in (forward_kl, total_variation, negative_log_acceptance, hybrid):
        assert gradient(loss, log_p, logits).isfinite().all()


def test_total_variation_has_no_gradient_for_disjoint_distributions():
    log_p = torch.tensor([[30.0, 0.0, 0.0]], dtype=torch.float64).log_softmax(-1)
    logits = torch.tensor([[-30.0, 0.0, 0.0]], dtype=torch.float64)
    assert gradient(total_variation, log_p, logits).abs().max() < 1e-10
    for loss in (forward_kl, negative_log_acceptance, hybrid):
        assert gradient(loss, log_p, logits).abs().max() > 0.1


# Losses on windows --------------------------------------------------------------------------------


def test_head_i_is_scored_on_the_token_i_plus_two_ahead():
    model = native(dtype=torch.float32)
    rows = torch.randint(48, (2, 13), generator=torch.Generator().manual_seed(0))
    scores = model.score(rows[:, :-1], model.new_cache(2), hidden_layers=("final",))
    heads, hidden, each = random_heads(model), scores.hidden["final"], []
    for index in range(3):
        terms = []
        for b in range(2):
            for j in range(11 - index):
                state = heads(hidden[b, j])[index]
                terms.append(F.cross_entropy(model.head(state), rows[b, j + index + 2]))
        each.append(head_loss(model.model, heads, hidden, rows, index).item())
        assert each[-1] == pytest.approx(torch.stack(terms).mean().item(), rel=1e-5)
    mean = mean_loss(model.model, heads, hidden, rows).item()
    weighted = weighted_loss(model.model, heads, hidden, rows).item()
    assert mean == pytest.approx(sum(each) / 3, rel=1e-5)
    expected = sum(0.8**k * loss for k, loss in enumerate(each, 1))
    assert weighted == pytest.approx(expected, rel=1e-5)
