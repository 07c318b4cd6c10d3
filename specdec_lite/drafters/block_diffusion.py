"""A block of masks filled in one pass that reads the target's states in every layer: DFlash.

What lives here: the drafter. What does not: its layers (`block_head`), their training
(`training.heads`). Source: Chen, Liang and Liu 2026, arXiv 2602.06036; where the head carries a
correction, Cheng et al. 2026.
"""

from pathlib import Path

from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.block_head import BlockHead
from specdec_lite.drafters.heads import check_size
from specdec_lite.drafters.parallel import ParallelSession, check_correction
from specdec_lite.drafters.words import speaker
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.native import NativeStorage
from specdec_lite.loading.weights import load, where
from specdec_lite.speculation import Context, Drafter, Shape


class BlockDiffusionDrafter(Drafter):
    """Draft by filling the masks behind the last token, all at once, in sight of one another.

    Args:
        target: the model that decodes; its embeddings and vocabulary projection are used.
        head: trained on it.
        gamma: draft length, 1 … the block's size − 1 (None: all of it). The block is always filled
            as a whole, since each of its places sees all others; what is beyond γ is left.
    """

    def __init__(self, target: CausalLM, head: BlockHead, gamma: int | None = None):
        self.target = checks.model("target", target)
        self.head = checks.instance("head", head, BlockHead)
        check_size("head reads states", head.config.hidden_size, target)
        self.speaker = speaker(target, head.words)
        if head.correction is not None:
            check_correction(head.correction, self.speaker)
        most = head.size - 1
        self.gamma = most if gamma is None else checks.whole("gamma", gamma, 1, most)
        self.hidden_layers = head.layers

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, gamma: int | None = None
    ) -> "BlockDiffusionDrafter":
        """With the head in the file or folder `path`; None: the one shipped for this target."""
        return cls(target, load(where("block_diffusion", target, path), target, BlockHead), gamma)

    def start(self, context: Context) -> "BlockSession":
        return BlockSession(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def shape(self) -> Shape:
        return Shape.chain(self.gamma)


class BlockSession(ParallelSession):
    """Holds keys and values of the target's states at `known` committed tokens: all but the last,
    whose state no pass has made yet. Those of a block lie behind them until the next round's.
    """

    def __init__(self, drafter: BlockDiffusionDrafter, context: Context):
        super().__init__(drafter.gamma)
        self.target = drafter.target
        self.head = drafter.head
        self.correction = drafter.head.correction
        self.words = drafter.head.words
        self.speaker = drafter.speaker
        room = len(context.tokens) + context.wanted + self.head.size
        self.storage = NativeStorage(self.head, 1, room)
        self.known = 0

    def rows(self, context: Context, count: int) -> Tensor:
        head = self.head
        before, self.known = self.known, len(context.tokens) - 1
        self.storage.reserve(self.known + head.size)
        past = self.storage.tensors.layers
        true = [context.scores.hidden[layer][:, before - self.known :] for layer in head.layers]
        angles = head.rotary(self.target.device, true[0].dtype)
        head.inject(true, past, *(table[before : self.known] for table in angles), before)
        place = slice(self.known, self.known + head.size)
        anchor = self.target.embed(context.tokens[-1:])[None]
        states = head.fill(anchor, past, *(table[place] for table in angles), self.known)
        return self.speaker.head(states[0, 0, :count])

    def cut(self, length: int) -> None:
        self.known = min(self.known, length - 1)
