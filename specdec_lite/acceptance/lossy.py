"""Rules that trade the target's law for length, and the frame of a walk in which both can be changed.

Each is lossless at one end of its setting, and says where. `rejection_sampling` is here because it
is lossless only where q reaches all of p.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from specdec_lite.acceptance.greedy import longest_path
from specdec_lite.acceptance.rule import RuleFunction, drawn_from, kind_of, ratio, residual, rule
from specdec_lite.checks import is_number, number, unit, whole
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Rng


def walk(
    accept: Callable[[Tensor, Tensor, int], float], leftover: Callable[[Tensor, Tensor], Tensor]
) -> RuleFunction:
    """The walk of `speculative_sampling` with its two parts open to change.

    accept(r, q, x): the probability of keeping token x that was drawn from q when r is still owed
    (r = p before the first test). leftover(r, q): what is owed after a rejection; it is carried
    from sibling to sibling, and the recovered token is drawn from it.
    `walk(ratio, residual)` is speculative sampling.
    """

    def judge(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        tokens = proposal.tree.tokens.tolist()
        path: list[int] = []
        tests: list[int] = []
        node = -1
        while True:
            owed = target_probs[node + 1]
            draws = proposal.draws.get(node, ())
            for count, (child, row) in enumerate(draws, start=1):
                q = drawn_from(proposal, row, tokens[child], owed)
                if rng.flip(accept(owed, q, tokens[child])):
                    break
                owed = leftover(owed, q)
            else:
                if draws:
                    tests.append(len(draws))
                kind = kind_of(path, rejected=bool(draws))
                return Verdict(tuple(path), rng.draw(owed), kind, tuple(tests))
            path.append(child)
            tests.append(count)
            node = child

    return judge


def lenient(lenience: float) -> RuleFunction:
    """Accept with min(1, p/(l·q)), recover from the residual of p − q. l = 1 is speculative
    sampling; smaller is laxer.

    Not lossless, but no token's probability exceeds p/l. Source: Leviathan et al. 2023, appendix
    A.5.
    """
    unit("lenience", lenience)
    judge = walk(lambda p, q, x: ratio(p, q, x) / lenience, residual)
    return rule(lossless=lenience == 1, name=f"lenient({lenience})")(judge)


def lenient_scaled(lenience: float) -> RuleFunction:
    """As `lenient`, but recovering from the residual of p − l·q: the other reading of the same
    appendix.
    """
    unit("lenience", lenience)

    def leftover(p: Tensor, q: Tensor) -> Tensor:
        excess = (p - lenience * q).clamp(min=0)
        return excess / excess.sum() if lenience < 1 else residual(p, q)

    judge = walk(lambda p, q, x: ratio(p, q, x) / lenience, leftover)
    return rule(lossless=lenience == 1, name=f"lenient_scaled({lenience})")(judge)


def _scaled_ratio(p: Tensor, q: Tensor, token: int) -> float:
    """p(x)/(M·q(x)), M = max p/q; 0 where p(x) = 0, so that laws with no token in common are met
    too.
    """
    kept = ratio(p, q, token)
    return kept / (p[q > 0] / q[q > 0]).max().item() if kept > 0 else 0.0


_iterate_once = walk(_scaled_ratio, lambda p, q: p)


@rule(lossless=False)
def rejection_sampling(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Non-iterative rejection sampling: accept with p(x)/(M·q(x)), M = max p/q over the tokens q
    can draw, recover from p.

    The textbook method made to stop after one try. Lossless where q > 0 wherever p > 0 (then every
    token is accepted with mass p(x)/M, and p is what is owed); where q leaves out a token of p it
    is not, hence the tag. Source: Leviathan et al. 2023, appendix A.2.
    """
    return _iterate_once(proposal, target_probs, rng)


def _drafted(rows: Tensor, tokens: Tensor) -> Tensor:
    """The probability [n] of each drafted token in its row [n, V]."""
    return rows.gather(-1, tokens[:, None])[:, 0]


def typical(epsilon: float = 0.09, delta: float = 0.3) -> RuleFunction:
    """Accept x iff p(x) > min(ε, δ·exp(−H(p))), longest path first; the token after it is the
    argmax. Not lossless.

    epsilon: in [0, 1); delta: ≥ 0; H in nats. The argmax that ends a round is the paper's first
    token of the next one, which is greedy and accepted unconditionally. The defaults are those of
    its authors' code (`posterior_threshold`, `posterior_alpha`), where δ = √ε. On a one-hot p, so
    at temperature 0, this is exact match. Source: Cai et al. 2024 (Medusa), sections 2.3.1 and
    3.3.2; its code breaks ties by likelihood.
    """
    if not (is_number(epsilon) and 0 <= epsilon < 1):
        raise ValueError(f"epsilon={epsilon!r}: must be a number in [0, 1)")
    number("delta", delta)

    def accepts(rows: Tensor, tokens: Tensor) -> Tensor:
        bound = delta * torch.special.entr(rows).sum(-1).neg().exp()
        return _drafted(rows, tokens) > bound.clamp(max=epsilon)

    return rule(lossless=False, name=f"typical({epsilon}, {delta})")(longest_path(accepts))


def lenient_argmax(lenience: float) -> RuleFunction:
    """Lenience for greedy decoding: accept x iff p(x) ≥ l·max p; the token after it is the argmax.
    l = 1 is exact match.

    Not lossless below 1. The paper prints the inequality the other way round. Source: Leviathan et
    al. 2023, appendix A.5.
    """
    unit("lenience", lenience)
    judge = longest_path(lambda rows, tokens: _drafted(rows, tokens) >= lenience * rows.amax(-1))
    return rule(lossless=False, name=f"lenient_argmax({lenience})")(judge)


def top_k_match(k: int) -> RuleFunction:
    """Accept x iff it is among the target's k likeliest tokens, of p > 0; the token after it is the
    argmax. k = 1 is greedy verification.

    Not lossless. It needs a soft p, so decode at temperature 1: at 0 only the argmax has any
    probability. Equal probabilities rank by token id. Source: Stern et al. 2018, section 5.1.
    """
    whole("k", k, 1)

    def accepts(rows: Tensor, tokens: Tensor) -> Tensor:
        p = _drafted(rows, tokens)[:, None]
        ids = torch.arange(rows.shape[-1], device=rows.device)
        before = (rows > p) | ((rows == p) & (ids < tokens[:, None]))
        return (before.sum(-1) < k) & (p[:, 0] > 0)

    return rule(lossless=False, name=f"top_k_match({k})")(longest_path(accepts))


def distance_match(
    epsilon: float, distance: Callable[[Tensor, Tensor], Tensor] | None = None
) -> RuleFunction:
    """Accept x iff it lies within ε of the target's argmax y; the token after it is the argmax. ε =
    0 is greedy verification.

    distance: (drafted ids [n], argmax ids [n]) → [n] numbers ≥ 0, 0 only for equal tokens; None: |x
    − y| of the ids, which means something where ids are quantities, such as the brightness of a
    pixel. Not lossless. Source: Stern et al. 2018, section 5.2.
    """
    number("epsilon", epsilon)
    apart = distance or (lambda drafted, likeliest: (drafted - likeliest).abs())
    judge = longest_path(lambda rows, tokens: apart(tokens, rows.argmax(-1)) <= epsilon)
    return rule(lossless=False, name=f"distance_match({epsilon})")(judge)
