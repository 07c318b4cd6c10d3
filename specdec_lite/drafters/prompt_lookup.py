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
        self.orders = range(
            checks.whole("min_ngram", min_ngram, 1, checks.whole("max_ngram", max_ngram, 1)),
            max_ngram + 1,
        )
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
    """pointers: in each reference, the first place that may still be copied from."""

    def __init__(self, drafter: PromptLookupDrafter):
        super().__init__(drafter.length)
        self.drafter = drafter
        self.own = Places(drafter.orders)
        self.pointers = [0] * len(drafter.references)
        self.source = None

    def find(self) -> tuple[Places, int] | None:
        """Where to copy from: a text, and the place in it."""
        text = self.own.text
        if not self.drafter.references:
            _, places = self.own.after(text)
            return (self.own, places[-1 if self.drafter.latest else 0]) if places else None
        found = [
            (*reference.after(text, pointer), reference)
            for reference, pointer in zip(self.drafter.references, self.pointers)
        ]
        n, places, reference = max(found, key=lambda match: match[0])
        return (reference, places[0]) if n else None

    def propose(self, context: Context) -> Proposal:
        self.own.catch_up(context)
        self.source = self.find()
        if self.source is None:
            return NOTHING
        places, start = self.source
        most = min(self.length.most(context), context.wanted - 1)
        return Proposal(TokenTree.chain(places.text[start : start + most]))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        super().observe(verdict, scores)
        if verdict.path and self.source[0] in self.drafter.references:
            place = self.drafter.references.index(self.source[0])
            rejected = verdict.kind == "recovered"
            self.pointers[place] = self.source[1] + len(verdict.path) + rejected

    def cut(self, length: int) -> None:
        self.own.cut(length)
