"""The draft of a round as one captured graph: γ passes, and the choice of a token after each.

With passes captured one by one the host still launches, for every drafted token, what draws it: ten
small operations, 25 with top-k and top-p, which may take longer than the pass of a shallow draft.
What lives here: `CapturedDrafter`. What does not: the passes (`graphs`), and what is drawn how
(`on_device`), which are used as they are, so one seed gives one text on all paths.
"""

import torch
from torch import Tensor

from specdec_lite.checks import instance
from specdec_lite.engine.transformer import steady_attention
from specdec_lite.gpu.graphs import Program, Slot, StaticLM
from specdec_lite.gpu.on_device import DeviceDrafter, DeviceSession, drafted
from specdec_lite.sampling import Sampling
from specdec_lite.speculation import Context


class CapturedDrafter(DeviceDrafter):
    """`DeviceDrafter` whose whole draft is replayed with one launch; use it with `rule=on_device`.

    model: a `StaticLM` (on a CPU it runs the same program without a graph). gamma: a number.
    Drafts of other lengths, as at a text's end, run pass by pass. TypeError for another model.
    """

    def __init__(self, model: StaticLM, gamma: int = 4):
        super().__init__(instance("model", model, StaticLM), gamma)

    def start(self, context: Context) -> "CapturedSession":
        return CapturedSession(self.model, self.gamma, context)


class CapturedSession(DeviceSession):
    """The same draft, token for token, under the same uniforms."""

    @torch.inference_mode()
    def _draft(
        self, fed: Tensor, gamma: int, uniforms: Tensor, sampling: Sampling, vocab_size: int
    ) -> tuple[Tensor, Tensor | None]:
        slot, end = self.cache.storage.slot, self.cache.length + len(fed) + gamma - 1
        if gamma < self.length.gamma or len(fed) > 2 or end > slot.tensors.capacity:
            return super()._draft(fed, gamma, uniforms, sampling, vocab_size)
        settings = gamma, sampling, vocab_size
        program = slot.programs.get(("draft", len(fed)))
        if program is None or program.settings != settings:
            program = slot.programs["draft", len(fed)] = DraftProgram(slot, len(fed), settings)
        with steady_attention(fed.device):
            tokens, rows = program(fed, self.cache.length, uniforms)
        self.passes += gamma
        self.cache.length = end
        self.cache.root = end - 1
        return tokens.clone(), None if rows is None else rows.clone()


class DraftProgram(Program):
    """A whole draft over static buffers: tokens [1, n], start [1], uniforms [γ]."""

    def __init__(self, slot: Slot, count: int, settings: tuple[int, Sampling, int]):
        super().__init__(slot, count)
        self.settings = settings
        self.uniforms = torch.zeros(settings[0], dtype=torch.float64, device=self.start.device)

    def __call__(self, fed: Tensor, length: int, uniforms: Tensor) -> tuple[Tensor, Tensor | None]:
        """Draft after `length` cached tokens and fed [n]: the tokens and rows of `drafted`, good
        until another program of the model is called.
        """
        self.tokens.copy_(fed[None])
        self.start.fill_(length)
        self.uniforms[: len(uniforms)].copy_(uniforms)
        return self.once_more()

    def run(self) -> tuple[Tensor, Tensor | None]:
        slots, model = self.start + self.count, self.slot.model
        gamma, sampling, vocab_size = self.settings

        def follow(tokens: Tensor) -> Tensor:
            nonlocal slots
            known = tokens[None].clamp(max=model.config.vocab_size - 1)
            logits = model(known, self.slot.tensors, slots, slots, self.bias(slots), last=True)
            slots = slots[-1:] + 1
            return logits[0, -1]

        return drafted(follow, self.tokens[0], gamma, self.uniforms, sampling, vocab_size)
