"""Block verification: a drafted chain is judged as a whole instead of token by token; and the same
on trees, from the leaves up.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from specdec_lite.acceptance.rule import drawn_from, kind_of, ratio, residual, rule
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Rng


@rule(lossless=True)
def block_verification(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Accept a prefix by the running product of p/q instead of token by token: the same law, never
    fewer tokens on average.

    The accepted length is the *last* success; stopping at the first failure is a different, biased
    rule. Every drafted token counts as tested, so acceptance_rate is then accepted ÷ drafted.
    ValueError for anything but a chain of one draw a level. Source: Sun et al. 2025, algorithm 2.
    """
    if not proposal.is_plain_chain:
        raise ValueError(
            "block_verification judges chains of one draw a level; this proposal is a tree, or"
            " holds merged draws or candidates"
        )
    tokens = proposal.tree.tokens.tolist()
    length = len(tokens)
    rows = [
        drawn_from(proposal, None if proposal.probs is None else i, token, target_probs[0])
        for i, token in enumerate(tokens)
    ]
    weight = 1.0
    accepted = 0
    owed = residual(target_probs[0], rows[0]) if rows else target_probs[0]
    for i, token in enumerate(tokens, start=1):
        weight = min(1.0, weight * ratio(target_probs[i - 1], rows[i - 1], token))
        if i == length:
            excess = target_probs[i]
            prob = weight
        else:
            excess = (weight * target_probs[i] - rows[i]).clamp(min=0)
            mass = excess.sum().item()
            # In this order: mass + 1 − weight may round to 0.
            prob = mass / (mass + (1.0 - weight)) if mass > 0 else 0.0
        if rng.flip(prob):
            accepted = i
            owed = excess / excess.sum()
    path = tuple(range(accepted))
    kind = kind_of(path, rejected=accepted < length)
    return Verdict(path, rng.draw(owed), kind, (1,) * length)


@dataclass(slots=True)
class _Stop:
    """A draw on the way down. weight: the chance to end there, when all below it has been refused.
    owed: what a token after it would be drawn from. row: what the draw itself came from."""

    node: int
    weight: float
    owed: Tensor
    row: Tensor | None
    draws: Iterator[tuple[int, int | None]]
    refused: bool = False

    def refuse(self, row: Tensor) -> None:
        """A draw below, made from `row`, was refused."""
        excess = (self.weight * self.owed - row).clamp(min=0)
        mass = excess.sum().item()
        self.refused = True
        if mass > 0:
            self.owed = excess / mass
            # In this order: mass + 1 − weight may round to 0.
            self.weight = mass / (mass + (1.0 - self.weight))
        else:
            self.weight = 0.0


@rule(lossless=True)
def traversal_verification(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Block verification on a tree: judge from the leaves up, so that a path lives or dies as a
    whole.

    A draw's weight is its parent's, times p/q, at most 1. Go down first draws to a leaf, and stay
    there with its weight. A refused draw is taken off: its parent now owes norm(max(0, w·p − q)),
    of mass S, and its weight becomes S/(S + 1 − w); the next draw there is judged by these. A node
    whose draws are all refused is a leaf itself, and the root always accepts. On a chain this is
    `block_verification`. Of draws that landed on one node the first one owns what hangs below it.
    Every draw looked at counts as tested. Source: Weng et al. 2025, arXiv 2505.12398.
    """
    tokens = proposal.tree.tokens.tolist()
    tests = [0] * proposal.tree.levels
    owned = {-1}
    way = [_Stop(-1, 1.0, target_probs[0], None, iter(proposal.draws.get(-1, ())))]
    while True:
        here = way[-1]
        draw = next(here.draws, None)
        if draw is not None:
            node, row = draw
            q = drawn_from(proposal, row, tokens[node], here.owed)
            weight = min(1.0, here.weight * ratio(here.owed, q, tokens[node]))
            draws = () if node in owned else proposal.draws.get(node, ())
            owned.add(node)
            tests[len(way) - 1] += 1
            way.append(_Stop(node, weight, target_probs[node + 1], q, iter(draws)))
        elif len(way) == 1 or rng.flip(here.weight):
            break
        else:
            way[-2].refuse(way.pop().row)
    path = tuple(stop.node for stop in way[1:])
    kind = kind_of(path, rejected=here.refused)
    return Verdict(path, rng.draw(here.owed), kind, tuple(tests))
