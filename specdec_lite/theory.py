"""Closed forms: how often a draft is accepted, and what that is worth in tokens, time and arithmetic.

In this order: two distributions, tokens per pass, time and arithmetic, where rounds begin. All are
pure functions of numbers or arrays: the rules that decide are in `acceptance`, measured times in
`measure`.

Symbols: p target and q draft distribution, [..., V]; alpha acceptance rate; gamma draft length
(vLLM's `num_speculative_tokens`, Hugging Face's `num_assistant_tokens`); c time of one draft pass
over time of one target pass; c_hat the same ratio in arithmetic operations; l lenience. Torch
tensors are read as arrays; results are floats or float64 arrays. Functions of numbers broadcast.
Source, unless a docstring names another: Leviathan, Kalman and Matias 2023, arXiv 2211.17192.
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from specdec_lite.checks import SUM_TOLERANCE, unit

Array = ArrayLike | Tensor


# Two distributions --------------------------------------------------------------------------------


def acceptance_rate(p: Array, q: Array) -> float | np.ndarray:
    """Return the probability that a token drawn from q is accepted against p: β = Σ min(p, q).

    Its mean over positions is α. Source: theorem 3.5 and corollary 3.6.

    Args:
        p: target distributions [..., V].
        q: draft distributions [..., V], broadcast with p.

    Returns:
        β [...].

    Raises:
        ValueError: a row is not a distribution.
    """
    p, q = _distributions(p, q)
    return np.minimum(p, q).sum(-1)


def total_variation(p: Array, q: Array) -> float | np.ndarray:
    """Return the total variation Σ |p − q| / 2: the paper's D_LK, and 1 − β.

    Source: definition 3.2 (Σ |p − (p + q)/2|, the same number) and lemma 3.3.

    Args:
        p: distributions [..., V].
        q: distributions [..., V], broadcast with p.

    Returns:
        [...] in [0, 1]: 0 iff p and q are equal, 1 iff no token has positive probability in both.
    """
    p, q = _distributions(p, q)
    return np.abs(p - q).sum(-1) / 2


def residual(p: Array, q: Array) -> np.ndarray:
    """Return the distribution from which a recovered token is drawn: norm(max(0, p − q)).

    If p == q nothing can be rejected, and p is returned. Rules that decode use
    `acceptance.residual`, which takes tensors and does not check them. Source: section 2.3.

    Args:
        p: target distributions [..., V].
        q: draft distributions [..., V].
    """
    p, q = _distributions(p, q)
    excess = np.maximum(p - q, 0)
    mass = excess.sum(-1, keepdims=True)
    return np.where(mass > 0, excess / np.where(mass > 0, mass, 1), p)


def lenient_acceptance_rate(p: Array, q: Array, lenience: float) -> float | np.ndarray:
    """Return the acceptance rate with lenience: α_l = Σ min(p/l, q).

    Source: appendix A.5.

    Args:
        p: target distributions [..., V].
        q: draft distributions [..., V].
        lenience: l in (0, 1]; 1 is exact speculative sampling.

    Returns:
        α_l [...].

    Raises:
        ValueError: lenience is outside (0, 1], or a row is not a distribution.
    """
    p, q = _distributions(p, q)
    return np.minimum(p / unit("lenience", lenience), q).sum(-1)


def lenient_distance(p: Array, q: Array, lenience: float) -> float | np.ndarray:
    """Return the smallest total variation from p that any rule with lenience l can reach: α_l − α.

    Recovering from norm(max(0, p − q)) reaches it. Source: this book's theorem on lenience
    (book/06_proofs.md).

    Args:
        p: target distributions [..., V].
        q: draft distributions [..., V].
        lenience: l in (0, 1].
    """
    return lenient_acceptance_rate(p, q, lenience) - acceptance_rate(p, q)


def optimal_acceptance(p: Array, q: Array, k: int, replace: bool = True) -> float:
    """Return the largest acceptance of any lossless rule for k tokens drawn from q at one node.

    It is the minimum over token sets H of p(H) + 1 − P(all k draws are in H). For independent draws
    only the prefixes of the tokens in falling order of q/p can be the minimum. Without replacement
    all subsets are tried. Source: Hu et al. 2025; proofs in book/11_proofs.md.

    Args:
        p: the target's distribution [V].
        q: the drafter's distribution [V].
        k: number of draws, ≥ 1.
        replace: whether the draws are independent. If not, they are different tokens drawn one
            after another, at most as many as q has; V ≤ 12.

    Raises:
        ValueError: an argument is outside its range.
    """
    p, q = _distributions(p, q)
    if p.ndim != 1 or q.ndim != 1:
        raise ValueError(f"p and q must be one row each, got shapes {p.shape} and {q.shape}")
    k = int(_draft_length(_number("k", k), "k"))
    if len(p) > 12 and not replace:
        raise ValueError(f"p has {len(p)} tokens: without replacement at most 12 can be computed")
    p, q = np.asarray(p / p.sum()), np.asarray(q / q.sum())
    if replace:
        order = np.argsort(-np.divide(q, p, out=np.full_like(q, np.inf), where=p > 0))
        inside = np.append(0.0, p[order].cumsum()), np.append(0.0, q[order].cumsum())
        return float((inside[0] + 1 - inside[1] ** k).min())
    k = min(k, int(np.count_nonzero(q)))
    subsets = (h for size in range(len(p) + 1) for h in combinations(range(len(p)), size))
    return float(min(p[[*h]].sum() + 1 - _all_inside(q, h, k) for h in subsets))


def _all_inside(q: np.ndarray, tokens: tuple[int, ...], draws: int) -> float:
    """Return the probability that draws without replacement are all among some tokens.

    q [V], of any sum, is 0 for the tokens that were drawn already.
    """
    if draws == 0:
        return 1.0
    possible = [x for x in tokens if q[x] > 0]
    rests = (np.where(np.arange(len(q)) == x, 0, q) for x in possible)
    return sum(
        q[x] / q.sum() * _all_inside(rest, tokens, draws - 1) for x, rest in zip(possible, rests)
    )


# Tokens per pass ----------------------------------------------------------------------------------


def expected_tokens(alpha: ArrayLike, gamma: ArrayLike) -> float | np.ndarray:
    """Return the expected tokens per target pass: (1 − α^(γ+1)) / (1 − α), from 1 to γ + 1.

    The recovered or bonus token is counted. Source: equation 1.

    Args:
        alpha: acceptance rate in [0, 1]; acceptances are independent and equally likely.
        gamma: draft length, a whole number ≥ 1.
    """
    alpha, gamma = _within("alpha", alpha, 0, 1), _draft_length(gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        # expm1 is exact where 1 − α^(γ+1) would cancel.
        tokens = np.expm1((gamma + 1) * np.log(alpha)) / (alpha - 1)
    return _plain(np.where(alpha == 1, gamma + 1, tokens))


def implied_alpha(tau: float, gamma: float) -> float:
    """Return the acceptance rate whose expected tokens are τ: the inverse of `expected_tokens`.

    Args:
        tau: tokens per target pass, the bonus token included, from 1 to γ + 1.
        gamma: mean draft length ≥ 1. One between two whole numbers is a mixture of drafts of both.
    """
    gamma = float(_within("gamma", _number("gamma", gamma), 1, np.inf))
    tau = float(_within("tau", _number("tau", tau), 1, gamma + 1))
    short, part = np.floor(gamma), gamma % 1

    def tokens(alpha: float) -> float:
        short_and_long = expected_tokens(alpha, [short, short + 1])
        return float(np.dot([1 - part, part], short_and_long))

    return 1.0 if tau == gamma + 1 else bisect(tokens, tau)


def nearest_alpha(tau: float, gamma: float) -> float:
    """Return the acceptance rate whose expected tokens are nearest to τ: 0 below 1, 1 above γ + 1.

    Args:
        tau: tokens per target pass, which may be a rounded number.
        gamma: mean draft length ≥ 1.
    """
    return implied_alpha(min(max(tau, 1.0), gamma + 1), gamma)


def tokens_from_profile(profile: ArrayLike) -> float | np.ndarray:
    """Return the expected tokens per pass with a rate per position: 1 + α₁ + α₁α₂ + … + α₁⋯α_γ.

    With every entry equal to alpha this is `expected_tokens(alpha, γ)`.

    Args:
        profile: [..., γ]; entry i is the share accepted *among the drafts tested* at position i.

    Returns:
        [...].
    """
    profile = _array("profile", profile)
    if profile.ndim == 0 or profile.shape[-1] == 0:
        raise ValueError(f"profile needs one rate per drafted position, got shape {profile.shape}")
    return _plain(1 + np.cumprod(_within("profile", profile, 0, 1), axis=-1).sum(-1))


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
    rates = _within("rates", rates, 0, 1)
    if rates.ndim == 0 or rates.shape[-1] == 0:
        raise ValueError(f"rates needs one rate per drafted position, got shape {rates.shape}")
    tested = np.concatenate((np.ones_like(rates[..., :1]), rates[..., :-1]), axis=-1)
    if np.any(rates > tested):
        raise ValueError(f"rates must not rise: a draft accepted at i was accepted before, {rates}")
    profile = np.divide(rates, tested, out=np.zeros_like(rates), where=tested > 0)
    return profile, _plain(rates.sum(-1) / tested.sum(-1))


def drafted_acceptance(alpha: ArrayLike, gamma: ArrayLike) -> float | np.ndarray:
    """Return accepted ÷ drafted, the rate that engines print: (E[tokens] − 1) / γ, at most alpha.

    Drafts after a rejection are counted although they are never tested; accepted ÷ *tested* is what
    estimates alpha.

    Args:
        alpha: acceptance rate in [0, 1].
        gamma: draft length, a whole number ≥ 1.
    """
    return _plain((expected_tokens(alpha, gamma) - 1) / _draft_length(gamma))


# Time and arithmetic ------------------------------------------------------------------------------


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
    tokens, gamma = _within("tokens", tokens, 1, np.inf), _draft_length(gamma)
    if np.any(tokens > (gamma + 1) * (1 + 1e-12)):
        raise ValueError(
            f"tokens must be at most gamma + 1, got tokens={tokens} with gamma={gamma}"
        )
    return _plain(tokens / break_even_tokens(gamma, c, verify, overhead, plain_overhead))


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
    gamma, c = _draft_length(gamma), _within("c", c, 0, np.inf)
    overhead = _within("overhead", overhead, 0, np.inf)
    plain_overhead = _within("plain_overhead", plain_overhead, 0, np.inf)
    verify = _array("verify", verify)
    if not np.all(verify > 0):
        raise ValueError(f"verify must be above 0, got {verify}")
    return _plain((verify + gamma * c + overhead) / (1 + plain_overhead))


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
    alpha, c = _array("alpha", alpha), _array("c", c)
    gammas = np.arange(1, int(_draft_length(_number("max_gamma", max_gamma), "max_gamma")) + 1)
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
    gamma, c_hat = _draft_length(gamma), _within("c_hat", c_hat, 0, np.inf)
    return _plain((gamma * c_hat + gamma + 1) / expected_tokens(alpha, gamma))


# Where rounds begin -------------------------------------------------------------------------------


def round_starts(rates: ArrayLike, moves: ArrayLike, gamma: int) -> np.ndarray:
    """Return the share of rounds whose first drafted token is in each state of a text.

    A text's positions move between states (easy and hard, for instance) as a Markov chain. A round
    that accepts n < γ drafts is followed by one that begins after its recovered token; a round that
    accepts all, by one that begins after its bonus token. The result is the stationary distribution
    of that walk, R = Σₙ (D·moves)ⁿ (1 − D) moves + (D·moves)^γ moves with D = diag(rates). Longer
    drafts leave easy stretches in one round and so begin more often in hard ones. Therefore
    `rates @ round_starts` is not a property of a pair: it falls with γ. Source: this book,
    chapter 19.

    Args:
        rates: acceptance in each state, [S].
        moves: [S, S]; row s is the distribution of the next position's state.
        gamma: draft length, a whole number ≥ 1.

    Returns:
        float64 [S].

    Raises:
        ValueError: the shapes do not fit, or a row of moves does not sum to 1.
    """
    rates = _within("rates", rates, 0, 1)
    moves = _within("moves", moves, 0, 1)
    gamma = int(_draft_length(_number("gamma", gamma)))
    if rates.ndim != 1 or moves.shape != (len(rates), len(rates)):
        raise ValueError(
            f"rates [S] and moves [S, S] must fit, got shapes {rates.shape} and {moves.shape}"
        )
    if not np.allclose(moves.sum(-1), 1, atol=SUM_TOLERANCE):
        raise ValueError(f"moves must have rows that sum to 1, they sum to {moves.sum(-1)}")
    step = rates[:, None] * moves
    passed = np.eye(len(rates))
    walk = np.zeros_like(moves)
    for _ in range(gamma):
        walk += passed @ ((1 - rates)[:, None] * moves)
        passed = passed @ step
    walk += passed @ moves
    balance = np.vstack((walk.T - np.eye(len(rates)), np.ones(len(rates))))
    return np.linalg.lstsq(balance, np.eye(len(rates) + 1)[-1], rcond=None)[0]


# Arguments ----------------------------------------------------------------------------------------


def _distributions(p: ArrayLike | Tensor, q: ArrayLike | Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return p and q as float64 arrays, after checking that every row is a distribution.

    Shapes: p [..., V], q [..., V].
    """
    rows = {"p": _array("p", p), "q": _array("q", q)}
    for name, x in rows.items():
        if x.ndim == 0 or 0 in x.shape:
            raise ValueError(f"{name} must be rows over the vocabulary, got shape {tuple(x.shape)}")
        sums = x.sum(-1)
        low, least, most = float(x.min()), float(sums.min()), float(sums.max())
        if not (low >= 0 and least >= 1 - SUM_TOLERANCE and most <= 1 + SUM_TOLERANCE):
            raise ValueError(
                f"{name} must be non-negative and sum to 1 along its last axis; "
                f"its smallest entry is {low}, its sums lie in [{least}, {most}]"
            )
    if rows["p"].shape[-1] != rows["q"].shape[-1]:
        raise ValueError(
            f"p and q must share one vocabulary, got {rows['p'].shape[-1]} and"
            f" {rows['q'].shape[-1]} entries"
        )
    return rows["p"], rows["q"]


def _array(name: str, x: ArrayLike | Tensor) -> np.ndarray:
    """Return a value as a float64 array."""
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        x = (x if x.is_complex() else x.double()).numpy()  # NumPy has no bfloat16
    values = np.asarray(x)
    try:
        if values.dtype.kind in "USc":
            raise TypeError("text and complex numbers are not real numbers")
        return values.astype(float)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name}={x!r}: must be a number or an array of numbers ({error})"
        ) from None


def _number(name: str, x) -> float:
    """Return a value as a float."""
    values = _array(name, x)
    if values.ndim:
        raise ValueError(f"{name} must be one number, got shape {values.shape}")
    return float(values)


def _within(name: str, x: ArrayLike, low: float, high: float) -> np.ndarray:
    """Return a value as a float64 array, after checking its range."""
    values = _array(name, x)
    if not np.all((values >= low) & (values <= high)):
        allowed = f"in [{low}, {high}]" if np.isfinite(high) else f"at least {low}"
        raise ValueError(f"{name} must be {allowed}, got {values}")
    return values


def _draft_length(gamma: ArrayLike, name: str = "gamma") -> np.ndarray:
    """Return a draft length as a float64 array of whole numbers ≥ 1."""
    values = _array(name, gamma)
    if not np.all((values >= 1) & (values == np.floor(values)) & np.isfinite(values)):
        raise ValueError(f"{name} must be a whole number, at least 1, got {values}")
    return values


def _plain(x: np.ndarray) -> float | np.ndarray:
    """Return an array without axes as a float, any other array as it is."""
    return float(x) if np.ndim(x) == 0 else x


def bisect(rising: Callable[[float], float], value: float) -> float:
    """Return where a function that rises on [0, 1] takes a value, to 1e-15."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return (low + high) / 2
