"""LLMA: copy from reference texts, such as retrieved passages or an earlier version of the answer.

Source: Yang et al. 2023 (LLMA).
"""

from collections.abc import Sequence

from specdec_lite.drafters.chain import ChainSession
from specdec_lite.drafters.copying.matches import NgramIndex, match_lengths, token_ids
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Limits
from specdec_lite.tree import TokenTree


class ReferenceLookupDrafter(Drafter):
    """Find the last n tokens in a reference, and propose what follows them there.

    In every reference a pointer moves forward with the accepted tokens, and only positions after
    it count. (The pointer is ours; the authors' decoder always takes the first occurrence.) The
    tokens are chosen, not drawn. Without a match nothing is proposed.

    Args:
        references: texts, rows of token ids.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        max_ngram: largest n, tried first.
        min_ngram: smallest n, ≥ 1, tried last.
    """

    def __init__(
        self,
        references: Sequence[Sequence[int]],
        gamma: int | Length = 8,
        max_ngram: int = 3,
        min_ngram: int = 1,
    ):
        self.length = Length.of(gamma)
        self.orders = match_lengths(max_ngram, min_ngram)
        self.references = [NgramIndex(self.orders) for _ in references]
        for index, reference in zip(self.references, references):
            index.extend(token_ids("references", reference).tolist())

    def start(self, context: Context) -> "ReferenceLookupSession":
        return ReferenceLookupSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        for index in self.references:
            token_ids("references", index.text, target.vocab_size)

    def limits(self) -> Limits:
        return Limits.chain(self.length.gamma)


class ReferenceLookupSession(ChainSession):
    """The drafting of one generation.

    Attributes:
        pointers: for each reference, the first position that counts.
        source: the number of the reference and the position that the last draft was copied from.
    """

    def __init__(self, drafter: ReferenceLookupDrafter):
        super().__init__(drafter.length)
        self.references = drafter.references
        self.longest = drafter.orders[-1]
        self.pointers = [0] * len(self.references)
        self.source = (0, 0)

    def propose(self, context: Context) -> Proposal:
        end = context.tokens[-self.longest :].tolist()
        pairs = zip(self.references, self.pointers)
        matches = [reference.find(end, pointer) for reference, pointer in pairs]
        lengths = [n for n, _ in matches]
        number = lengths.index(max(lengths))
        if not lengths[number]:
            return NOTHING
        self.source = number, matches[number][1][0]
        most = min(self.length.most(context), context.wanted - 1)
        return Proposal(TokenTree.chain(self.references[number].continuation(self.source[1], most)))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        super().observe(verdict, scores)
        if verdict.path:
            number, start = self.source
            self.pointers[number] = start + len(verdict.path) + (verdict.kind == "recovered")
