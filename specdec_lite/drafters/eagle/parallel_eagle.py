"""P-EAGLE: EAGLE-3 whose drafted tokens all come from one pass, at masks.

Source: Hui et al. 2026, arXiv 2602.01469; formats of `speculators`, SpecForge and vLLM. Shapes as
in `feature_head`.
"""

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from specdec_lite.drafters.chain import draft_chain
from specdec_lite.drafters.eagle.feature_head import Eagle3Head, WideBlock
from specdec_lite.drafters.eagle.feature_session import FeatureSession
from specdec_lite.engine.cache import Layer
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Block
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context


class TailBlock(Block):
    """A block on the second half of its input [e; g]; the first half stays as it is."""

    def attention(self, x: Tensor, *args, **options) -> Tensor:
        return WideBlock.pad_left(super().attention(tail(x), *args, **options))

    def mlp(self, x: Tensor) -> Tensor:
        return WideBlock.pad_left(super().mlp(tail(x)))


def tail(x: Tensor) -> Tensor:
    """Return the second half of vectors."""
    return x[..., x.shape[-1] // 2 :]


class ParallelEagleHead(Eagle3Head):
    """EAGLE-3 with more blocks, and with a pair of its own for tokens that are not drafted yet.

    A mask pairs a learned state, which stands for the target's states and is fused like them, with
    the embedding of the mask's token.

    Args:
        layers: the target's hidden states that the head reads.
        vocab_size: size v of the draft's vocabulary.
        depth: number of blocks.
        mask_id: the mask's token.
        embeddings: rows of the head's own embedding; 0: it reads the target's.
        options: the options of `Eagle3Head`, and fields of a `TransformerConfig`.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        vocab_size: int,
        depth: int = 1,
        mask_id: int = 0,
        embeddings: int = 0,
        **options,
    ):
        super().__init__(layers, vocab_size, **options)
        self.mask_id = mask_id
        self.more = nn.ModuleList(TailBlock(self.shape) for _ in range(depth - 1))
        self.mask = nn.Parameter(torch.zeros(len(self.layers) * self.size))
        self.embedding = nn.Embedding(embeddings, self.size) if embeddings else None

    @property
    def blocks(self) -> list[Block]:
        return [self.block, *cast(Iterable[Block], self.more)]

    @property
    def config(self) -> dict:
        embeddings = 0 if self.embedding is None else self.embedding.num_embeddings
        own = {"depth": len(self.blocks), "mask_id": self.mask_id, "embeddings": embeddings}
        return super().config | own

    def mask_state(self) -> Tensor:
        """Return the state [d] of a mask, fused and normed as the target's states are."""
        return self.begin(self.mask.split(self.size))

    def embed(self, tokens: Tensor, target: CausalLM) -> Tensor:
        """Return the embeddings [n, d] of tokens, the head's own or the target's."""
        return target.embed(tokens) if self.embedding is None else self.embedding(tokens)


class ParallelEagleSession(FeatureSession):
    """Draft a chain in one pass over the pairs of new tokens and the masks after them."""

    head: ParallelEagleHead

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        # After a prompt of one token no token has been scored yet, so there is no state to read.
        if context.scores is None:
            return NOTHING
        count = max(1, min(self.length.most(context), context.wanted - 1))
        head = self.head
        newest, features = self.fresh(context)
        masks = newest.new_full((count - 1,), head.mask_id)
        tokens = torch.cat((newest, masks))
        states = torch.cat((head.begin(features), head.mask_state().expand(count - 1, -1)))
        pairs = head.enter(head.embed(tokens, self.target), states)[None]
        self.passes += 1
        scores = self.body.score(
            tokens, self.cache, None, ("final",), states=(0, pairs), logits=False
        )
        rows = self.body.head(scores.hidden["final"][0, -count:])
        if self.ids is None:
            rows = head.spread(rows, self.target.vocab_size)
        following = iter(rows)
        return draft_chain(context, lambda token: next(following), self.length, self.ids)
