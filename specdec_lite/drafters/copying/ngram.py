"""An n-gram model as drafter: the least expensive model that still has a real q.

Source: Leviathan et al. 2023, section 4 (bigrams). What engines call "ngram" is another method,
`prompt_lookup`.
"""

from dataclasses import replace

from torch import Tensor

from specdec_lite.drafters.chain import ChainSession, draft_chain, draft_sampling
from specdec_lite.drafters.copying.indexes import Counts
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Limits


class NgramDrafter(Drafter):
    """Draft γ tokens with an n-gram model.

    Args:
        counts: n-gram counts of a text in the target's vocabulary.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        draft_temperature: None: draw with the generation's own sampling settings (argmax if
            greedy); 0: always choose the likeliest token; > 0: draw at this temperature.
    """

    def __init__(
        self, counts: Counts, gamma: int | Length = 4, draft_temperature: float | None = None
    ):
        self.counts = counts
        self.length = Length.of(gamma)
        self.sampling = draft_sampling(draft_temperature)

    @classmethod
    def from_text(
        cls, ids, vocab_size: int, n: int = 3, gamma: int | Length = 4, draft_temperature=None
    ) -> "NgramDrafter":
        """Count the n-grams of a text.

        Args:
            ids: token ids [m], m ≥ n.
            vocab_size: the target's V.
            n: order of the model, ≥ 1; 2 is a bigram model.
            gamma: as for the class.
            draft_temperature: as for the class.
        """
        return cls(Counts(ids, vocab_size, n), gamma, draft_temperature)

    def start(self, context: Context) -> "NgramSession":
        return NgramSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        if self.counts.vocab_size != target.vocab_size:
            raise ValueError(
                f"drafter counts a vocabulary of {self.counts.vocab_size} tokens, target has"
                f" {target.vocab_size}: both must be equal"
            )

    def limits(self) -> Limits:
        return Limits.chain(self.length.gamma)


class NgramSession(ChainSession):
    """The drafting of one generation. It needs only the last n − 1 tokens."""

    def __init__(self, drafter: NgramDrafter):
        super().__init__(drafter.length)
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        counts = self.drafter.counts
        context = replace(context, sampling=self.drafter.sampling or context.sampling)
        before = len(counts.keys) - 1
        text = context.tokens[-before:].tolist() if before else []

        def follow(token: Tensor | None) -> Tensor:
            if token is not None:
                text.append(int(token))
            row = counts.row(text[max(0, len(text) - before) :])
            # The argmax needs no logarithm, which costs more than everything else here.
            return row if context.sampling.greedy and not self.length.looks else row.log()

        return draft_chain(context, follow, self.length)
