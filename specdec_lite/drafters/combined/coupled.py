"""Coupling: draft and verdict use the same noise.

Source: Daliri et al. 2025 (drafter-invariant speculative decoding).
"""

from dataclasses import replace

from specdec_lite.acceptance import sample_and_match
from specdec_lite.drafters.combined.wrapper import WrapperDrafter
from specdec_lite.engine.cache import Scores
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.speculation import Context, RuleVerifier, Verifier


def at_position(context: Context) -> Context:
    """Return the context with the noise of its next position in place of its rng."""
    rng = context.rng.at(len(context.tokens))  # pyright: ignore[reportAttributeAccessIssue]
    return replace(context, rng=rng)


class CoupledDrafter(WrapperDrafter):
    """Draft with the noise that the rule `same_noise` will draw the target's tokens with.

    It is meant for that rule, and with trees, merged drafts and cascades it requires it. For a
    chain it is lossless under every rule that verifies a token without looking at later ones.
    Block verification looks at them: it would decide with the noise of a position that the next
    round uses again.

    Args:
        inner: any drafter.
    """

    shares_noise = True

    def inner_context(self, context: Context) -> Context:
        return at_position(context)


class SameNoise(Verifier):
    """Sample and match with the noise of each position.

    The text depends on the seed alone, and not on the drafter or the draft length.
    """

    name = "same_noise"
    lossless = True

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        return RuleVerifier(sample_and_match).verify(proposal, scores, at_position(context))


same_noise = SameNoise()
