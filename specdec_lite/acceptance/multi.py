"""K-SEQ: a rule for several independent draws from one row at each node.

The walk of `exact.speculative_sampling` takes any draws. `theory.optimal_acceptance` computes the
largest acceptance that any rule can reach.
"""

import torch
from torch import Tensor

from specdec_lite.acceptance.protocol import (
    RuleFunction,
    numbers_of,
    residual,
    rule,
    walk_tree,
    with_settings,
)
from specdec_lite.checks import whole
from specdec_lite.proposal import Draws, Proposal, Verdict, one_hot
from specdec_lite.sampling import Rng

BISECTIONS = 60


@with_settings
def k_seq(k: int) -> RuleFunction:
    """Return a rule that tests up to k independent draws of one row q, all against p itself.

    Each draw is kept with probability min(1, p/(ρ·q)). With β(ρ) = Σ min(p/ρ, q), one of m draws is
    accepted with probability 1 − (1 − β)^m. ρ in [1, m] is the root of 1 − (1 − β)^m = ρ·β: the
    smallest ρ for which the residual p − min(p/ρ, q)·(1 − (1 − β)^m)/β is nowhere negative. If all
    draws are rejected, the token is drawn from this residual. The rule is lossless, and it accepts
    at least 1 − (1 − 1/m)^m of what any rule could. With one draw it is speculative sampling. On a
    tree it is applied node by node. Source: Sun et al. 2023 (SpecTr).

    Args:
        k: the largest number of draws at a node, ≥ 1.

    Returns:
        A rule, with k as its attribute `independent_draws`. It raises ValueError for more than k
        draws at a node, and for draws whose rows differ (drawn without replacement, from two
        models, or chosen).

    Raises:
        ValueError: k is not a whole number ≥ 1.
    """
    whole("k", k, 1)

    def verify(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        numbers = numbers_of(proposal, target_probs)
        # One copy of all rows to the host: the bisection reads a number at each of its steps.
        probs = target_probs[:0] if proposal.probs is None else proposal.probs.to(target_probs)
        host = torch.cat((target_probs, probs)).cpu()
        target_rows, drawn_rows = host[: len(target_probs)], host[len(target_probs) :]

        def visit(node: int, draws: Draws) -> tuple[int | None, int]:
            p = target_rows[node + 1]
            if not draws:
                return None, rng.draw(p)
            rows = [
                one_hot(numbers.tokens[child], p) if row is None else drawn_rows[row]
                for child, row in draws
            ]
            _check_rows(rows, k)
            rho, remaining = plan(p, rows[0], len(draws))
            for index, (child, row) in enumerate(draws):
                p_x, q_x = numbers.p_and_q(child, row)
                if rng.flip(p_x / q_x / rho):
                    return index, numbers.tokens[child]
            return None, rng.draw(remaining)

        return walk_tree(proposal, visit)

    marked = rule(lossless=True, name=f"k_seq({k})")(verify)
    setattr(marked, "independent_draws", k)  # noqa: B010
    return marked


def plan(p: Tensor, q: Tensor, count: int) -> tuple[float, Tensor]:
    """Return K-SEQ's ρ, and the residual from which the recovered token is drawn."""
    if count == 1:
        return 1.0, residual(p, q)
    p, q = p.double(), q.double()

    def accepted(beta: float) -> float:
        return 1.0 - (1.0 - min(1.0, beta)) ** count

    # accepted(β(ρ)) falls and ρ·β(ρ) rises with ρ. The upper end is kept, so that the residual is
    # nowhere negative.
    low, high = 1.0, float(count)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        beta = torch.minimum(p / middle, q).sum().item()
        if accepted(beta) > middle * beta:
            low = middle
        else:
            high = middle
    # A draw is kept with probability overlap/q, so m draws take overlap · accepted/β from p.
    overlap = torch.minimum(p / high, q)
    beta = overlap.sum().item()
    remaining = p - overlap * (accepted(beta) / beta) if beta > 0 else p
    if remaining.min().item() < -1e-6:
        raise ValueError(f"rho={high}: leaves {remaining.min().item()} to recover, must be ≥ 0")
    remaining = remaining.clamp(min=0)  # what rounding left below 0
    mass = remaining.sum()
    return high, remaining / mass if mass > 0 else p


def _check_rows(rows: list[Tensor], k: int) -> None:
    """Raise ValueError unless at most k draws came from rows [V] that are all equal."""
    if len(rows) > k:
        raise ValueError(
            f"k_seq({k}) takes at most {k} draws at a node; this proposal has {len(rows)}"
        )
    if any(not torch.equal(rows[0], row) for row in rows[1:]):
        raise ValueError(
            "k_seq takes independent draws from one row; the rows at a node of this proposal"
            " differ: drawn without replacement, from several models, or chosen. Use"
            " speculative_sampling"
        )
