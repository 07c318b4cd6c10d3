"""Draft all tokens in one pass, each row corrected by the token before: PARD, and extra heads."""

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.checks import instance, whole
from specdec_lite.contract import Context
from specdec_lite.drafters.chain import ChainDrafter, ChainSession, Followed, draft_chain
from specdec_lite.drafters.heads import (
    DraftVocabulary,
    Heads,
    OnHeads,
    OutputHead,
    check_heads,
    output_head,
    stored_heads,
)
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.models import ModelDrafter
from specdec_lite.engine.linear import pack
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.weights import Pretrained, find_weights, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.transfer import upload

# Corrections of rows by the token before --------------------------------------------------------
# Sources: Cheng et al. 2026 (DSpark), the Markov head; DFlash 2 (vllm-project/vllm#52816), the
# selector.


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
        more = {"inputs": inputs} if inputs else {"others": True} if others else {}
        self.config = {"vocab_size": vocab_size, "rank": rank} | more

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
        vocab_size, rank, others, inputs: as for `Correction`.
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
        self.config |= {"candidates": self.candidates} | ({"width": width} if width else {})

    def scores(self, values: Tensor, tokens: Tensor, index: Tensor, states: Tensor) -> Tensor:
        """Return the scores [..., k] of candidates after the token before; see `correct`.

        Shapes: values [..., k], the candidates' logits, tokens [..., k].
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


def check_correction(correction: Correction, target: CausalLM | OutputHead) -> None:
    """Check that a correction fits the rows it is added to."""
    instance("correction", correction, Correction)
    if correction.config["vocab_size"] != target.vocab_size:
        raise ValueError(
            f"correction is for {correction.config['vocab_size']} tokens: the rows are of"
            f" {target.vocab_size}"
        )


# Draft from rows of one pass, left to right, each corrected by the token before -----------------


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


# PARD: mask tokens after the text ---------------------------------------------------------------
# Source: An et al. 2025.


def build(**config) -> Transformer:
    """Build an untrained draft model; the last row of its vocabulary is the mask's."""
    return Transformer(TransformerConfig(**config))


class PardDrafter(Pretrained, ModelDrafter):
    """Draft γ tokens in one pass of a draft model over the text and γ − 1 masks after it.

    Args:
        model: a draft model trained to fill masks.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        mask_id: the mask's token id, which is fed and never drafted; None: the model's last token,
            which may lie outside the target's vocabulary.
    """

    folder, build = "pard", build

    def __init__(self, model: CausalLM, gamma: int | Length = 4, mask_id: int | None = None):
        super().__init__(model, gamma)
        last = model.vocab_size - 1
        self.mask_id = last if mask_id is None else checks.whole("mask_id", mask_id, 0, last)

    @classmethod
    def made(cls, target: CausalLM, module: Transformer, **options: Any) -> Self:
        return cls(CausalLM(pack(module)), **options)

    def start(self, context: Context) -> "PardSession":
        return PardSession(self, context)


class PardSession(ParallelSession):
    """The drafting of one generation. The cache follows the text, so it keeps no mask."""

    def __init__(self, drafter: PardDrafter, context: Context):
        super().__init__(drafter.length)
        self.model, self.mask_id = drafter.model, drafter.mask_id
        capacity = len(context.tokens) + context.wanted + self.length.gamma
        self.cache = self.model.new_cache(capacity=capacity)
        self.followed = Followed(self.cache)

    def rows(self, context: Context, count: int) -> Tensor:
        fresh = self.followed.behind(context.tokens).clamp(max=self.model.vocab_size - 1)
        masks = fresh.new_full((count - 1,), self.mask_id)
        logits = self.model.score(torch.cat((fresh, masks)), self.cache).logits[0, -count:]
        masked = torch.arange(logits.shape[-1], device=logits.device) == self.mask_id
        return logits.masked_fill(masked, float("-inf"))


# Extra heads, such as Medusa's, each row corrected by the token before --------------------------


class MarkovDrafter(OnHeads, Pretrained, ChainDrafter):
    """Draft a chain with extra heads on the target whose rows are corrected from left to right.

    Args:
        target: the model that decodes; its state "final" and vocabulary projection are used.
        heads: Medusa or blockwise heads.
        correction: correction trained for these heads; a `Selector` leaves the k likeliest tokens
            of each row and walks one path through them.
        gamma: draft length, 1 … number of heads; None: the number of heads.
    """

    folder, build = "markov", stored_correction
    hidden_layers = ("final",)

    def __init__(
        self, target: CausalLM, heads: Heads, correction: Correction, gamma: int | None = None
    ):
        check_heads(heads, target)
        self.output_head = output_head(target, heads.words)
        check_correction(correction, self.output_head)
        self.target = target
        self.heads = heads
        self.correction = correction
        super().__init__(whole("gamma", heads.count if gamma is None else gamma, 1, heads.count))

    @classmethod
    def made(cls, target: CausalLM, module: Correction, **options: Any) -> Self:
        """Return the drafter with this correction and the shipped Medusa heads."""
        heads = load(find_weights("medusa", target), target, stored_heads)
        return cls(target, heads, module, **options)

    def start(self, context: Context) -> "MarkovSession":
        return MarkovSession(self)


class MarkovSession(ParallelSession):
    """The drafting of one generation. The heads read the last row that the target has scored."""

    def __init__(self, drafter: MarkovDrafter):
        super().__init__(drafter.length)
        self.drafter = drafter
        self.correction = drafter.correction
        self.words = drafter.heads.words

    def rows(self, context: Context, count: int) -> Tensor:
        hidden = context.scores.hidden["final"][0, -1]  # pyright: ignore[reportOptionalMemberAccess]
        self.states = self.drafter.heads(hidden, slice(count))
        return self.drafter.output_head.head(self.states)
