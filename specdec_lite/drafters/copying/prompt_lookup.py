"""Prompt lookup: propose what followed the last n tokens when they occurred earlier.

Source: Saxena 2023, prompt lookup decoding.
"""

from specdec_lite.drafters.chain import ChainSession
from specdec_lite.drafters.copying.matches import NgramIndex, match_lengths
from specdec_lite.drafters.lengths import Length
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Limits
from specdec_lite.tree import TokenTree


class PromptLookupDrafter(Drafter):
    """Find the last n tokens earlier in prompt and output, and propose what followed them there.

    The tokens are chosen, not drawn. Without a match nothing is proposed.

    Args:
        gamma: draft length ≥ 1 (vLLM's `num_speculative_tokens`, Hugging Face's
            `prompt_lookup_num_tokens`), or a policy of `drafters.lengths`. A draft is shorter
            if the text ends earlier.
        max_ngram: largest n, tried first (vLLM's `prompt_lookup_max`).
        min_ngram: smallest n, ≥ 1, tried last (vLLM's `prompt_lookup_min`).
        latest: take the latest occurrence; False: the earliest.
    """

    def __init__(
        self, gamma: int | Length = 8, max_ngram: int = 3, min_ngram: int = 1, latest: bool = True
    ):
        self.length = Length.of(gamma)
        self.orders = match_lengths(max_ngram, min_ngram)
        self.latest = latest

    def start(self, context: Context) -> "PromptLookupSession":
        return PromptLookupSession(self)

    def limits(self) -> Limits:
        return Limits.chain(self.length.gamma)


class PromptLookupSession(ChainSession):
    """The drafting of one generation.

    Attributes:
        text: the index of the committed text.
        source: the position that the last draft was copied from.
    """

    def __init__(self, drafter: PromptLookupDrafter):
        super().__init__(drafter.length)
        self.text = NgramIndex(drafter.orders)
        self.latest = drafter.latest
        self.source = 0

    def propose(self, context: Context) -> Proposal:
        self.text.catch_up(context)
        n, positions = self.text.find(self.text.text)
        if not n:
            return NOTHING
        self.source = positions[-1 if self.latest else 0]
        most = min(self.length.most(context), context.wanted - 1)
        return Proposal(TokenTree.chain(self.text.continuation(self.source, most)))
