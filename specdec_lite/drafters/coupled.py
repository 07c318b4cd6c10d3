"""Drafts and verdicts that share their noise. Source: Daliri et al. 2025 (drafter-invariant
speculative decoding).
"""

from dataclasses import replace

from specdec_lite.acceptance import sample_and_match
from specdec_lite.drafters.around import Around
from specdec_lite.engine.cache import Scores
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.speculation import Context, PlainVerifier, Verifier


class CoupledDrafter(Around):
    """Draft with the noise that the rule `same_noise` will draw the target's tokens with.

    Meant for that rule; lossless under any that judges a token without a look at those behind it.
    Block verification is not one: it would see a place's noise, and the next round use it again.
    """

    def inside(self, context: Context) -> Context:
        return replace(context, rng=context.rng.at(len(context.tokens)))


class SameNoise(Verifier):
    """Sample and match, with the noise of each place: the text is a function of the seed, whatever
    drafts, and however much.
    """

    name = "same_noise"
    lossless = True

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        placed = replace(context, rng=context.rng.at(len(context.tokens)))
        return PlainVerifier(sample_and_match).verify(proposal, scores, placed)


same_noise = SameNoise()
