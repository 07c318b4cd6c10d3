"""Closed forms: how often a draft is accepted, and what that is worth in tokens, time and
arithmetic.

What lives here: pure functions of numbers or arrays, nothing measured and nothing drawn. What does
not: the rules that decide (`acceptance`), the clock (`timing`). Symbols: p target and q draft
distribution, [..., V]; alpha acceptance rate; gamma draft length (vLLM's `num_speculative_tokens`,
Hugging Face's `num_assistant_tokens`); c time of one draft pass over time of one target pass; c_hat
the same ratio in arithmetic operations; l lenience. Everything is NumPy's: torch tensors are read
as arrays, and what comes back is a float or a float64 array. Functions of numbers broadcast.
Source, unless a docstring says otherwise: Leviathan, Kalman and Matias 2023, arXiv 2211.17192.
"""

from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

SUM_TOLERANCE = 2e-5
"""How far the sum of a row may be from 1. A float32 softmax of 262,208 logits misses by 1.3e-5."""


# Two distributions -------------------------------------------------------------------------------


def acceptance_rate(p: ArrayLike | Tensor, q: ArrayLike | Tensor) -> float | np.ndarray:
    """The chance that a token drawn from q is accepted against p: β = Σ min(p, q). Its mean over
    positions is α.

    p, q: [..., V] distributions, broadcast. Returns [...]. ValueError if a row is not a
    distribution. Source: theorem 3.5 and corollary 3.6.
    """
    p, q = _distributions(p, q)
    return np.minimum(p, q).sum(-1)


def total_variation(p: ArrayLike | Tensor, q: ArrayLike | Tensor) -> float | np.ndarray:
    """Half the summed absolute difference, Σ |p − q| / 2: the paper's D_LK, and 1 − β.

    p, q: [..., V] distributions, broadcast. Returns [...], in [0, 1]: 0 iff equal, 1 iff no token
    has both positive. Source: definition 3.2 (Σ |p − (p + q)/2|, the same number) and lemma 3.3.
    """
    p, q = _distributions(p, q)
    return np.abs(p - q).sum(-1) / 2


def residual(p: ArrayLike | Tensor, q: ArrayLike | Tensor) -> np.ndarray:
    """The distribution a recovered token is drawn from: norm(max(0, p − q)).

    p, q: [..., V] target and draft distributions. Where p == q nothing can be rejected, and p is
    returned. Rules that decode draw from `acceptance.residual`, the same of tensors, unchecked.
    Source: section 2.3.
    """
    p, q = _distributions(p, q)
    excess = np.maximum(p - q, 0)
    mass = excess.sum(-1, keepdims=True)
    return np.where(mass > 0, excess / np.where(mass > 0, mass, 1), p)


def lenient_acceptance_rate(
    p: ArrayLike | Tensor, q: ArrayLike | Tensor, lenience: float
) -> float | np.ndarray:
    """The acceptance rate when q is multiplied by l before the comparison: α_l = Σ min(p/l, q).

    p, q: [..., V]; lenience: l in (0, 1], 1 being exact speculative sampling. Returns [...].
    Source: appendix A.5.
    """
    lenience = _number("lenience", lenience)
    if not 0 < lenience <= 1:
        raise ValueError(f"lenience must be in (0, 1], got {lenience}")
    p, q = _distributions(p, q)
    return np.minimum(p / lenience, q).sum(-1)


def lenient_distance(
    p: ArrayLike | Tensor, q: ArrayLike | Tensor, lenience: float
) -> float | np.ndarray:
    """The least total variation from p that any rule with lenience l can reach: α_l − α.

    p, q: [..., V]; lenience: l in (0, 1]. Returns [...]. Recovering from norm(max(0, p − q))
    reaches it. Source: the book's own theorem on lenience (book/06_proofs.md).
    """
    return lenient_acceptance_rate(p, q, lenience) - acceptance_rate(p, q)


def rejection_sampling_acceptance_rate(
    p: ArrayLike | Tensor, q: ArrayLike | Tensor
) -> float | np.ndarray:
    """The acceptance rate of rejection sampling tried once: 1/M with M = max p/q, never above Σ
    min(p, q).

    p, q: [..., V]. A token with p > 0 and q = 0 makes M infinite and the rate 0. Returns [...]. A
    draw from q is kept with probability p/(M q), else one from p itself is taken. Source: appendix
    A.2.
    """
    p, q = _distributions(p, q)
    return np.where(p > 0, q / np.where(p > 0, p, 1), np.inf).min(-1)


def sample_and_match_acceptance_rate(
    p: ArrayLike | Tensor, q: ArrayLike | Tensor
) -> float | np.ndarray:
    """The chance that independent draws from p and from q agree: Σ p·q, never above Σ min(p, q).

    p, q: [..., V]. Returns [...]. The naive exact rule: draw from p, accept the draft if it is the
    same token.
    """
    p, q = _distributions(p, q)
    return (p * q).sum(-1)


def optimal_acceptance(
    p: ArrayLike | Tensor, q: ArrayLike | Tensor, k: int, replace: bool = True
) -> float:
    """The most that any exact rule can accept of k tokens drawn from q at one place: min over token
    sets H of p(H) + 1 − P(all k draws lie in H).

    Args:
        p, q: [V] distributions.
        k: draws, ≥ 1.
        replace: whether they are independent; if not, they are different tokens, drawn one after
            another (as many as q has, where that is fewer).

    Independent draws: only the prefixes of the order of falling q/p can be the least cut. Without
    replacement all subsets are tried: V ≤ 12. ValueError for anything else. Source: Hu et al. 2025;
    proofs in book/15_proofs.md.
    """
    p, q = _distributions(p, q)
    if p.ndim != 1 or q.ndim != 1:
        raise ValueError(f"p and q must be one row each, got shapes {p.shape} and {q.shape}")
    k = int(_gamma(_number("k", k), "k"))
    p, q = p / p.sum(), q / q.sum()
    if replace:
        order = np.argsort(-np.divide(q, p, out=np.full_like(q, np.inf), where=p > 0))
        inside = np.append(0.0, p[order].cumsum()), np.append(0.0, q[order].cumsum())
        return float((inside[0] + 1 - inside[1] ** k).min())
    if len(p) > 12:
        raise ValueError(f"p has {len(p)} tokens: without replacement at most 12 can be computed")
    k = min(k, int((q > 0).sum()))

    def all_in(tokens: tuple[int, ...], outside: float, draws: int) -> float:
        """The chance that so many further draws are among these tokens; outside: the mass of all
        others that may still be drawn."""
        if draws == 0:
            return 1.0
        left = outside + sum(q[x] for x in tokens)
        return sum(
            q[x] / left * all_in(tuple(y for y in tokens if y != x), outside, draws - 1)
            for x in tokens
            if q[x] > 0
        )

    def cut(inside: tuple[int, ...]) -> float:
        outside = sum(q[x] for x in range(len(q)) if x not in inside)
        return p[list(inside)].sum() + 1 - all_in(inside, outside, k)

    subsets = (h for size in range(len(p) + 1) for h in combinations(range(len(p)), size))
    return float(min(map(cut, subsets)))


# Tokens per pass ---------------------------------------------------------------------------------


def expected_tokens(alpha: ArrayLike, gamma: ArrayLike) -> float | np.ndarray:
    """Tokens that one target pass emits on average: (1 − α^(γ+1)) / (1 − α), between 1 and γ + 1.

    alpha: [0, 1], acceptances independent and equally likely; gamma: whole, at least 1. The
    recovered or bonus token is counted. Source: equation 1.
    """
    alpha, gamma = _alpha(alpha), _gamma(gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        tokens = np.expm1((gamma + 1) * np.log(alpha)) / (
            alpha - 1
        )  # exact where 1 − α^(γ+1) would cancel
    return _plain(np.where(alpha == 1, gamma + 1, tokens))


def token_count_law(alpha: float, gamma: int) -> np.ndarray:
    """The law of the tokens that one pass emits: entry k − 1 is P(k tokens), k = 1 … γ+1, float64
    [γ + 1].

    A geometric law of success 1 − alpha, capped at gamma + 1. Source: section 3.1.
    """
    alpha = float(_alpha(_number("alpha", alpha)))
    gamma = int(_gamma(_number("gamma", gamma)))
    law = alpha ** np.arange(gamma + 1)
    law[:-1] *= 1 - alpha
    return law


def tokens_from_profile(profile: ArrayLike) -> float | np.ndarray:
    """Tokens per pass when position i is accepted with a rate of its own: 1 + β₁ + β₁β₂ + … +
    β₁⋯β_γ.

    profile: [..., γ], entry i the share accepted *among the drafts tested* at position i. Returns
    [...]. With every entry equal to alpha this is `expected_tokens(alpha, γ)`.
    """
    profile = _array("profile", profile)
    if profile.ndim == 0 or profile.shape[-1] == 0:
        raise ValueError(f"profile needs one rate per drafted position, got shape {profile.shape}")
    return _plain(1 + np.cumprod(_within("profile", profile, 0, 1), axis=-1).sum(-1))


def conditional_acceptance(rates: ArrayLike) -> tuple[np.ndarray, float | np.ndarray]:
    """Rates by position as engines print them, made conditional: (profile [..., γ], alpha [...]).

    rates: [..., γ], entry i the share of *all* drafts whose position i was accepted, so that they
    never rise (vLLM's "per-position acceptance rate", such as .88, .78, .69). profile: accepted ÷
    tested at each position, the quotient of neighbours, as `tokens_from_profile` takes it; 0 where
    nothing was tested. alpha: accepted ÷ tested over all positions. ValueError for rates that rise
    or lie outside [0, 1].
    """
    rates = _within("rates", rates, 0, 1)
    if rates.ndim == 0 or rates.shape[-1] == 0:
        raise ValueError(f"rates needs one rate per drafted position, got shape {rates.shape}")
    tested = np.concatenate((np.ones_like(rates[..., :1]), rates[..., :-1]), axis=-1)
    if np.any(rates > tested):
        raise ValueError(f"rates must not rise: a draft accepted at i was accepted before, {rates}")
    profile = np.divide(rates, tested, out=np.zeros_like(rates), where=tested > 0)
    return profile, _plain(rates.sum(-1) / tested.sum(-1))


def round_starts(rates: ArrayLike, moves: ArrayLike, gamma: int) -> np.ndarray:
    """Where rounds begin, in a text whose positions are easy or hard by turns: the share of rounds
    [S] whose first drafted token stands in each state.

    rates: [S] acceptance in each state; moves: [S, S], row s the chances of the next position's
    state; gamma: whole, at least 1. A round that accepts n < γ drafts begins anew behind the token
    it recovered, one that accepts all behind its bonus token; the law is the stationary one of that
    walk, with D = diag(rates): R = Σₙ (D·moves)ⁿ (1 − D) moves + (D·moves)^γ moves. Longer drafts
    leave easy stretches in one round and begin in hard ones more often, so `rates @ round_starts`
    is no property of a pair: it falls with γ. ValueError where rows of moves do not sum to 1.
    Source: the book's own (chapter 19).
    """
    rates = _within("rates", rates, 0, 1)
    moves = _within("moves", moves, 0, 1)
    gamma = int(_gamma(_number("gamma", gamma)))
    if rates.ndim != 1 or moves.shape != (len(rates), len(rates)):
        raise ValueError(
            f"rates [S] and moves [S, S] must fit, got shapes {rates.shape} and {moves.shape}"
        )
    if not np.allclose(moves.sum(-1), 1, atol=SUM_TOLERANCE):
        raise ValueError(f"every row of moves must sum to 1, they sum to {moves.sum(-1)}")
    step = rates[:, None] * moves
    passed = np.eye(len(rates))
    walk = np.zeros_like(moves)
    for _ in range(gamma):
        walk += passed @ ((1 - rates)[:, None] * moves)
        passed = passed @ step
    walk += passed @ moves
    balance = np.vstack((walk.T - np.eye(len(rates)), np.ones(len(rates))))
    return np.linalg.lstsq(balance, np.eye(len(rates) + 1)[-1], rcond=None)[0]


def starts_in_text(kept: ArrayLike, gamma: int) -> np.ndarray:
    """The chance that a round begins at each position of one text: [n], 1 at the first.

    kept: [n], the chance that the text's own token there is an accepted draft, were it tested: 1 or
    0 where both models choose, min(1, q/p) of that token where they draw; gamma: whole, at least 1.
    Given the text, these are independent, so the walk of the rounds is known without a draft drawn.
    `kept @ starts / starts.sum()` is the acceptance of rounds' first tokens. Source: the book's own
    (chapter 19).
    """
    kept = _within("kept", kept, 0, 1)
    gamma = int(_gamma(_number("gamma", gamma)))
    if kept.ndim != 1 or not len(kept):
        raise ValueError(f"kept needs one chance per position, got shape {kept.shape}")
    starts = np.zeros(len(kept) + gamma + 1)
    starts[0] = 1
    for place in range(len(kept)):
        accepted = np.cumprod(kept[place : place + gamma])
        accepted = np.pad(accepted, (0, gamma - len(accepted)))
        alive = np.append(1, accepted)
        starts[place + 1 : place + gamma + 2] += starts[place] * -np.diff(alive, append=0)
    return starts[: len(kept)]


def drafted_acceptance(alpha: ArrayLike, gamma: ArrayLike) -> float | np.ndarray:
    """Accepted ÷ drafted, the rate that engines print: (E[tokens] − 1) / γ, at most alpha.

    alpha: [0, 1]; gamma: whole, at least 1. Drafts behind a rejection are counted though never
    tested; accepted ÷ *tested* is what estimates alpha.
    """
    return _plain((expected_tokens(alpha, gamma) - 1) / _gamma(gamma))


# Time and arithmetic -----------------------------------------------------------------------------


def walltime_improvement(alpha: ArrayLike, gamma: ArrayLike, c: ArrayLike) -> float | np.ndarray:
    """The speedup over plain decoding: (1 − α^(γ+1)) / ((1 − α)(γc + 1)).

    alpha: [0, 1]; gamma: whole, at least 1; c: draft/target time of one pass, at least 0. Verifying
    γ + 1 positions is taken to cost one target pass; `corrected_improvement` lifts that. Source:
    theorem 3.8.
    """
    return corrected_improvement(expected_tokens(alpha, gamma), gamma, c)


def corrected_improvement(
    tokens: ArrayLike,
    gamma: ArrayLike,
    c: ArrayLike,
    verify: ArrayLike = 1.0,
    overhead: ArrayLike = 0.0,
) -> float | np.ndarray:
    """The speedup with measured costs: tokens / (verify + γc + overhead), every cost in units of
    T(1).

    tokens: emitted per pass, from `expected_tokens` or `tokens_from_profile`; gamma: whole, at
    least 1; c: a draft pass *inside the loop*; verify: T(γ+1)/T(1), above 0; overhead: all else of
    a round, at least 0.
    """
    tokens, gamma = _within("tokens", tokens, 1, np.inf), _gamma(gamma)
    c = _within("c", c, 0, np.inf)
    overhead = _within("overhead", overhead, 0, np.inf)
    verify = _array("verify", verify)
    if not np.all(verify > 0):
        raise ValueError(f"verify must be above 0, got {verify}")
    if np.any(tokens > (gamma + 1) * (1 + 1e-12)):
        raise ValueError(
            f"tokens must be at most gamma + 1, got tokens={tokens} with gamma={gamma}"
        )
    return _plain(tokens / (verify + gamma * c + overhead))


def reuse_improvement(
    tokens: ArrayLike,
    gamma: ArrayLike,
    c: ArrayLike,
    shared: ArrayLike,
    verify: ArrayLike = 1.0,
    overhead: ArrayLike = 0.0,
) -> float | np.ndarray:
    """The speedup of a draft that is the target's own first layers and hands its states on: tokens
    / (v + γc − s(v − 1) + overhead), every cost in units of T(1).

    Verification runs the first layers for one row, the last drafted token's, in place of γ + 1; the
    others for all of them. Where γ + 1 rows cost what one row costs (v = 1) nothing is paid back;
    where each row costs as much as the first (v = γ + 1), γs of γc is.

    tokens, gamma, c, verify, overhead: as for `corrected_improvement`, verify that of a whole pass.
    shared: s, what the first layers, without the head, take of a pass: [0, 1].
    """
    shared = _within("shared", shared, 0, 1)
    paid_back = shared * (_array("verify", verify) - 1)
    return corrected_improvement(tokens, gamma, c, verify - paid_back, overhead)


def guaranteed_improvement(alpha: ArrayLike, c: ArrayLike) -> float | np.ndarray:
    """The speedup the best γ is sure to reach: (1 + α)/(1 + c) where α > c, else 1 (draft nothing).

    alpha: [0, 1]; c: at least 0. It is the speedup at γ = 1. Source: corollary 3.9.
    """
    alpha, c = _alpha(alpha), _within("c", c, 0, np.inf)
    return _plain(np.where(alpha > c, (1 + alpha) / (1 + c), 1.0))


def optimal_gamma(alpha: ArrayLike, c: ArrayLike, max_gamma: int = 64) -> tuple:
    """The draft length of the greatest speedup, and that speedup: (gamma, improvement).

    alpha: [0, 1]; c: at least 0; max_gamma: whole, at least 1. (0, 1.0) when alpha <= c: drafting
    cannot pay. The smallest such gamma where several tie. Arrays give an int64 and a float64 array.
    Source: section 3.5.
    """
    alpha, c = _alpha(alpha), _within("c", c, 0, np.inf)
    gammas = np.arange(1, int(_gamma(_number("max_gamma", max_gamma), "max_gamma")) + 1)
    curve = np.asarray(walltime_improvement(alpha[..., None], gammas, c[..., None]))
    pays = alpha > c
    best = np.where(pays, gammas[curve.argmax(-1)], 0)
    improvement = np.where(pays, curve.max(-1), 1.0)
    return (int(best), float(improvement)) if best.ndim == 0 else (best, improvement)


def operations_factor(alpha: ArrayLike, gamma: ArrayLike, c_hat: ArrayLike) -> float | np.ndarray:
    """Arithmetic per emitted token, against plain decoding: (1 − α)(γĉ + γ + 1) / (1 − α^(γ+1)), at
    least 1.

    alpha: [0, 1]; gamma: whole, at least 1; c_hat: draft/target arithmetic per token, at least 0.
    Source: theorem 3.11.
    """
    gamma, c_hat = _gamma(gamma), _within("c_hat", c_hat, 0, np.inf)
    return _plain((gamma * c_hat + gamma + 1) / expected_tokens(alpha, gamma))


def drafting_share(
    gamma: ArrayLike, c: ArrayLike, verify: ArrayLike = 1.0, overhead: ArrayLike = 0.0
) -> float | np.ndarray:
    """The share of a round's time that the draft takes: γc / (verify + γc + overhead), in [0, 1).

    Arguments as in `corrected_improvement`.
    """
    gamma, c = _gamma(gamma), _within("c", c, 0, np.inf)
    return _plain(gamma * c * corrected_improvement(1.0, gamma, c, verify, overhead))


# Checks ------------------------------------------------------------------------------------------


def _distributions(p: ArrayLike | Tensor, q: ArrayLike | Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64 arrays, after checking that each row sums to 1."""
    p, q = _array("p", p), _array("q", q)
    for name, x in (("p", p), ("q", q)):
        if x.ndim == 0 or 0 in x.shape:
            raise ValueError(f"{name} must be rows over the vocabulary, got shape {tuple(x.shape)}")
        sums = x.sum(-1)
        low = float(x.min())
        least = float(sums.min())
        most = float(sums.max())
        if not (low >= 0 and least >= 1 - SUM_TOLERANCE and most <= 1 + SUM_TOLERANCE):
            raise ValueError(
                f"{name} must be non-negative and sum to 1 along its last axis; "
                f"its smallest entry is {low}, its sums lie in [{least}, {most}]"
            )
    if p.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"p and q must share one vocabulary, got {p.shape[-1]} and {q.shape[-1]} entries"
        )
    return p, q


def _array(name: str, x: ArrayLike | Tensor) -> np.ndarray:
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        x = (x if x.is_complex() else x.double()).numpy()  # NumPy has no bfloat16
    array = np.asarray(x)
    try:
        if array.dtype.kind in "USc":
            raise TypeError("text and complex numbers are none")
        return array.astype(float)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name}={x!r}: must be a number or an array of numbers ({error})"
        ) from None


def _number(name: str, x) -> float:
    x = _array(name, x)
    if x.ndim:
        raise ValueError(f"{name} must be one number, got shape {x.shape}")
    return float(x)


def _within(name: str, x: ArrayLike, low: float, high: float) -> np.ndarray:
    x = _array(name, x)
    if not np.all((x >= low) & (x <= high)):
        allowed = f"in [{low}, {high}]" if np.isfinite(high) else f"at least {low}"
        raise ValueError(f"{name} must be {allowed}, got {x}")
    return x


def _alpha(alpha: ArrayLike) -> np.ndarray:
    return _within("alpha", alpha, 0, 1)


def _gamma(gamma: ArrayLike, name: str = "gamma") -> np.ndarray:
    gamma = _array(name, gamma)
    if not np.all((gamma >= 1) & (gamma == np.floor(gamma)) & np.isfinite(gamma)):
        raise ValueError(f"{name} must be a whole number, at least 1, got {gamma}")
    return gamma


def _plain(x: np.ndarray) -> float | np.ndarray:
    """A float where there are no axes left."""
    return float(x) if np.ndim(x) == 0 else x
