"""Measure chapter 12's shipped parallel heads for SmolLM2, and EAGLE-1, here and in vLLM.

    python -m benchmarks run parallel-heads-smollm2                  # all parts, on a quiet core
    python -m benchmarks run parallel-heads-smollm2 --only heads gained     # these parts; the others remain

The parts are α by depth, the gain of the Markov correction, speed in one loop, and speed in vLLM.
Speed is measured in processor seconds, which a busy machine
lengthens far less than wall-clock seconds. `served` needs vLLM (`make engines`). The command
asserts nothing.
"""

from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from specdec_lite.drafters import BlockDiffusionDrafter, EagleDrafter, MarkovDrafter, MedusaDrafter
from specdec_lite.drafters.eagle.feature_head import Eagle1Head
from specdec_lite.drafters.heads.heads import Heads, stored_heads
from specdec_lite.drafters.parallel.block_head import BlockHead
from specdec_lite.drafters.parallel.parallel import Correction
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import load
from specdec_lite.speculation import Drafter
from specdec_lite.training.export_parallel import export_blocks, export_medusa
from specdec_lite.training.head_trainer import HeadTrainer
from specdec_lite.tree import TokenTree

from . import beside_smollm2 as beside
from .heads import DEPTHS, correction_gain

KINDS = {
    "EAGLE-1": ("eagle1", Eagle1Head),
    "Medusa": ("medusa", stored_heads),
    "Medusa, corrected": ("markov", Correction),
    "block diffusion": ("block_diffusion", BlockHead),
}
MASK = 3
"""SmolLM2's token `<repo_name>`, which it never generates."""


class Uncorrected(MarkovDrafter):
    """Medusa's heads that draw a chain of tokens, each from its own row.

    Args:
        target: Model that verifies.
        heads: Medusa's heads.
        gamma: Draft length.
    """

    def __init__(self, target: CausalLM, heads: Heads, gamma: int):
        super().__init__(target, heads, Correction(len(heads.words.ids), 1), gamma)

    def start(self, context):
        session = super().start(context)
        session.correction = None
        return session


class ParallelHeadsSmolLM2(beside.Bench):
    """The recording of the parallel heads, with one method per part."""

    name = "parallel-heads-smollm2"
    what = "parallel heads and EAGLE-1 for SmolLM2: rates of acceptance, speed, the same in vLLM"
    steps = ("heads", "gained", "decoded", "served")
    time = "30 minutes"
    quick = "--prompts 2 --new-tokens 4 --turns 1".split()
    sizes = {"prompts": 12, "new_tokens": 48, "turns": 2, "gamma": DEPTHS}
    methods = ("medusa", "dflash")

    @cached_property
    def trainer(self) -> HeadTrainer:
        """The target and its training text."""
        return HeadTrainer.for_smollm2(self.options.cache, None)

    def head(self, label: str, target: CausalLM) -> nn.Module:
        """Return a shipped head."""
        name, build = KINDS[label]
        return load(beside.shipped_folder(name), target, build)

    def heads(self) -> dict:
        """Return how each head was trained, its bytes, and its rates on held-out texts.

        The rates of EAGLE-1 are measured from the same positions as those of the other heads.
        """
        entries = {label: beside.facts(name) for label, (name, _) in KINDS.items()}
        entries["Medusa, corrected"]["bytes"] += entries["Medusa"]["bytes"]
        eagle = self.head("EAGLE-1", self.trainer.target)
        entries["EAGLE-1"]["held_out"] = self.trainer.evaluate(eagle, DEPTHS)
        return {label: entry | entry.pop("held_out") for label, entry in entries.items()}

    def gained(self) -> dict:
        """Return by how much the correction raises α at temperature 1, by depth."""
        rows, correction = (
            self.head(label, self.trainer.target) for label in ("Medusa", "Medusa, corrected")
        )
        both = nn.ModuleDict({"rows": rows, "correction": correction})
        without, with_it = (
            self.trainer.rates_by_text(head, DEPTHS, 1.0).numpy() for head in (rows, both)
        )
        return {"Medusa, corrected": correction_gain(without, with_it)}

    def decoded(self) -> dict:
        """Decode greedily and at temperature 1, alternating with plain decoding."""
        target, gamma = self.model[0], self.options.gamma
        heads = {label: self.head(label, target) for label in KINDS}
        rows, correction = heads["Medusa"], heads["Medusa, corrected"]
        drafters = {
            "EAGLE-1": EagleDrafter(target, heads["EAGLE-1"], gamma),
            "Medusa": Uncorrected(target, rows, gamma),
            "Medusa, corrected": MarkovDrafter(target, rows, correction, gamma),
            "block diffusion": BlockDiffusionDrafter(target, heads["block diffusion"], gamma),
        }
        return self.alternate(drafters, [0.0, 1.0])

    def exported(self, method: str, folder: Path) -> Drafter:
        target, gamma = self.model[0], self.options.gamma
        if method == "dflash":
            head = self.head("block diffusion", target)
            export_blocks(folder, head, target, MASK, target.dtype)
            return BlockDiffusionDrafter(target, head, gamma)
        heads = self.head("Medusa", target)
        heads.words.ids = torch.arange(target.vocab_size)  # vLLM lets the heads draft every token
        export_medusa(folder, heads, target, target.dtype)
        return MedusaDrafter(target, heads, TokenTree.chain([0] * gamma))
