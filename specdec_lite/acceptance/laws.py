"""Exact laws of acceptance rules, float64: the rule that decodes is run under the enumerating rng,
outcome by outcome.

No second formula stands beside the rule, so what is proved here is proved of the code that runs.
The work grows as vocabulary to the power of draws: meant for vocabularies up to about five and γ up
to three.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lite.acceptance.rule import RuleFunction
from specdec_lite.checks import whole
from specdec_lite.proposal import Proposal, one_hot
from specdec_lite.sampling import Rng, outcomes
from specdec_lite.tree import TokenTree

Law = Callable[[tuple[int, ...]], Tensor]
Siblings = Callable[[Tensor, int, Rng], list[tuple[int, Tensor | None]]]


def _check_law(name: str, probs) -> Tensor:
    probs = torch.as_tensor(probs, dtype=torch.float64)
    if probs.dim() != 1 or not bool((probs >= 0).all()) or abs(probs.sum().item() - 1) > 1e-6:
        raise ValueError(
            f"{name} must be one row of probabilities ≥ 0 that sum to 1; got {probs.tolist()}"
        )
    return probs


def output_law(p, q, rule: RuleFunction) -> Tensor:
    """The exact law [V], float64, of the first emitted token when one token is drafted from q and
    judged against p.

    p, q: [V] probabilities. Computed by running `rule` over every outcome of every draw and flip.
    """
    p, q = _check_law("p", p), _check_law("q", q)
    if len(p) != len(q):
        raise ValueError(
            f"p has {len(p)} tokens and q has {len(q)}: both must be over one vocabulary"
        )

    def experiment(rng: Rng) -> int:
        token = rng.draw(q)
        verdict = rule(Proposal(TokenTree.chain([token]), q[None]), torch.stack([p, p]), rng)
        return token if verdict.path else verdict.token

    law = torch.zeros_like(p)
    for token, weight in outcomes(experiment):
        law[token] += weight
    return law


def draw_chain(law: Law, gamma: int, rng: Rng) -> Proposal:
    """γ tokens drawn one after another: what a drafter with next-token law `law(prefix)` proposes."""
    tokens: list[int] = []
    rows = []
    for _ in range(gamma):
        rows.append(_check_law("drafter_law", law(tuple(tokens))))
        tokens.append(rng.draw(rows[-1]))
    return Proposal(TokenTree.chain(tokens), torch.stack(rows))


def draw_tree(siblings: Siblings, count: int) -> Callable[[Law, int, Rng], Proposal]:
    """A way to draft for `block_law`: a tree of γ levels in which every node gets `count` siblings.

    siblings(row [V], count, rng) → [(token, row of its draw, or None where it was chosen)], as those
    of `drafters.grow` are. Equal siblings share a node, and every draw keeps its row.
    """

    def propose(law: Law, gamma: int, rng: Rng) -> Proposal:
        tokens: list[int] = []
        parents: list[int] = []
        nodes: list[int] = []
        rows: list[Tensor] = []
        level: list[tuple[int, tuple[int, ...]]] = [(-1, ())]
        for _ in range(gamma):
            below = []
            for parent, text in level:
                q = _check_law("drafter_law", law(text))
                landed: dict[int, int] = {}
                for token, row in siblings(q, count, rng):
                    if token not in landed:
                        landed[token] = len(tokens)
                        below.append((len(tokens), (*text, token)))
                        tokens.append(token)
                        parents.append(parent)
                    nodes.append(landed[token])
                    rows.append(one_hot(token, q) if row is None else row)
            level = below
        return Proposal(TokenTree(tokens, parents), torch.stack(rows), nodes)

    return propose


@dataclass(frozen=True, slots=True)
class BlockLaw:
    """The exact law of what one round emits: blocks {tokens: probability}, of different lengths."""

    blocks: dict[tuple[int, ...], float]

    @property
    def mean_length(self) -> float:
        """Expected tokens per round, the recovered or bonus token included."""
        return sum(len(block) * weight for block, weight in self.blocks.items())

    def completed(self, target: Law, length: int) -> Tensor:
        """The law [V] * length of the first `length` tokens when the target continues every shorter
        block by itself.
        """
        law = torch.zeros([len(target(()))] * length, dtype=torch.float64)
        for block, weight in self.blocks.items():
            _spread(law, block[:length], weight, target)
        return law


def _spread(law: Tensor, block: tuple[int, ...], weight: float, target: Law) -> None:
    if len(block) == law.dim():
        law[block] += weight
    else:
        for token, prob in enumerate(target(block).tolist()):
            _spread(law, (*block, token), weight * prob, target)


def joint_law(target: Law, length: int) -> Tensor:
    """The target's own law [V] * length of the next `length` tokens: what every lossless rule must
    reproduce.
    """
    law = torch.zeros([len(target(()))] * length, dtype=torch.float64)
    _spread(law, (), 1.0, target)
    return law


def block_law(
    target: Law, drafter_law: Law, rule: RuleFunction, gamma: int, propose=draw_chain
) -> BlockLaw:
    """The exact law of the block that one round emits, chains and trees, by running `rule` over
    every outcome.

    target, drafter_law: functions from a prefix (a tuple of tokens) to probabilities [V]. gamma ≥
    1: draft length. propose(drafter_law, gamma, rng) → Proposal: how the draft is made; the default
    draws a chain, others make trees.
    """
    whole("gamma", gamma, 1)

    def experiment(rng: Rng) -> tuple[int, ...]:
        proposal = propose(drafter_law, gamma, rng)
        tokens = proposal.tree.tokens.tolist()
        texts = [
            (),
            *(tuple(tokens[i] for i in proposal.tree.path(node)) for node in range(len(tokens))),
        ]
        verdict = rule(
            proposal, torch.stack([_check_law("target", target(text)) for text in texts]), rng
        )
        return (*(tokens[i] for i in verdict.path), verdict.token)

    blocks: dict[tuple[int, ...], float] = {}
    for block, weight in outcomes(experiment):
        blocks[block] = blocks.get(block, 0.0) + weight
    return BlockLaw(blocks)
