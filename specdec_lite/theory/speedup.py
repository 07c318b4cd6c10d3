"""Time and arithmetic: what accepted tokens are worth against plain decoding."""

import numpy as np
from numpy.typing import ArrayLike

from specdec_lite.theory.arrays import array, draft_length, number, plain, rate, within
from specdec_lite.theory.tokens import expected_tokens


def walltime_improvement(alpha: ArrayLike, gamma: ArrayLike, c: ArrayLike) -> float | np.ndarray:
    """Return the speedup over plain decoding: (1 − α^(γ+1)) / ((1 − α)(γc + 1)).

    The formula assumes that verifying γ + 1 positions costs one target pass;
    `corrected_improvement` does not. Source: theorem 3.8.

    Args:
        alpha: acceptance rate in [0, 1].
        gamma: draft length, a whole number ≥ 1.
        c: time of a draft pass over time of a target pass, ≥ 0.
    """
    return corrected_improvement(expected_tokens(alpha, gamma), gamma, c)


def corrected_improvement(
    tokens: ArrayLike,
    gamma: ArrayLike,
    c: ArrayLike,
    verify: ArrayLike = 1.0,
    overhead: ArrayLike = 0.0,
    plain_overhead: ArrayLike = 0.0,
) -> float | np.ndarray:
    """Return the speedup with measured costs: (1 + o₀) · tokens / (verify + γc + overhead).

    Every cost is in units of T(1), the time of a target pass over one token. The speedup is tokens
    divided by `break_even_tokens`.

    Args:
        tokens: emitted per pass, from `expected_tokens` or `tokens_from_profile`; 1 … γ + 1.
        gamma: draft length, a whole number ≥ 1.
        c: cost of a draft pass *inside the loop*, ≥ 0.
        verify: T(γ+1)/T(1), above 0.
        overhead: everything else in a round, ≥ 0.
        plain_overhead: o₀, everything except the pass in a step of plain decoding, ≥ 0.

    Raises:
        ValueError: an argument is outside its range.
    """
    tokens, gamma = within("tokens", tokens, 1, np.inf), draft_length(gamma)
    if np.any(tokens > (gamma + 1) * (1 + 1e-12)):
        raise ValueError(
            f"tokens must be at most gamma + 1, got tokens={tokens} with gamma={gamma}"
        )
    return plain(tokens / break_even_tokens(gamma, c, verify, overhead, plain_overhead))


def break_even_tokens(
    gamma: ArrayLike,
    c: ArrayLike,
    verify: ArrayLike = 1.0,
    overhead: ArrayLike = 0.0,
    plain_overhead: ArrayLike = 0.0,
) -> float | np.ndarray:
    """Return the τ at which a round is as fast as plain decoding: (v + γc + o) / (1 + o₀).

    It is what a round costs in steps of plain decoding.

    Args:
        gamma, c, verify, overhead, plain_overhead: as for `corrected_improvement`.

    Raises:
        ValueError: an argument is outside its range.
    """
    gamma, c = draft_length(gamma), within("c", c, 0, np.inf)
    overhead = within("overhead", overhead, 0, np.inf)
    plain_overhead = within("plain_overhead", plain_overhead, 0, np.inf)
    verify = array("verify", verify)
    if not np.all(verify > 0):
        raise ValueError(f"verify must be above 0, got {verify}")
    return plain((verify + gamma * c + overhead) / (1 + plain_overhead))


def optimal_gamma(alpha: ArrayLike, c: ArrayLike, max_gamma: int = 64) -> tuple:
    """Return the draft length with the greatest speedup, and that speedup.

    Source: section 3.5.

    Args:
        alpha: acceptance rate in [0, 1].
        c: time of a draft pass over time of a target pass, ≥ 0.
        max_gamma: the largest draft length to consider, a whole number ≥ 1.

    Returns:
        (gamma, improvement), the smallest such gamma if several tie; (0, 1.0) if alpha ≤ c, since
        drafting cannot pay then. Arrays give an int64 and a float64 array.
    """
    alpha, c = rate(alpha), within("c", c, 0, np.inf)
    gammas = np.arange(1, int(draft_length(number("max_gamma", max_gamma), "max_gamma")) + 1)
    curve = np.asarray(walltime_improvement(alpha[..., None], gammas, c[..., None]))
    pays = alpha > c
    best = np.where(pays, gammas[curve.argmax(-1)], 0)
    improvement = np.where(pays, curve.max(-1), 1.0)
    return (int(best), float(improvement)) if best.ndim == 0 else (best, improvement)


def operations_factor(alpha: ArrayLike, gamma: ArrayLike, c_hat: ArrayLike) -> float | np.ndarray:
    """Return the arithmetic per emitted token over that of plain decoding, at least 1.

    The formula is (1 − α)(γĉ + γ + 1) / (1 − α^(γ+1)). Source: theorem 3.11.

    Args:
        alpha: acceptance rate in [0, 1].
        gamma: draft length, a whole number ≥ 1.
        c_hat: draft arithmetic per token over target arithmetic per token, ≥ 0.
    """
    gamma, c_hat = draft_length(gamma), within("c_hat", c_hat, 0, np.inf)
    return plain((gamma * c_hat + gamma + 1) / expected_tokens(alpha, gamma))
