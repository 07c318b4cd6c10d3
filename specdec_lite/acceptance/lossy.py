"""Rules that give up the target's distribution for longer accepted paths.

Each rule is lossless at one end of its setting, and its docstring says where. `rejection_sampling`
is here because it is lossless only if q > 0 wherever p > 0.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from specdec_lite.acceptance.greedy import longest_path
from specdec_lite.acceptance.protocol import (
    RuleFunction,
    drawn_from,
    numbers_of,
    ratio,
    residual,
    rule,
    walk_tree,
    with_settings,
)
from specdec_lite.checks import is_number, number, unit, whole
from specdec_lite.proposal import Draws, Proposal, Verdict
from specdec_lite.sampling import Rng


def walk(
    accept: Callable[[Tensor, Tensor, int], float], leftover: Callable[[Tensor, Tensor], Tensor]
) -> RuleFunction:
    """Return a rule that walks as `speculative_sampling` does, with its two parts replaced.

    `walk(ratio, residual)` is speculative sampling.

    Args:
        accept: (r, q, x) → the probability of keeping token x, which was drawn from q. r is the
            residual [V] at this test; r = p before the first test.
        leftover: (r, q) → the residual [V] after a rejection. The next sibling is tested against
            it, and the recovered token is drawn from it.
    """

    def verify(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        tokens = numbers_of(proposal, target_probs).tokens

        def visit(node: int, draws: Draws) -> tuple[int | None, int]:
            remaining = target_probs[node + 1]
            for index, (child, row) in enumerate(draws):
                # Any `accept` may look at the whole rows, so none of the numbers read in advance
                # would do.
                q = drawn_from(proposal, row, tokens[child], remaining)
                if rng.flip(accept(remaining, q, tokens[child])):
                    return index, tokens[child]
                remaining = leftover(remaining, q)
            return None, rng.draw(remaining)

        return walk_tree(proposal, visit)

    return verify


@with_settings
def lenient(lenience: float) -> RuleFunction:
    """Return a rule that accepts with min(1, p/(l·q)) and recovers from the residual of p − q.

    l = 1 is speculative sampling; a smaller l accepts more. The rule is not lossless below 1, but no
    token's probability exceeds p/l. Source: Leviathan et al. 2023, appendix A.5.

    Args:
        lenience: l in (0, 1].
    """
    unit("lenience", lenience)
    verify = walk(lambda p, q, x: ratio(p, q, x) / lenience, residual)
    return rule(lossless=lenience == 1, name=f"lenient({lenience})")(verify)


@with_settings
def lenient_scaled(lenience: float) -> RuleFunction:
    """Return `lenient` with the residual of p − l·q: the other reading of the same appendix.

    Args:
        lenience: l in (0, 1].
    """
    unit("lenience", lenience)

    def leftover(p: Tensor, q: Tensor) -> Tensor:
        # Below 1 the excess is never empty: both rows sum to 1, and q is scaled down.
        excess = (p - lenience * q).clamp(min=0)
        return excess / excess.sum() if lenience < 1 else residual(p, q)

    verify = walk(lambda p, q, x: ratio(p, q, x) / lenience, leftover)
    return rule(lossless=lenience == 1, name=f"lenient_scaled({lenience})")(verify)


def _scaled_ratio(p: Tensor, q: Tensor, token: int) -> float:
    """Return p(x)/(M·q(x)) with M = max p/q; 0 if p(x) = 0, even if p and q share no token."""
    p_over_q = ratio(p, q, token)
    # M is over the tokens that q can draw: the others would make it infinite.
    return p_over_q / (p[q > 0] / q[q > 0]).max().item() if p_over_q > 0 else 0.0


_try_once = walk(_scaled_ratio, lambda p, q: p)


@rule(lossless=False)
def rejection_sampling(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Accept with p(x)/(M·q(x)), M = max p/q over the tokens that q can draw; recover from p.

    This is textbook rejection sampling that stops after one try. It is lossless if q > 0 wherever
    p > 0: every token is then accepted with probability p(x)/M, and p remains. If q leaves out a
    token of p it is not lossless, hence the tag. Source: Leviathan et al. 2023, appendix A.2.

    Args:
        proposal: the drafted tree.
        target_probs: [n+1, V], row 0 after the root, row i+1 after node i.
        rng: where chance comes from.
    """
    return _try_once(proposal, target_probs, rng)


def _drafted(rows: Tensor, tokens: Tensor) -> Tensor:
    """Return the probability [n] of each drafted token in its row [n, V]."""
    return rows.gather(-1, tokens[:, None])[:, 0]


@with_settings
def typical(epsilon: float = 0.09, delta: float = 0.3) -> RuleFunction:
    """Return a rule that accepts x iff p(x) > min(ε, δ·exp(−H(p))) and keeps the longest path.

    The token after the path is the argmax. In the paper this argmax is the first token of the next
    round, which is greedy and accepted unconditionally. The rule is not lossless. The defaults are
    those of its authors' code (`posterior_threshold`, `posterior_alpha`), where δ = √ε. On a one-hot
    p, so at temperature 0, this is exact match. Source: Cai et al. 2024 (Medusa), sections 2.3.1 and
    3.3.2; its code breaks ties by likelihood.

    Args:
        epsilon: ε in [0, 1).
        delta: δ ≥ 0; the entropy H is in nats.

    Raises:
        ValueError: an argument is outside its range.
    """
    if not (is_number(epsilon) and 0 <= epsilon < 1):
        raise ValueError(f"epsilon={epsilon!r}: must be a number in [0, 1)")
    number("delta", delta)

    def accepts(rows: Tensor, tokens: Tensor) -> Tensor:
        # exp(−H) is the probability of a typical token: the flatter the row, the lower the bar.
        bound = delta * torch.special.entr(rows).sum(-1).neg().exp()
        return _drafted(rows, tokens) > bound.clamp(max=epsilon)

    return rule(lossless=False, name=f"typical({epsilon}, {delta})")(longest_path(accepts))


@with_settings
def lenient_argmax(lenience: float) -> RuleFunction:
    """Return a lenient rule for greedy decoding: accept x iff p(x) ≥ l·max p.

    The token after the longest path is the argmax. l = 1 is exact match; below 1 the rule is not
    lossless. The paper prints the inequality the other way round. Source: Leviathan et al. 2023,
    appendix A.5.

    Args:
        lenience: l in (0, 1].
    """
    unit("lenience", lenience)
    verify = longest_path(lambda rows, tokens: _drafted(rows, tokens) >= lenience * rows.amax(-1))
    return rule(lossless=False, name=f"lenient_argmax({lenience})")(verify)


@with_settings
def top_k_match(k: int) -> RuleFunction:
    """Return a rule that accepts x iff p(x) > 0 and x is among the target's k most likely tokens.

    The token after the longest path is the argmax. k = 1 is greedy verification; above 1 the rule is
    not lossless. It needs a soft p, so decode at temperature 1: at temperature 0 only the argmax has
    any probability. Equal probabilities rank by token id. Source: Stern et al. 2018, section 5.1.

    Args:
        k: a whole number ≥ 1.
    """
    whole("k", k, 1)

    def accepts(rows: Tensor, tokens: Tensor) -> Tensor:
        p = _drafted(rows, tokens)[:, None]
        ids = torch.arange(rows.shape[-1], device=rows.device)
        # A token's rank is the number of tokens before it; equal probabilities rank by id.
        before = (rows > p) | ((rows == p) & (ids < tokens[:, None]))
        return (before.sum(-1) < k) & (p[:, 0] > 0)

    return rule(lossless=False, name=f"top_k_match({k})")(longest_path(accepts))


@with_settings
def distance_match(
    epsilon: float, distance: Callable[[Tensor, Tensor], Tensor] | None = None
) -> RuleFunction:
    """Return a rule that accepts x iff its distance from the target's argmax y is at most ε.

    The token after the longest path is the argmax. ε = 0 is greedy verification; above 0 the rule is
    not lossless. Source: Stern et al. 2018, section 5.2.

    Args:
        epsilon: ε ≥ 0.
        distance: (drafted ids [n], argmax ids [n]) → [n] numbers ≥ 0, 0 only for equal tokens. None
            for |x − y|, which is meaningful if ids are quantities, such as the brightness of a pixel.
    """
    number("epsilon", epsilon)
    apart = distance or (lambda drafted, likeliest: (drafted - likeliest).abs())
    verify = longest_path(lambda rows, tokens: apart(tokens, rows.argmax(-1)) <= epsilon)
    return rule(lossless=False, name=f"distance_match({epsilon})")(verify)
