"""The lossless rules of sampling: speculative sampling, and sample and match."""

from torch import Tensor

from specdec_lite.acceptance.rule import drawn_from, kind_of, ratio, residual, rule
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Rng


@rule(lossless=True)
def speculative_sampling(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Keep a drafted token with probability min(1, p/q); replace the first rejected one from what
    the draft left of p.

    Begin at the root. The drafted children of a node are tested in order, each against the
    distribution q that it was drawn from. The first one that is kept is the next node. After a
    rejection p becomes norm(max(0, p − q)), which the next child is tested against; when none is
    left, the next token is drawn from it: the *recovered* token, or, where a node has no children,
    the *bonus* token from p itself. A chosen token is a draw from a point mass.

    Args:
        proposal: the drafted tree.
        target_probs: [n+1, V], row 0 after the root, row i+1 after node i.
        rng: where chance comes from.

    Source: Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2; on trees, Miao et al.
    2024 (SpecInfer), algorithm 2.
    """
    tokens = proposal.tree.tokens.tolist()
    path: list[int] = []
    tests: list[int] = []
    node = -1
    while True:
        p = target_probs[node + 1]
        draws = proposal.draws.get(node, ())
        for count, (child, row) in enumerate(draws, start=1):
            q = drawn_from(proposal, row, tokens[child], p)
            if rng.flip(ratio(p, q, tokens[child])):
                break
            p = residual(p, q)
        else:
            if draws:
                tests.append(len(draws))
            kind = kind_of(path, rejected=bool(draws))
            return Verdict(tuple(path), rng.draw(p), kind, tuple(tests))
        path.append(child)
        tests.append(count)
        node = child


@rule(lossless=True)
def sample_and_match(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Draw the target's own token first, and follow the draft only where it says the same.

    Accepts Σ p·q of a draw, fewer than speculative sampling's Σ min(p, q).
    """
    tokens = proposal.tree.tokens.tolist()
    path: list[int] = []
    tests: list[int] = []
    node = -1
    while True:
        token = rng.draw(target_probs[node + 1])
        draws = proposal.draws.get(node, ())
        for count, (child, _) in enumerate(draws, start=1):
            if tokens[child] == token:
                break
        else:
            if draws:
                tests.append(len(draws))
            return Verdict(tuple(path), token, kind_of(path, rejected=bool(draws)), tuple(tests))
        path.append(child)
        tests.append(count)
        node = child
