"""Rows made in one pass, drawn from left to right: what every parallel drafter shares.

What lives here: the session, and a cheap correction by which each row hears of the token drawn
before it. What does not: where the rows come from (`markov`, `pard`, `block_diffusion`), training
(`training.heads`). Source of the correction: Cheng et al. 2026 (DSpark), the Markov head.
"""

import torch
from torch import Tensor, nn

from specdec_lite.checks import instance
from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.words import Speaker, Words
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context


class Correction(nn.Module):
    """What a token adds to the logits of the row after it: a V × V table of rank r. A fresh one adds
    nothing.

    Args:
        vocab_size: V, or how many words the corrected rows speak of.
        rank: r.
        others: one row more on the side of the token that is heard, for all that are no words.
    """

    def __init__(self, vocab_size: int, rank: int = 32, others: bool = False):
        super().__init__()
        self.before = nn.Embedding(vocab_size + others, rank)
        self.after = nn.Linear(rank, vocab_size, bias=False)
        nn.init.zeros_(self.after.weight)

    @property
    def config(self) -> dict[str, int]:
        sizes = {"vocab_size": self.after.out_features, "rank": self.after.in_features}
        return sizes | ({"others": True} if len(self.before.weight) > sizes["vocab_size"] else {})

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (or numbers of words) [...] → [..., V], to be added to the logits of the rows that
        follow them.
        """
        return self.after(self.before(tokens))


class ParallelSession(ChainSession):
    """Drafts a chain from rows that one pass has made: subclass it, and give `rows`.

    The row that is drawn from, and stored as q, is the *corrected* one: it is known before its token
    is drawn. The first row hears of the last committed token.
    """

    correction: Correction | None = None
    words: Words | None = None

    def rows(self, context: Context, count: int) -> Tensor:
        """Logits [≥ count, V'] of the tokens after the committed text, made before any is drawn;
        over `words`, where there are any.
        """
        raise NotImplementedError

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        """Nothing after a prompt of one token: no token has been scored then."""
        if context.scores is None:
            return NOTHING
        self.passes += 1
        rows = iter(self.rows(context, max(1, min(self.length.gamma, context.wanted - 1))))

        def follow(token: int | None) -> Tensor:
            row = next(rows)
            if self.correction is not None:
                before = context.tokens[-1] if token is None else context.tokens.new_tensor(token)
                heard = before if self.words is None else self.words.number(before)
                row = row + self.correction(heard)
            return row if self.words is None else self.words.spread(row, context.vocab_size)

        return draft_chain(context, follow, self.length)


def check_correction(correction: Correction, target: CausalLM | Speaker) -> None:
    """TypeError where this is no correction, ValueError where it is for other tokens."""
    instance("correction", correction, Correction)
    if correction.config["vocab_size"] != target.vocab_size:
        raise ValueError(
            f"correction is for {correction.config['vocab_size']} tokens: the rows are of"
            f" {target.vocab_size}"
        )
