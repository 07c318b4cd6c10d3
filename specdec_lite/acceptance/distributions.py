"""Exact distributions of what acceptance rules emit, in float64.

The rule that decodes is run under an enumerating rng, outcome by outcome, without a second formula.
So what is proved here is proved of the code that runs. The work grows as V to the power of the
number of draws: use vocabularies up to about five and γ up to three.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lite.acceptance.protocol import RuleFunction
from specdec_lite.checks import whole
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Rng, outcomes
from specdec_lite.tree import TokenTree

Model = Callable[[tuple[int, ...]], Tensor]
"""A function from a prefix (a tuple of tokens) to the probabilities [V] of the next token."""
Draft = Callable[[Model, int, Rng], Proposal]
"""(draft model, γ, rng) → a proposal."""


def _distribution(name: str, probs) -> Tensor:
    """Return probs as a float64 row, after checking that it is a distribution."""
    probs = torch.as_tensor(probs, dtype=torch.float64)
    if probs.dim() != 1 or not bool((probs >= 0).all()) or abs(probs.sum().item() - 1) > 1e-6:
        raise ValueError(
            f"{name} must be one row of probabilities ≥ 0 that sum to 1; got {probs.tolist()}"
        )
    return probs


def output_distribution(p, q, rule: RuleFunction) -> Tensor:
    """Return the exact distribution of the first emitted token if one token is drafted from q.

    Args:
        p: the target's probabilities [V].
        q: the drafter's probabilities [V].
        rule: an acceptance rule; it is run over every outcome of every draw and flip.

    Returns:
        float64 [V].

    Raises:
        ValueError: p or q is not a distribution, or they have different lengths.
    """
    p, q = _distribution("p", p), _distribution("q", q)
    if len(p) != len(q):
        raise ValueError(
            f"p has {len(p)} tokens and q has {len(q)}: both must be over one vocabulary"
        )
    # The row after the drafted token decides nothing about the first one, so any will do.
    return block_distribution(lambda _: p, lambda _: q, rule, 1).completed(lambda _: p, 1)


def draw_chain(drafter: Model, gamma: int, rng: Rng) -> Proposal:
    """Return a chain of γ tokens, drawn one after another.

    Args:
        drafter: the draft model.
        gamma: number of tokens, ≥ 1.
        rng: where chance comes from.
    """
    tokens: list[int] = []
    rows = []
    for _ in range(gamma):
        rows.append(_distribution("drafter", drafter(tuple(tokens))))
        tokens.append(rng.draw(rows[-1]))
    return Proposal(TokenTree.chain(tokens), torch.stack(rows))


@dataclass(frozen=True, slots=True)
class BlockDistribution:
    """The exact distribution of what one round emits.

    Attributes:
        blocks: {tokens: probability}; blocks have different lengths.
    """

    blocks: dict[tuple[int, ...], float]

    @property
    def mean_length(self) -> float:
        """Return the expected tokens per round, including the recovered or bonus token."""
        return sum(len(block) * weight for block, weight in self.blocks.items())

    def completed(self, target: Model, length: int) -> Tensor:
        """Return the distribution of the first tokens if the target continues every shorter block.

        Args:
            target: the target model.
            length: number of tokens.

        Returns:
            float64, `length` axes of size V.
        """
        probs = torch.zeros([len(target(()))] * length, dtype=torch.float64)
        for block, weight in self.blocks.items():
            _add_continuations(probs, block[:length], weight, target)
        return probs


def _add_continuations(probs: Tensor, block: tuple[int, ...], weight: float, target: Model) -> None:
    """Add a block's weight to probs, spread over the target's continuations to full length."""
    if len(block) == probs.dim():  # blocks differ in length, and a distribution needs one length
        probs[block] += weight
    else:
        for token, prob in enumerate(target(block).tolist()):
            _add_continuations(probs, (*block, token), weight * prob, target)


def joint_distribution(target: Model, length: int) -> Tensor:
    """Return the target's distribution of the next tokens, which a lossless rule must reproduce.

    Args:
        target: the target model.
        length: number of tokens.

    Returns:
        float64, `length` axes of size V.
    """
    return BlockDistribution({(): 1.0}).completed(target, length)


def block_distribution(
    target: Model, drafter: Model, rule: RuleFunction, gamma: int, propose: Draft = draw_chain
) -> BlockDistribution:
    """Return the exact distribution of the block that one round emits, by running the rule.

    Args:
        target: the target model.
        drafter: the draft model.
        rule: an acceptance rule; it is run over every outcome of every draw and flip.
        gamma: draft length ≥ 1.
        propose: how the draft is made, a chain by default.

    Raises:
        ValueError: gamma is not a whole number ≥ 1, or a row is not a distribution.
    """
    whole("gamma", gamma, 1)

    def experiment(rng: Rng) -> tuple[int, ...]:
        proposal = propose(drafter, gamma, rng)
        tree, tokens = proposal.tree, proposal.tree.tokens.tolist()
        texts = [tuple(tokens[i] for i in tree.path(node)) for node in range(-1, len(tree))]
        rows = torch.stack([_distribution("target", target(text)) for text in texts])
        verdict = rule(proposal, rows, rng)
        return (*(tokens[i] for i in verdict.path), verdict.token)

    blocks: dict[tuple[int, ...], float] = {}
    for block, weight in outcomes(experiment):
        blocks[block] = blocks.get(block, 0.0) + weight
    return BlockDistribution(blocks)
