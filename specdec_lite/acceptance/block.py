"""Block verification: a drafted chain is verified as a whole; the same on trees, from the leaves up."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lite.acceptance.protocol import drawn_from, kind_of, numbers_of, ratio, rule
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Rng


@rule(lossless=True, chains_only=True)
def block_verification(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Accept a prefix by the running product of p/q instead of token by token.

    The distribution of the text is the same, and on average the rule accepts at least as many
    tokens. The accepted length is the *last* success; to stop at the first failure is a different,
    biased rule. Every drafted token counts as tested, so acceptance_rate is then accepted ÷ drafted.
    Source: Sun et al. 2025, algorithm 2.

    Args:
        proposal: a chain with one draw per level.
        target_probs: [n+1, V], row 0 after the root, row i+1 after node i.
        rng: where chance comes from.

    Raises:
        ValueError: the proposal is a tree, or has merged draws or candidates.
    """
    if not proposal.is_plain_chain:
        raise ValueError(
            "block_verification takes chains with one draw per level; this proposal is a tree, or"
            " has merged draws or candidates"
        )
    numbers = numbers_of(proposal, target_probs)
    length = len(numbers.tokens)
    draws = [(i, None if proposal.probs is None else i) for i in range(length)]
    rows = [drawn_from(proposal, row, numbers.tokens[i], target_probs[0]) for i, row in draws]
    # A draft that was much likelier under p than under q may make up for an earlier token that was
    # not, but never counts for more than 1: that is what lengthens the accepted block.
    weights = [1.0]
    for draw in draws:
        p_x, q_x = numbers.p_and_q(*draw)
        weights.append(min(1.0, weights[-1] * (p_x / q_x)))
    # After i tokens a share w of p is left for stopping here; what the next draft can take is q.
    excess = [(w * p - q).clamp(min=0) for w, p, q in zip(weights, target_probs, rows)]
    masses = torch.stack([part.sum() for part in excess]).tolist() if rows else []
    accepted = 0
    for i in range(1, length):
        # The sum in this order: (mass + 1) − weight may round to 0.
        prob = masses[i] / (masses[i] + (1.0 - weights[i])) if masses[i] > 0 else 0.0
        # No break after a failure: a later success accepts these tokens too.
        accepted = i if rng.flip(prob) else accepted
    if length and rng.flip(weights[-1]):
        accepted = length
    after = target_probs[accepted]
    if accepted < length and masses[accepted] > 0:
        after = excess[accepted] / excess[accepted].sum()
    path = tuple(range(accepted))
    kind = kind_of(path, rejected=accepted < length)
    return Verdict(path, rng.draw(after), kind, (1,) * length)


@dataclass(slots=True)
class _Candidate:
    """A draw on the way down to a leaf.

    Attributes:
        node: on which the draw landed; -1 for the root.
        weight: probability of stopping at this node once all draws below it are rejected.
        after: the distribution [V] of a token after this node.
        row: the distribution [V] that the draw was made from; None for the root.
        draws: the draws below the node that are still untested, each as (node, row of probs).
        rejected: whether a draw below the node was rejected.
    """

    node: int
    weight: float
    after: Tensor
    row: Tensor | None
    draws: Iterator[tuple[int, int | None]]
    rejected: bool = False

    def reject(self, row: Tensor) -> None:
        """Replace `after` by its residual, because a draw below the node was rejected."""
        excess = (self.weight * self.after - row).clamp(min=0)
        mass = excess.sum().item()
        self.rejected = True
        if mass > 0:
            self.after = excess / mass
            # The sum in this order: (mass + 1) − weight may round to 0.
            self.weight = mass / (mass + (1.0 - self.weight))
        else:
            self.weight = 0.0


@rule(lossless=True)
def traversal_verification(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Verify a tree from the leaves up, so that a path is accepted or rejected as a whole.

    A draw's weight is its parent's weight times p/q, at most 1. Go down the first draws to a leaf,
    and stop there with probability equal to its weight. If the leaf is rejected, it is removed: with
    S the sum of max(0, w·p − q), its parent's distribution becomes norm(max(0, w·p − q)) and its
    parent's weight w becomes S/(S + 1 − w). The parent's next draw is tested with these. A node
    whose draws are all rejected is a leaf itself, and the root always accepts. On a chain this is
    `block_verification`. If several draws landed on one node, the nodes below it belong to the
    first of them. Every draw on the way counts as tested. Source: Weng et al. 2025, arXiv 2505.12398.

    Args:
        proposal: the drafted tree.
        target_probs: [n+1, V], row 0 after the root, row i+1 after node i.
        rng: where chance comes from.
    """
    numbers = numbers_of(proposal, target_probs)
    # A stack from the root down: go down first draws, pop what is rejected, stop where one passes.
    tests = [0] * proposal.tree.levels
    entered = {-1}
    way = [_Candidate(-1, 1.0, target_probs[0], None, iter(proposal.draws.get(-1, ())))]
    while True:
        here = way[-1]
        draw = next(here.draws, None)
        if draw is not None:
            node, row = draw
            token = numbers.tokens[node]
            q = drawn_from(proposal, row, token, here.after)
            if here.rejected:
                p_over_q = ratio(here.after, q, token)
            else:  # `after` is still the target's own row, whose numbers were read in advance
                p_x, q_x = numbers.p_and_q(*draw)
                p_over_q = p_x / q_x
            weight = min(1.0, here.weight * p_over_q)
            # Two draws on one node: only the first may go on below it, or its nodes count twice.
            draws = () if node in entered else proposal.draws.get(node, ())
            entered.add(node)
            tests[len(way) - 1] += 1
            way.append(_Candidate(node, weight, target_probs[node + 1], q, iter(draws)))
        elif here.row is None or rng.flip(here.weight):
            break  # the root has no row: it always accepts
        else:
            way.pop()
            way[-1].reject(here.row)
    path = tuple(candidate.node for candidate in way[1:])
    kind = kind_of(path, rejected=here.rejected)
    return Verdict(path, rng.draw(here.after), kind, tuple(tests))
