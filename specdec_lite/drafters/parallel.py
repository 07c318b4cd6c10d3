"""Draft all tokens in one pass: PARD, extra heads with a correction, and block diffusion (DFlash)."""

from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.checks import whole
from specdec_lite.contract import Context
from specdec_lite.drafters.block_head import (
    BlockHead,
    Correction,
    check_correction,
    stored_correction,
)
from specdec_lite.drafters.chain import (
    ChainDrafter,
    ChainSession,
    Followed,
    common_prefix,
    draft_chain,
)
from specdec_lite.drafters.heads import (
    DraftVocabulary,
    Heads,
    OnHeads,
    check_heads,
    check_size,
    output_head,
    stored_heads,
)
from specdec_lite.drafters.lengths import Length, probability
from specdec_lite.drafters.models import ModelDrafter
from specdec_lite.drafters.published import is_published
from specdec_lite.drafters.published_blocks import read_blocks
from specdec_lite.engine.linear import pack
from specdec_lite.engine.models import CausalLM, steady_attention
from specdec_lite.engine.native import NativeStorage
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.weights import Pretrained, find_weights, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.transfer import upload

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


# Extra heads, each row corrected by the token before --------------------------------------------
# Sources: Cheng et al. 2026 (DSpark), the Markov head; DFlash 2's selector of pairs
# (vllm-project/vllm#52816); here on heads such as Medusa's.


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


# DFlash: a block of masks, whose layers all read the target's states ----------------------------
# Source: Chen, Liang and Liu 2026, arXiv 2602.06036; for heads with a correction and a confidence
# (DSpark), Cheng et al. 2026; for heads with a selector, see `block_head.BlockParts`.


class BlockSession(ParallelSession):
    """The drafting of one generation.

    Attributes:
        storage: keys and values of the target's states at the tokens `text`, followed by those of
            the last block.
    """

    def __init__(self, drafter: "BlockDiffusionDrafter", context: Context):
        gamma, least = drafter.length.gamma, drafter.least
        super().__init__(Survival(gamma, least, self) if least else gamma)
        self.target, self.head, self.output_head = drafter.target, drafter.head, drafter.output_head
        self.correction, self.words = self.head.correction, self.head.words
        capacity = len(context.tokens) + context.wanted + self.head.size
        self.storage = NativeStorage(self.head, 1, capacity)
        self.text = context.tokens[:0]

    def rows(self, context: Context, count: int) -> Tensor:
        head = self.head
        text = context.tokens[:-1]
        before, known = common_prefix(self.text, text), len(text)
        self.text = text
        self.storage.reserve(known + head.size)
        past = self.storage.tensors.layers
        states = [context.scores.hidden[layer][:, before - known :] for layer in head.layers]  # pyright: ignore[reportOptionalMemberAccess]
        angles = head.rotary(self.target.device, states[0].dtype)
        cos, sin = (table[before:known] for table in angles)
        head.inject(states, past, cos, sin, before)
        block = slice(known, known + head.size)
        anchor = self.target.embed(context.tokens[-1:])[None]
        cos, sin = (table[block] for table in angles)
        with steady_attention(self.target.device):
            filled = head.fill(anchor, past, cos, sin, known)
        self.states = filled[0, 0, :count]
        return self.output_head.head(self.states)

    @torch.inference_mode()
    def acceptance(self, position: int, token: Tensor) -> float:
        """Return the predicted acceptance of a position's token.

        It is computed from the token before, never from the position's own.

        Args:
            position: of the row, from 0.
            token: [], the token before.
        """
        inputs = self.states[position]
        if self.head.parts.confidence == "state and token" and self.correction is not None:
            index = self.correction.index(token, self.words)
            inputs = torch.cat((inputs, self.correction.before(index)))
        assert self.head.confidence is not None
        return self.head.confidence(inputs).sigmoid().item()


class Survival(Length):
    """Draft the next position while the head predicts that its token is accepted."""

    looks = True

    def __init__(self, gamma: int, least: float, session: BlockSession):
        super().__init__(gamma)
        self.least = least
        self.session = session
        self.drafted = 0

    def most(self, context: Context) -> int:
        self.drafted = 0
        return self.gamma

    def go_on(self, row: Tensor, token: int | Tensor) -> bool:
        self.drafted += 1
        if self.drafted >= len(self.session.states):
            return False
        return self.session.acceptance(self.drafted, torch.as_tensor(token)) >= self.least


class BlockDiffusionDrafter(Pretrained, ChainDrafter):
    """Draft by filling the masks after the last token, all in one pass.

    Args:
        target: the model that decodes; its embeddings and vocabulary projection are used.
        head: block head trained on this target.
        gamma: draft length, 1 … block size − 1; None: block size − 1. The whole block is always
            filled, since its positions attend to each other; tokens beyond γ are not used. A head
            that also predicts from the last token of the text drafts up to its block size.
        least: draft a further token only while the head predicts that it is accepted with at least
            this probability; 0: draft γ tokens. Needs a head with a confidence part (DSpark).

    Raises:
        ValueError: if `least` is above 0 and the head has no confidence part.
    """

    folder, build = "block_diffusion", BlockHead

    def __init__(
        self, target: CausalLM, head: BlockHead, gamma: int | None = None, least: float = 0.0
    ):
        self.target = checks.model("target", target)
        self.head = checks.instance("head", head, BlockHead)
        check_size("head reads states", head.config.hidden_size, target)
        self.output_head = output_head(target, head.words)
        if head.correction is not None:
            check_correction(head.correction, self.output_head)
        super().__init__(whole("gamma", head.most if gamma is None else gamma, 1, head.most))
        self.least = probability("least", least)
        if self.least and head.confidence is None:
            raise ValueError(f"least={least}: the head has no part that predicts acceptance")
        self.hidden_layers = head.layers

    @classmethod
    def read(cls, target: CausalLM, path: str | Path | None) -> nn.Module:
        """Return a head of ours or a published one (DFlash, DSpark, DFlash 2)."""
        return read_blocks(str(path), target) if is_published(path) else super().read(target, path)

    def check(self, target: CausalLM, positions: int) -> None:
        super().check(target, positions)
        checks.positions(self.head.config, positions + self.head.size)

    def start(self, context: Context) -> BlockSession:
        return BlockSession(self, context)
