"""Draft from rows of one pass, left to right, with an optional correction by the previous token.

Source of the correction: Cheng et al. 2026 (DSpark), the Markov head.
"""

import torch
from torch import Tensor, nn

from specdec_lite.checks import instance
from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.heads.vocabulary import DraftVocabulary, OutputHead
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context
from specdec_lite.transfer import upload


class Correction(nn.Module):
    """The logits that a token adds to the row after it: a V × V table of rank r.

    A new correction adds nothing.

    Args:
        vocab_size: V, or the size v of the draft vocabulary.
        rank: rank r.
        others: add one input row for all tokens outside the draft vocabulary.
    """

    def __init__(self, vocab_size: int, rank: int = 32, others: bool = False):
        super().__init__()
        self.before = nn.Embedding(vocab_size + others, rank)
        self.after = nn.Linear(rank, vocab_size, bias=False)
        nn.init.zeros_(self.after.weight)

    @property
    def config(self) -> dict[str, int]:
        """The arguments of the constructor."""
        sizes = {"vocab_size": self.after.out_features, "rank": self.after.in_features}
        return sizes | ({"others": True} if len(self.before.weight) > sizes["vocab_size"] else {})

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits [..., V] to add to the rows after some tokens."""
        return self.after(self.before(tokens))


class ParallelSession(ChainSession):
    """Draft a chain from the rows of one pass: subclass it and define `rows`.

    A token is drawn from the corrected row, which is also stored as q: it is known before its
    token is drawn. The last committed token corrects the first row.

    Attributes:
        correction: the correction; None if there is none.
        words: the draft vocabulary; None for all tokens.
    """

    correction: Correction | None = None
    words: DraftVocabulary | None = None

    def rows(self, context: Context, count: int) -> Tensor:
        """Return logits [≥ count, V'] of the next tokens, computed before any token is drawn."""
        raise NotImplementedError

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        # After a prompt of one token no token has been scored yet.
        if context.scores is None:
            return NOTHING
        self.passes += 1
        rows = iter(self.rows(context, max(1, min(self.length.gamma, context.wanted - 1))))

        def follow(token: Tensor | None) -> Tensor:
            row = next(rows)
            if self.correction is not None:
                last = context.tokens[-1:] if token is None else token
                before = upload(last, row.device)[0]
                index = before if self.words is None else self.words.number(before)
                row = row + self.correction(index)
            return row if self.words is None else self.words.spread(row, context.vocab_size)

        return draft_chain(context, follow, self.length)


def check_correction(correction: Correction, target: CausalLM | OutputHead) -> None:
    """Check that a correction fits the rows it is added to."""
    instance("correction", correction, Correction)
    if correction.config["vocab_size"] != target.vocab_size:
        raise ValueError(
            f"correction is for {correction.config['vocab_size']} tokens: the rows are of"
            f" {target.vocab_size}"
        )
