"""Fill a block of masks in one pass over the target's stored states."""

from torch import Tensor

from specdec_lite.drafters.heads.vocabulary import OutputHead
from specdec_lite.drafters.parallel.block_head import BlockHead
from specdec_lite.drafters.parallel.parallel import ParallelSession
from specdec_lite.engine.models import CausalLM, steady_attention
from specdec_lite.engine.native import NativeStorage
from specdec_lite.speculation import Context


class BlockSession(ParallelSession):
    """The drafting of one generation.

    Args:
        target: the model that decodes.
        head: the block head.
        output_head: what turns the head's states into logits.
        gamma: draft length.
        context: context at the start of the generation.

    Attributes:
        storage: keys and values of the target's states at the first `known` committed tokens,
            followed by those of the last block.
    """

    def __init__(
        self,
        target: CausalLM,
        head: BlockHead,
        output_head: CausalLM | OutputHead,
        gamma: int,
        context: Context,
    ):
        super().__init__(gamma)
        self.target = target
        self.head = head
        self.correction = head.correction
        self.words = head.words
        self.output_head = output_head
        capacity = len(context.tokens) + context.wanted + self.head.size
        self.storage = NativeStorage(self.head, 1, capacity)
        self.known = 0

    def rows(self, context: Context, count: int) -> Tensor:
        head = self.head
        before, self.known = self.known, len(context.tokens) - 1
        self.storage.reserve(self.known + head.size)
        past = self.storage.tensors.layers
        states = [context.scores.hidden[layer][:, before - self.known :] for layer in head.layers]  # pyright: ignore[reportOptionalMemberAccess]
        angles = head.rotary(self.target.device, states[0].dtype)
        cos, sin = (table[before : self.known] for table in angles)
        head.inject(states, past, cos, sin, before)
        block = slice(self.known, self.known + head.size)
        anchor = self.target.embed(context.tokens[-1:])[None]
        cos, sin = (table[block] for table in angles)
        with steady_attention(self.target.device):
            filled = head.fill(anchor, past, cos, sin, self.known)
        return self.output_head.head(filled[0, 0, :count])

    def cut(self, length: int) -> None:
        self.known = min(self.known, length - 1)
