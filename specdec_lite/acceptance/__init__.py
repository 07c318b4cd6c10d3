"""Acceptance rules: which drafted tokens stay, and which token the target adds.

A rule is a pure function (proposal, target_probs, rng) → Verdict. What lives here: the rules;
proposals and exact laws are passed on from `proposal` and `laws`. What does not: models, caches,
loops.

Words used throughout. An *accepted* token was drafted and kept. A *recovered* token replaces the
first rejected one. A *bonus* token follows a draft that was accepted to its end. `target_probs`
[n+1, V] holds the target's adjusted distributions: row 0 follows the root (the last committed
token), row i+1 follows node i.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lite.acceptance.laws import BlockLaw, block_law, draw_chain, joint_law, output_law
from specdec_lite.checks import is_number, is_whole
from specdec_lite.proposal import NOTHING, Proposal, Verdict, one_hot
from specdec_lite.sampling import Rng
from specdec_lite.theory import residual

__all__ = [
    "BlockLaw",
    "NOTHING",
    "Proposal",
    "Rule",
    "Verdict",
    "block_law",
    "block_verification",
    "distance_match",
    "draw_chain",
    "exact_match",
    "joint_law",
    "lenient",
    "lenient_argmax",
    "lenient_scaled",
    "output_law",
    "ratio",
    "rejection_sampling",
    "sample_and_match",
    "speculative_sampling",
    "top_k_match",
    "typical",
    "walk",
]


@dataclass(frozen=True, slots=True)
class Rule:
    """A named acceptance rule. lossless: the emitted text has the target's law, whatever the
    proposal.
    """

    name: str
    judge: Callable[[Proposal, Tensor, Rng], Verdict]
    lossless: bool

    def __call__(self, proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        return self.judge(proposal, target_probs, rng)


def _kind(proposal: Proposal, rejected: bool) -> str:
    return "sampled" if not len(proposal.tree) else "recovered" if rejected else "bonus"


def walk(
    accept: Callable[[Tensor, Tensor, int], float], leftover: Callable[[Tensor, Tensor], Tensor]
):
    """One walk from the root: at each node the drawn children are tested in order until one is
    accepted.

    accept(r, q, x): the probability of keeping token x that was drawn from q when r is still owed
    (r = p before the first test). leftover(r, q): what is owed after a rejection; it is carried
    from sibling to sibling, and the recovered token is drawn from it. Source: Leviathan et al.
    2023, algorithm 1; on trees, Miao et al. 2024 (SpecInfer), algorithm 2.
    """

    def judge(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        tokens, node = proposal.tree.tokens.tolist(), -1
        path: list[int] = []
        tests: list[int] = []
        while True:
            owed, draws = target_probs[node + 1], proposal.draws.get(node, ())
            for count, (child, row) in enumerate(draws, start=1):
                token = tokens[child]
                q = one_hot(token, owed) if row is None else proposal.probs[row]
                if rng.flip(accept(owed, q, token)):
                    path.append(child)
                    tests.append(count)
                    node = child
                    break
                owed = leftover(owed, q)
            else:
                tests += [len(draws)] if draws else []
                return Verdict(
                    tuple(path), rng.draw(owed), _kind(proposal, bool(draws)), tuple(tests)
                )

    return judge


def ratio(p: Tensor, q: Tensor, token: int) -> float:
    """p(x)/q(x) for a token that was really drawn from q, so q(x) > 0.

    Raises ValueError when q(x) = 0: such a token cannot have been drawn, so the row is not the one
    it was drawn from.
    """
    if not (drawn_with := q[token].item()) > 0:
        raise ValueError(
            f"token {token} has draft probability {drawn_with}: it cannot have been drawn from this"
            " row of probs"
        )
    return p[token].item() / drawn_with


speculative_sampling = Rule("speculative_sampling", walk(ratio, residual), lossless=True)


def lenient(lenience: float) -> Rule:
    """Accept with min(1, p/(l·q)), recover from the residual of p − q. l = 1 is speculative
    sampling; smaller is laxer.

    Not lossless, but no token's probability exceeds p/l. Source: Leviathan et al. 2023, appendix
    A.5.
    """
    _check_unit("lenience", lenience)
    return Rule(
        f"lenient({lenience})",
        walk(lambda p, q, x: ratio(p, q, x) / lenience, residual),
        lossless=lenience == 1,
    )


def lenient_scaled(lenience: float) -> Rule:
    """As `lenient`, but recovering from the residual of p − l·q: the other reading of the same
    appendix.
    """
    _check_unit("lenience", lenience)

    def leftover(p: Tensor, q: Tensor) -> Tensor:
        excess = (p - lenience * q).clamp(min=0)
        return excess / excess.sum() if lenience < 1 else residual(p, q)

    return Rule(
        f"lenient_scaled({lenience})",
        walk(lambda p, q, x: ratio(p, q, x) / lenience, leftover),
        lossless=lenience == 1,
    )


def _scaled_ratio(p: Tensor, q: Tensor, token: int) -> float:
    """p(x)/(M·q(x)), M = max p/q; 0 where p(x) = 0, so that laws with no token in common are met
    too.
    """
    kept = ratio(p, q, token)
    return kept / (p[q > 0] / q[q > 0]).max().item() if kept > 0 else 0.0


rejection_sampling = Rule("rejection_sampling", walk(_scaled_ratio, lambda p, q: p), lossless=False)
"""Non-iterative rejection sampling: accept with p(x)/(M·q(x)), M = max p/q over the tokens q can
draw, recover from p.

The textbook method made to stop after one try. Lossless where q > 0 wherever p > 0 (then every
token is accepted with mass p(x)/M, and p is what is owed); where q leaves out a token of p it is
not, hence the tag. Source: Leviathan et al. 2023, appendix A.2.
"""


def _sample_and_match(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    tokens, node = proposal.tree.tokens.tolist(), -1
    path: list[int] = []
    tests: list[int] = []
    while True:
        token = rng.draw(target_probs[node + 1])
        draws = proposal.draws.get(node, ())
        match = next((i for i, (child, _) in enumerate(draws) if tokens[child] == token), None)
        if match is None:
            return Verdict(
                tuple(path),
                token,
                _kind(proposal, bool(draws)),
                (*tests, *[len(draws)] * bool(draws)),
            )
        node = draws[match][0]
        path.append(node)
        tests.append(match + 1)


sample_and_match = Rule("sample_and_match", _sample_and_match, lossless=True)
"""Draw the target's own token first, and follow the draft only where it says the same. Lossless;
accepts Σ p·q of a draw.
"""


def _longest(name: str, accepts: Callable[[Tensor, Tensor], Tensor], lossless: bool) -> Rule:
    """Nodes pass or fail by themselves; the longest path of passing nodes wins, and the target's
    likeliest token follows.

    accepts(rows [n, V], tokens [n]) → [n] bool, where rows[i] is the target's distribution at the
    parent of node i. Of equally long paths the likeliest under the target wins, of equally likely
    ones the first.
    """

    def judge(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        # node → (length, probability) of the path to it
        tree = proposal.tree
        best = -1
        reached = {-1: (0, 1.0)}
        if len(tree):
            tokens = tree.tokens.to(target_probs.device)
            above = torch.tensor(tree.parents, device=target_probs.device) + 1
            rows = target_probs[above]
            passing = accepts(rows, tokens).tolist()
            probs = rows.gather(-1, tokens[:, None])[:, 0].tolist()
            for node, parent in enumerate(tree.parents):
                allowed = proposal.candidates is None or node in proposal.candidates
                if parent in reached and passing[node] and allowed:
                    reached[node] = reached[parent][0] + 1, reached[parent][1] * probs[node]
                    best = node if reached[node] > reached[best] else best
        path = tree.path(best)
        drawn = [[child for child, _ in proposal.draws.get(node, ())] for node in (-1, *path)]
        tests = [drawn[level].index(node) + 1 for level, node in enumerate(path)] + [
            len(drawn[-1])
        ] * bool(drawn[-1])
        return Verdict(
            path,
            int(target_probs[best + 1].argmax()),
            _kind(proposal, bool(drawn[-1])),
            tuple(tests),
        )

    return Rule(name, judge, lossless)


_follow_argmax = _longest(
    "follow_argmax", lambda rows, tokens: rows.argmax(-1) == tokens, lossless=False
)


def _exact_match(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    if not bool((target_probs.amax(-1) == 1).all()):
        raise ValueError(
            "exact_match needs one-hot target_probs (temperature=0): on a soft distribution it"
            " would replace sampling by argmax. Use speculative_sampling or sample_and_match."
        )
    return _follow_argmax(proposal, target_probs, rng)


exact_match = Rule("exact_match", _exact_match, lossless=True)
"""Greedy verification: a drafted token stays iff it is the target's argmax. Source: Stern et al.
2018, section 3.
"""


def typical(epsilon: float = 0.09, delta: float = 0.3) -> Rule:
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
    if not (is_number(delta) and delta >= 0):
        raise ValueError(f"delta={delta!r}: must be a number ≥ 0")

    def accepts(rows: Tensor, tokens: Tensor) -> Tensor:
        bound = delta * torch.special.entr(rows).sum(-1).neg().exp()
        return rows.gather(-1, tokens[:, None])[:, 0] > bound.clamp(max=epsilon)

    return _longest(f"typical({epsilon}, {delta})", accepts, lossless=False)


def lenient_argmax(lenience: float) -> Rule:
    """Lenience for greedy decoding: accept x iff p(x) ≥ l·max p; the token after it is the argmax.
    l = 1 is exact match.

    Not lossless below 1. The paper prints the inequality the other way round. Source: Leviathan et
    al. 2023, appendix A.5.
    """
    _check_unit("lenience", lenience)
    accepts = lambda rows, tokens: (
        rows.gather(-1, tokens[:, None])[:, 0] >= lenience * rows.amax(-1)
    )
    return _longest(f"lenient_argmax({lenience})", accepts, lossless=False)


def top_k_match(k: int) -> Rule:
    """Accept x iff it is among the target's k likeliest tokens, of p > 0; the token after it is the
    argmax. k = 1 is greedy verification.

    Not lossless. It needs a soft p, so decode at temperature 1: at 0 only the argmax has any
    probability. Equal probabilities rank by token id. Source: Stern et al. 2018, section 5.1.
    """
    if not is_whole(k) or k < 1:
        raise ValueError(f"k={k!r}: must be a whole number ≥ 1")

    def accepts(rows: Tensor, tokens: Tensor) -> Tensor:
        p = rows.gather(-1, tokens[:, None])
        ids = torch.arange(rows.shape[-1], device=rows.device)
        before = (rows > p) | ((rows == p) & (ids < tokens[:, None]))
        return (before.sum(-1) < k) & (p[:, 0] > 0)

    return _longest(f"top_k_match({k})", accepts, lossless=False)


def distance_match(
    epsilon: float, distance: Callable[[Tensor, Tensor], Tensor] | None = None
) -> Rule:
    """Accept x iff it lies within ε of the target's argmax y; the token after it is the argmax. ε =
    0 is greedy verification.

    distance: (drafted ids [n], argmax ids [n]) → [n] numbers ≥ 0, 0 only for equal tokens; None: |x
    − y| of the ids, which means something where ids are quantities, such as the brightness of a
    pixel. Not lossless. Source: Stern et al. 2018, section 5.2.
    """
    if not (is_number(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon={epsilon!r}: must be a number ≥ 0")
    apart = distance or (lambda drafted, likeliest: (drafted - likeliest).abs())
    accepts = lambda rows, tokens: apart(tokens, rows.argmax(-1)) <= epsilon
    return _longest(f"distance_match({epsilon})", accepts, lossless=False)


def _block_verification(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    if not proposal.is_plain_chain:
        raise ValueError(
            "block_verification judges chains of one draw a level; this proposal is a tree, or"
            " holds merged draws or candidates"
        )
    tokens, length = proposal.tree.tokens.tolist(), len(proposal.tree)
    rows = [
        proposal.probs[i] if proposal.probs is not None else one_hot(t, target_probs[0])
        for i, t in enumerate(tokens)
    ]
    weight = 1.0
    accepted = 0
    owed = residual(target_probs[0], rows[0]) if rows else target_probs[0]
    for i, token in enumerate(tokens, start=1):
        weight = min(1.0, weight * ratio(target_probs[i - 1], rows[i - 1], token))
        if i == length:
            excess, prob = target_probs[i], weight
        else:
            excess = (weight * target_probs[i] - rows[i]).clamp(min=0)
            mass = excess.sum().item()
            prob = (
                mass / (mass + (1.0 - weight)) if mass > 0 else 0.0
            )  # in this order: mass + 1 − weight may round to 0
        if rng.flip(prob):
            accepted, owed = i, excess / excess.sum()
    return Verdict(
        tuple(range(accepted)), rng.draw(owed), _kind(proposal, accepted < length), (1,) * length
    )


block_verification = Rule("block_verification", _block_verification, lossless=True)
"""Accept a prefix by the running product of p/q instead of token by token: the same law, never
fewer tokens on average.

The accepted length is the *last* success; stopping at the first failure is a different, biased
rule. Every drafted token counts as tested, so acceptance_rate is then accepted ÷ drafted. Source:
Sun et al. 2025, algorithm 2.
"""


def _check_unit(name: str, value: float) -> None:
    if not (is_number(value) and 0 < value <= 1):
        raise ValueError(f"{name}={value!r}: must be in (0, 1]")
