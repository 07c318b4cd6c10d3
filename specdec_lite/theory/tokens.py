"""Tokens per target pass, from acceptance rates and the draft length."""

import numpy as np
from numpy.typing import ArrayLike

from specdec_lite.theory.arrays import array, bisect, draft_length, number, plain, rate, within


def expected_tokens(alpha: ArrayLike, gamma: ArrayLike) -> float | np.ndarray:
    """Return the expected tokens per target pass: (1 − α^(γ+1)) / (1 − α), from 1 to γ + 1.

    The recovered or bonus token is counted. Source: equation 1.

    Args:
        alpha: acceptance rate in [0, 1]; acceptances are independent and equally likely.
        gamma: draft length, a whole number ≥ 1.
    """
    alpha, gamma = rate(alpha), draft_length(gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        # expm1 is exact where 1 − α^(γ+1) would cancel.
        tokens = np.expm1((gamma + 1) * np.log(alpha)) / (alpha - 1)
    return plain(np.where(alpha == 1, gamma + 1, tokens))


def implied_alpha(tau: float, gamma: float) -> float:
    """Return the acceptance rate whose expected tokens are τ: the inverse of `expected_tokens`.

    Args:
        tau: tokens per target pass, the bonus token included, from 1 to γ + 1.
        gamma: mean draft length ≥ 1. One between two whole numbers is a mixture of drafts of both.
    """
    gamma = float(within("gamma", number("gamma", gamma), 1, np.inf))
    tau = float(within("tau", number("tau", tau), 1, gamma + 1))
    short, part = np.floor(gamma), gamma % 1

    def tokens(alpha: float) -> float:
        short_and_long = expected_tokens(alpha, [short, short + 1])
        return float(np.dot([1 - part, part], short_and_long))

    return 1.0 if tau == gamma + 1 else bisect(tokens, tau)


def tokens_from_profile(profile: ArrayLike) -> float | np.ndarray:
    """Return the expected tokens per pass with a rate per position: 1 + α₁ + α₁α₂ + … + α₁⋯α_γ.

    With every entry equal to alpha this is `expected_tokens(alpha, γ)`.

    Args:
        profile: [..., γ]; entry i is the share accepted *among the drafts tested* at position i.

    Returns:
        [...].
    """
    profile = array("profile", profile)
    if profile.ndim == 0 or profile.shape[-1] == 0:
        raise ValueError(f"profile needs one rate per drafted position, got shape {profile.shape}")
    return plain(1 + np.cumprod(within("profile", profile, 0, 1), axis=-1).sum(-1))


def conditional_acceptance(rates: ArrayLike) -> tuple[np.ndarray, float | np.ndarray]:
    """Return the conditional acceptance rates that follow from the rates that engines print.

    Args:
        rates: [..., γ]; entry i is the share of *all* drafts whose position i was accepted, so
            entries never rise (vLLM's "per-position acceptance rate", such as .88, .78, .69).

    Returns:
        profile [..., γ], accepted ÷ tested at each position, as `tokens_from_profile` takes it (0 if
        nothing was tested there), and alpha [...], accepted ÷ tested over all positions.

    Raises:
        ValueError: rates rise or are outside [0, 1].
    """
    rates = within("rates", rates, 0, 1)
    if rates.ndim == 0 or rates.shape[-1] == 0:
        raise ValueError(f"rates needs one rate per drafted position, got shape {rates.shape}")
    tested = np.concatenate((np.ones_like(rates[..., :1]), rates[..., :-1]), axis=-1)
    if np.any(rates > tested):
        raise ValueError(f"rates must not rise: a draft accepted at i was accepted before, {rates}")
    profile = np.divide(rates, tested, out=np.zeros_like(rates), where=tested > 0)
    return profile, plain(rates.sum(-1) / tested.sum(-1))


def drafted_acceptance(alpha: ArrayLike, gamma: ArrayLike) -> float | np.ndarray:
    """Return accepted ÷ drafted, the rate that engines print: (E[tokens] − 1) / γ, at most alpha.

    Drafts after a rejection are counted although they are never tested; accepted ÷ *tested* is what
    estimates alpha.

    Args:
        alpha: acceptance rate in [0, 1].
        gamma: draft length, a whole number ≥ 1.
    """
    return plain((expected_tokens(alpha, gamma) - 1) / draft_length(gamma))
