"""Rules for several independent draws at one place: K-SEQ.

What lives here: rules that need the draws of a node to be independent and of one row. What does
not: the walk, which takes any draws (`exact`); how good any rule can be
(`theory.optimal_acceptance`).
"""

import torch
from torch import Tensor

from specdec_lite.acceptance.rule import RuleFunction, drawn_from, kind_of, ratio, residual, rule
from specdec_lite.checks import whole
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Rng

BISECTIONS = 60


def k_seq(k: int) -> RuleFunction:
    """Try up to k independent draws of one row q, each with min(1, p/(ρ·q)), all against p itself.

    With β(ρ) = Σ min(p/ρ, q) one of m draws is accepted with 1 − (1 − β)^m, and ρ in [1, m] is the
    root of 1 − (1 − β)^m = ρ·β: the smallest ρ that leaves no token with less than nothing to
    recover. If none is accepted the token comes from what p is still owed, p − min(p/ρ, q)·(1 − (1
    − β)^m)/β. Lossless, and it accepts at least 1 − (1 − 1/m)^m of what any rule could. One draw is
    speculative sampling. On a tree it is applied node by node.

    Args:
        k: the most draws at a node, ≥ 1.

    The rule raises ValueError for more draws at a node than k, and for draws whose rows differ: what
    was drawn without replacement, from two models, or chosen. Source: Sun et al. 2023 (SpecTr).
    """
    whole("k", k, 1)

    def judge(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        tokens = proposal.tree.tokens.tolist()
        path: list[int] = []
        tests: list[int] = []
        node = -1
        while True:
            p = target_probs[node + 1]
            draws = proposal.draws.get(node, ())
            if not draws:
                return Verdict(tuple(path), rng.draw(p), kind_of(path, False), tuple(tests))
            q = _one_row(proposal, draws, tokens, p, k)
            rho, owed = plan(p, q, len(draws))
            for count, (child, _) in enumerate(draws, start=1):
                if rng.flip(ratio(p, q, tokens[child]) / rho):
                    break
            else:
                tests.append(len(draws))
                return Verdict(tuple(path), rng.draw(owed), kind_of(path, True), tuple(tests))
            path.append(child)
            tests.append(count)
            node = child

    return rule(lossless=True, name=f"k_seq({k})")(judge)


def plan(p: Tensor, q: Tensor, count: int) -> tuple[float, Tensor]:
    """K-SEQ's ρ for `count` draws from q [V] against p [V], and the distribution [V] that the
    recovered token is drawn from.

    ValueError where that would hold less than nothing, which no ρ at or above the root does.
    """
    if count == 1:
        return 1.0, residual(p, q)
    p, q = p.double(), q.double()

    def kept(rho: float) -> Tensor:
        return torch.minimum(p / rho, q)

    def accepted(beta: float) -> float:
        return 1.0 - (1.0 - min(1.0, beta)) ** count

    low, high = 1.0, float(count)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        beta = kept(middle).sum().item()
        if accepted(beta) > middle * beta:
            low = middle
        else:
            high = middle
    beta = kept(high).sum().item()
    owed = p - kept(high) * (accepted(beta) / beta) if beta > 0 else p
    if owed.min().item() < -1e-6:
        raise ValueError(f"rho={high}: leaves {owed.min().item()} to recover, must be ≥ 0")
    owed = owed.clamp(min=0)
    mass = owed.sum()
    return high, owed / mass if mass > 0 else p


def _one_row(proposal: Proposal, draws, tokens: list[int], like: Tensor, k: int) -> Tensor:
    """The row [V] that all draws at a node came from."""
    if len(draws) > k:
        raise ValueError(
            f"k_seq({k}) judges at most {k} draws at a node; this proposal has {len(draws)}"
        )
    first, *others = (drawn_from(proposal, row, tokens[child], like) for child, row in draws)
    if any(not torch.equal(first, row) for row in others):
        raise ValueError(
            "k_seq judges independent draws of one row; the rows at a node of this proposal differ:"
            " drawn without replacement, from several models, or chosen. Use speculative_sampling"
        )
    return first
