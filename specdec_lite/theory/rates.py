"""Two distributions: how often a token drawn from one is accepted against the other."""

from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from specdec_lite.theory.arrays import distributions, draft_length, number

Array = ArrayLike | Tensor


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
    p, q = distributions(p, q)
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
    p, q = distributions(p, q)
    return np.abs(p - q).sum(-1) / 2


def residual(p: Array, q: Array) -> np.ndarray:
    """Return the distribution from which a recovered token is drawn: norm(max(0, p − q)).

    If p == q nothing can be rejected, and p is returned. Rules that decode use
    `acceptance.residual`, which takes tensors and does not check them. Source: section 2.3.

    Args:
        p: target distributions [..., V].
        q: draft distributions [..., V].
    """
    p, q = distributions(p, q)
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
    lenience = number("lenience", lenience)
    if not 0 < lenience <= 1:
        raise ValueError(f"lenience must be in (0, 1], got {lenience}")
    p, q = distributions(p, q)
    return np.minimum(p / lenience, q).sum(-1)


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
    p, q = distributions(p, q)
    if p.ndim != 1 or q.ndim != 1:
        raise ValueError(f"p and q must be one row each, got shapes {p.shape} and {q.shape}")
    k = int(draft_length(number("k", k), "k"))
    if len(p) > 12 and not replace:
        raise ValueError(f"p has {len(p)} tokens: without replacement at most 12 can be computed")
    return _smallest_bound(p / p.sum(), q / q.sum(), k, replace)


def _smallest_bound(p: np.ndarray, q: np.ndarray, k: int, replace: bool) -> float:
    """Return the minimum over token sets H of p(H) + 1 − P(all k draws are in H)."""
    if replace:
        order = np.argsort(-np.divide(q, p, out=np.full_like(q, np.inf), where=p > 0))
        inside = np.append(0.0, p[order].cumsum()), np.append(0.0, q[order].cumsum())
        return float((inside[0] + 1 - inside[1] ** k).min())
    k = min(k, int((q > 0).sum()))
    subsets = (h for size in range(len(p) + 1) for h in combinations(range(len(p)), size))
    return float(min(_subset_bound(p, q, tokens, k) for tokens in subsets))


def _subset_bound(p: np.ndarray, q: np.ndarray, tokens: tuple[int, ...], draws: int) -> float:
    """Return p(H) + 1 − P(all draws from q without replacement are in H), H the given tokens."""
    outside = sum(q[x] for x in range(len(q)) if x not in tokens)
    return p[list(tokens)].sum() + 1 - _all_inside(q, tokens, outside, draws)


def _all_inside(q: np.ndarray, tokens: tuple[int, ...], outside: float, draws: int) -> float:
    """Return the probability that draws from q without replacement are all among some tokens.

    outside is the probability of all other tokens that were not drawn yet.
    """
    if draws == 0:
        return 1.0
    remaining = outside + sum(q[x] for x in tokens)
    return sum(
        q[x] / remaining * _all_inside(q, tuple(y for y in tokens if y != x), outside, draws - 1)
        for x in tokens
        if q[x] > 0
    )
