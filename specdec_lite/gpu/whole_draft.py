"""The draft of a round as one captured graph: γ passes, and the choice of a token after each.

If passes are captured one by one, the host still launches about ten small operations for every
drafted token (25 with top-k and top-p), which may take longer than a shallow draft's pass. One seed
gives one text with and without the graph.
"""

import torch
from torch import Tensor

from specdec_lite.checks import instance
from specdec_lite.contract import Context, Drafter
from specdec_lite.drafters.models import ModelDrafter
from specdec_lite.engine.models import CausalLM, steady_attention
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.gpu.on_device import DeviceDrafter, DeviceSession, draft_tokens, on_device
from specdec_lite.gpu.programs import Program, Slot
from specdec_lite.sampling import Sampling


def why_no_graphs(target: CausalLM, draft: CausalLM | None) -> str:
    """Return why a pair cannot decode with passes in graphs; "" if it can."""
    if target.device.type != "cuda":
        return "graphs need a GPU"
    if draft is None:
        return "only a draft model is captured whole"
    foreign = [each for each in (target, draft) if not each.native]
    return f"{type(foreign[0].model).__name__} is not one of our own models" if foreign else ""


def both_ways(target: CausalLM, drafter: Drafter, length: int) -> tuple[dict[str, tuple], str]:
    """Return ({way: (target, drafter, rule)}, why there is no second way; "" if there is).

    The ways are "one by one" and, with captured passes and whole drafts, "in graphs".

    length: most tokens of prompt and answer.
    """
    ways: dict[str, tuple] = {"one by one": (target, drafter, None)}
    gamma = drafter.gamma if type(drafter) is ModelDrafter else None
    draft = drafter.draft_model() if isinstance(gamma, int) else None
    if (why := why_no_graphs(target, draft)) or draft is None or gamma is None:
        return ways, why
    room = length + 2 * (gamma + 1)
    large, small = (
        StaticLM(model, min(room, model.max_positions), sizes)
        for model, sizes in ((target, (1, 2, gamma + 1)), (draft, (1, 2)))
    )
    ways["in graphs"] = large, CapturedDrafter(small, gamma), on_device
    return ways, ""


class CapturedDrafter(DeviceDrafter):
    """`DeviceDrafter` whose whole draft is one launch; use it with `rule=on_device`.

    Drafts of another length, as at the end of a text, run pass by pass.

    Args:
        model: a `StaticLM`; on a CPU it runs the same program without a graph.
        gamma: draft length ≥ 1.

    Raises:
        TypeError: for another model.
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
    """A whole draft over static buffers.

    Args:
        slot: whose keys and values it uses.
        count: number of tokens fed to the first pass.
        settings: (γ, the sampling, the target's V).

    Attributes:
        uniforms: buffer [γ].
    """

    def __init__(self, slot: Slot, count: int, settings: tuple[int, Sampling, int]):
        super().__init__(slot, count)
        self.settings = settings
        self.uniforms = torch.zeros(settings[0], dtype=torch.float64, device=self.start.device)

    def __call__(self, fed: Tensor, length: int, uniforms: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the static tokens and rows of `draft_tokens`.

        They are valid until another program of the model is called.

        Shapes: fed [n].
        """
        self.tokens.copy_(fed[None])
        self.start.fill_(length)
        self.uniforms[: len(uniforms)].copy_(uniforms)
        tokens, rows = self.execute()
        return tokens, rows

    def run(self) -> tuple[Tensor, Tensor | None]:
        slots, model = self.start + self.count, self.slot.model
        gamma, sampling, vocab_size = self.settings

        def follow(tokens: Tensor) -> Tensor:
            nonlocal slots
            ids = tokens[None].clamp(max=model.config.vocab_size - 1)
            logits = model(ids, self.slot.tensors, slots, slots, self.bias(slots), last=True)
            slots = slots[-1:] + 1
            return logits[0, -1]

        return draft_tokens(follow, self.tokens[0], gamma, self.uniforms, sampling, vocab_size)
