"""Prompt lookup: propose what followed when the text last ended as it does now.

Source: Saxena 2023, prompt lookup decoding; with `references`, Yang et al. 2023 (LLMA).
"""

from collections.abc import Sequence

from specdec_lite import checks
from specdec_lite.drafters.chain import ChainSession
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.matches import Places, token_ids
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Shape
from specdec_lite.tree import TokenTree


class PromptLookupDrafter(Drafter):
    """Find the last n tokens earlier in prompt and output, and propose what followed them there.

    Args:
        gamma: draft length ≥ 1 (vLLM's `num_speculative_tokens`, Hugging Face's
            `prompt_lookup_num_tokens`), or a policy of `drafters.lengths`. A draft is shorter where
            the text ends.
        max_ngram, min_ngram: n goes from the first down to the second, ≥ 1, until something is
            found (vLLM's `prompt_lookup_max` and `prompt_lookup_min`).
        latest: take the latest occurrence; False: the earliest.
        references: texts, rows of token ids, to copy from in place of the text itself. In each of
            them a pointer moves forward with what was accepted, and only places behind it count.

    The tokens are chosen, not drawn. Without a match nothing is proposed.
    """

    def __init__(
        self,
        gamma: int | Length = 8,
        max_ngram: int = 3,
        min_ngram: int = 1,
        latest: bool = True,
        references: Sequence[Sequence[int]] = (),
    ):
        self.length = Length.of(gamma)
        checks.whole("min_ngram", min_ngram, 1, checks.whole("max_ngram", max_ngram, 1))
        self.orders = range(min_ngram, max_ngram + 1)
        self.latest = latest
        self.references = [Places(self.orders) for _ in references]
        for places, reference in zip(self.references, references):
            places.extend(token_ids("references", reference).tolist())

    def start(self, context: Context) -> "PromptLookupSession":
        return PromptLookupSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        for places in self.references:
            token_ids("references", places.text, target.vocab_size)

    def shape(self) -> Shape:
        return Shape.chain(self.length.gamma)


class PromptLookupSession(ChainSession):
    """sources: the texts that are copied from. pointers: in each, the first place that counts.
    copied: the source and the place of the last draft.
    """

    def __init__(self, drafter: PromptLookupDrafter):
        super().__init__(drafter.length)
        self.own = Places(drafter.orders)
        self.sources = drafter.references or [self.own]
        self.pointers = [0] * len(self.sources)
        self.moves = bool(drafter.references)
        self.pick = -1 if drafter.latest and not self.moves else 0
        self.copied = (0, 0)

    def propose(self, context: Context) -> Proposal:
        self.own.catch_up(context)
        matches = [
            (*source.after(self.own.text, pointer), place)
            for place, (source, pointer) in enumerate(zip(self.sources, self.pointers))
        ]
        n, starts, source = max(matches, key=lambda match: match[0])
        if not n:
            return NOTHING
        self.copied = source, starts[self.pick]
        most = min(self.length.most(context), context.wanted - 1)
        return Proposal(TokenTree.chain(self.sources[source].behind(starts[self.pick], most)))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        super().observe(verdict, scores)
        if verdict.path and self.moves:
            source, start = self.copied
            self.pointers[source] = start + len(verdict.path) + (verdict.kind == "recovered")

    def cut(self, length: int) -> None:
        self.own.cut(length)
