"""The lossless rules of sampling: speculative sampling, and sample and match."""

from torch import Tensor

from specdec_lite.acceptance.protocol import (
    TokenProbs,
    drawn_from,
    kind_of,
    numbers_of,
    residual,
    rule,
    walk_tree,
)
from specdec_lite.proposal import Draws, Proposal, Verdict
from specdec_lite.sampling import Rng


@rule(lossless=True)
def speculative_sampling(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Keep a drafted token with probability min(1, p/q); replace the first rejected one.

    Begin at the root. Test the drafted children of a node in order, each against the distribution q
    from which it was drawn. The first child that is kept is the next node. After a rejection p
    becomes the residual norm(max(0, p − q)), and the next child is tested against it. If no child
    is left, draw the next token from p: the *recovered* token after a rejection, the *bonus* token
    if the node has no children. A chosen token is a draw from a one-hot row.

    Source: Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2; on trees, Miao et al.
    2024 (SpecInfer), algorithm 2.

    Args:
        proposal: the drafted tree.
        target_probs: [n+1, V], row 0 after the root, row i+1 after node i.
        rng: where chance comes from.
    """
    probs = TokenProbs(proposal, target_probs)
    path: list[int] = []
    tests: list[int] = []
    node = -1
    while True:
        p = target_probs[node + 1]
        draws = proposal.draws.get(node, ())
        for index, (child, row) in enumerate(draws):
            p_x, q_x = probs(node, index)  # of the drafted token x
            if rng.flip(min(1.0, p_x / q_x)):
                node = child
                path.append(node)
                tests.append(index + 1)
                break
            # x was likelier under q than under p. What q gave too much is taken off p, here and
            # for every later sibling: norm(max(0, p − q)).
            p = residual(p, drawn_from(proposal, row, probs.numbers.tokens[child], p))
        else:
            if draws:
                tests.append(len(draws))
            kind = kind_of(path, rejected=bool(draws))
            return Verdict(tuple(path), rng.draw(p), kind, tuple(tests))


@rule(lossless=True)
def sample_and_match(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Draw the target's own token first, and keep a drafted token only if it is the same.

    It accepts a draw with probability Σ p·q, which is at most the Σ min(p, q) of speculative
    sampling.

    Args:
        proposal: the drafted tree.
        target_probs: [n+1, V], row 0 after the root, row i+1 after node i.
        rng: where chance comes from.
    """
    tokens = numbers_of(proposal, target_probs).tokens

    def visit(node: int, draws: Draws) -> tuple[int | None, int]:
        # The token is drawn without a look at the drafts, so it has the target's distribution.
        token = rng.draw(target_probs[node + 1])
        drafted = [tokens[child] for child, _ in draws]
        return drafted.index(token) if token in drafted else None, token

    return walk_tree(proposal, visit)
