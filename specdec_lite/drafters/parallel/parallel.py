"""Draft from rows of one pass, left to right, with an optional correction by the previous token.

Source of the correction: Cheng et al. 2026 (DSpark), the Markov head; of the selector: DFlash 2
(vllm-project/vllm#52816).
"""

import torch
import torch.nn.functional as F
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
        inputs: number of input rows if every token of the target has one; 0: the draft
            vocabulary's tokens have one each.
    """

    def __init__(self, vocab_size: int, rank: int = 32, others: bool = False, inputs: int = 0):
        super().__init__()
        self.inputs = inputs
        self.before = nn.Embedding(inputs or vocab_size + others, rank)
        self.after = nn.Linear(rank, vocab_size, bias=False)
        nn.init.zeros_(self.after.weight)

    @property
    def config(self) -> dict[str, int]:
        """The arguments of the constructor."""
        sizes = {"vocab_size": self.after.out_features, "rank": self.after.in_features}
        if self.inputs:
            return sizes | {"inputs": self.inputs}
        return sizes | ({"others": True} if len(self.before.weight) > sizes["vocab_size"] else {})

    def index(self, tokens: Tensor, words: DraftVocabulary | None) -> Tensor:
        """Return the input row of each of the target's tokens."""
        return tokens if words is None or self.inputs else words.number(tokens)

    def forward(self, index: Tensor) -> Tensor:
        """Return the logits [..., V] to add to the rows after some tokens."""
        return self.after(self.before(index))

    def correct(self, rows: Tensor, index: Tensor, states: Tensor) -> Tensor:
        """Return the logits [..., V] from which the tokens after some tokens are drawn.

        Args:
            rows: [..., V], the logits that do not know the token before.
            index: [...], the input row of the token before.
            states: [..., d], what the logits were made from.
        """
        return rows + self(index)


class Selector(Correction):
    """Score pairs of neighboring tokens, and leave only the likeliest of each row.

    A token b of the k likeliest has the score row[b] + ⟨A[a] · G h, B[b]⟩ after token a, where h
    is the row's state; all other tokens have −∞. A new selector only cuts the rows to k tokens.

    Args:
        vocab_size: V, or the size v of the draft vocabulary.
        rank: rank r of A and B.
        others: as for `Correction`.
        inputs: as for `Correction`.
        candidates: number k of tokens left in a row.
        width: size d of the states that weigh the r products; 0: all weigh the same.
    """

    def __init__(
        self,
        vocab_size: int,
        rank: int = 32,
        others: bool = False,
        inputs: int = 0,
        candidates: int = 16,
        width: int = 0,
    ):
        super().__init__(vocab_size, rank, others, inputs)
        self.candidates = min(candidates, vocab_size)
        self.gate = nn.Linear(width, rank, bias=False) if width else None

    @property
    def config(self) -> dict[str, int]:
        width = {} if self.gate is None else {"width": self.gate.in_features}
        return super().config | {"candidates": self.candidates} | width

    def scores(self, values: Tensor, tokens: Tensor, index: Tensor, states: Tensor) -> Tensor:
        """Return the scores [..., k] of candidates after the token before.

        Args:
            values: [..., k], the candidates' logits.
            tokens: [..., k], the candidates.
            index: [...], the input row of the token before.
            states: [..., d], what the logits were made from.
        """
        pair = self.before(index)
        if self.gate is not None:
            pair = pair * self.gate(states)
        after = F.embedding(tokens, self.after.weight)
        return values + (after @ pair[..., None])[..., 0]

    def correct(self, rows: Tensor, index: Tensor, states: Tensor) -> Tensor:
        values, tokens = rows.topk(self.candidates, -1)
        scores = self.scores(values, tokens, index, states)
        return torch.full_like(rows, float("-inf")).scatter(-1, tokens, scores)


def stored_correction(**config) -> Correction:
    """Build an untrained correction, or a selector if the config states its candidates."""
    return Selector(**config) if "candidates" in config else Correction(**config)


class ParallelSession(ChainSession):
    """Draft a chain from the rows of one pass: subclass it and define `rows`.

    A token is drawn from the corrected row, which is also stored as q: it is known before its
    token is drawn. The last committed token corrects the first row.

    Attributes:
        correction: the correction; None if there is none.
        words: the draft vocabulary; None for all tokens.
        states: [≥ count, d], what this round's rows were made from; a correction may read them.
    """

    correction: Correction | None = None
    words: DraftVocabulary | None = None
    states: Tensor

    def rows(self, context: Context, count: int) -> Tensor:
        """Return logits [≥ count, V'] of the next tokens, computed before any token is drawn.

        A session with a correction sets `states` here.
        """
        raise NotImplementedError

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        # After a prompt of one token no token has been scored yet.
        if context.scores is None:
            return NOTHING
        self.passes += 1
        rows = enumerate(self.rows(context, max(1, min(self.length.gamma, context.wanted - 1))))

        def follow(token: Tensor | None) -> Tensor:
            position, row = next(rows)
            if self.correction is not None:
                last = context.tokens[-1:] if token is None else token
                index = self.correction.index(upload(last, row.device)[0], self.words)
                row = self.correction.correct(row, index, self.states[position])
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
