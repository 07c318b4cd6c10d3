"""Fill a block of masks in one pass over the target's stored states."""

import torch
from torch import Tensor

from specdec_lite.drafters.followed import common_prefix
from specdec_lite.drafters.heads.vocabulary import OutputHead
from specdec_lite.drafters.lengths import Length
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
        least: predicted acceptance below which a position is not drafted.
        context: context at the start of the generation.

    Attributes:
        storage: keys and values of the target's states at the tokens `text`, followed by those of
            the last block.
    """

    def __init__(
        self,
        target: CausalLM,
        head: BlockHead,
        output_head: CausalLM | OutputHead,
        gamma: int,
        least: float,
        context: Context,
    ):
        super().__init__(Survival(gamma, least, self) if least else gamma)
        self.target = target
        self.head = head
        self.correction = head.correction
        self.words = head.words
        self.output_head = output_head
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
    """Draft the next position while the head predicts that its token is accepted.

    Args:
        gamma: largest number of drafted tokens, ≥ 1.
        least: the least predicted acceptance.
        session: whose head predicts it.
    """

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
