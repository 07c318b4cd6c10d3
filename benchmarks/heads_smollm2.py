"""Chapter 10's parallel heads beside SmolLM2 as they ship, with EAGLE-1: α by depth, what the
Markov correction adds, speed in one loop, in vLLM.

    python -m benchmarks.heads_smollm2                  # all parts, on a quiet core
    python -m benchmarks.heads_smollm2 heads gained     # some parts; the others stay as they are

Writes results/heads-smollm2.json. Speed is in seconds of the processor, which a busy machine
lengthens far less than those of the wall. `served` needs vLLM (`make engines`). Nothing here is asserted.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from specdec_lite.drafters import BlockDiffusionDrafter, EagleDrafter, MarkovDrafter, MedusaDrafter
from specdec_lite.drafters.block_head import BlockHead
from specdec_lite.drafters.feature_head import Eagle1Head
from specdec_lite.drafters.heads import Heads, stored_heads
from specdec_lite.drafters.parallel import Correction
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import load
from specdec_lite.serving.export_parallel import export_blocks, export_medusa
from specdec_lite.speculation import Drafter
from specdec_lite.training.shared_text import Material
from specdec_lite.tree import TokenTree

from . import beside_smollm2 as beside
from .heads import DEPTHS, gained

KINDS = {
    "EAGLE-1": ("eagle1", Eagle1Head),
    "Medusa": ("medusa", stored_heads),
    "Medusa, corrected": ("markov", Correction),
    "block diffusion": ("block_diffusion", BlockHead),
}
MASK = 3
"""SmolLM2's `<repo_name>`, which it does not write."""


class Uncorrected(MarkovDrafter):
    """Medusa's heads drafting a chain of tokens that are drawn, each from its row as it stands."""

    def __init__(self, target: CausalLM, heads: Heads, gamma: int):
        super().__init__(target, heads, Correction(len(heads.words.ids), 1), gamma)

    def start(self, context):
        session = super().start(context)
        session.correction = None
        return session


class Bench(beside.Bench):
    """One method a part."""

    name = "heads-smollm2"
    what = "parallel heads and EAGLE-1 beside SmolLM2: rates of acceptance, speed, the same in vLLM"
    parts = ("heads", "gained", "decoded", "served")
    methods = ("medusa", "dflash")

    @cached_property
    def material(self) -> Material:
        return Material.smollm2(self.options.work, None)

    def head(self, label: str, target: CausalLM) -> nn.Module:
        name, build = KINDS[label]
        return load(beside.shipped_folder(name), target, build)

    def heads(self) -> dict:
        """How each was trained, the bytes that it takes to draft, and its rates on held-out texts:
        those of its training, and EAGLE-1's behind the same anchors.
        """
        made = {label: beside.facts(name) for label, (name, _) in KINDS.items()}
        made["Medusa, corrected"]["bytes"] += made["Medusa"]["bytes"]
        eagle = self.head("EAGLE-1", self.material.target)
        made["EAGLE-1"]["held_out"] = self.material.judge(eagle, DEPTHS)
        return {label: found | found.pop("held_out") for label, found in made.items()}

    def gained(self) -> dict:
        """By depth, how much α at temperature 1 rises with the correction."""
        rows, correction = (
            self.head(label, self.material.target) for label in ("Medusa", "Medusa, corrected")
        )
        both = nn.ModuleDict({"rows": rows, "correction": correction})
        without, with_it = (
            self.material.by_text(head, DEPTHS, 1.0).numpy() for head in (rows, both)
        )
        return {"Medusa, corrected": gained(without, with_it)}

    def decoded(self) -> dict:
        """Greedy and at temperature 1, in turns with plain decoding; all draw their tokens."""
        target, gamma = self.model[0], self.options.gamma
        made = {label: self.head(label, target) for label in KINDS}
        rows, correction = made["Medusa"], made["Medusa, corrected"]
        drafters = {
            "EAGLE-1": EagleDrafter(target, made["EAGLE-1"], gamma),
            "Medusa": Uncorrected(target, rows, gamma),
            "Medusa, corrected": MarkovDrafter(target, rows, correction, gamma),
            "block diffusion": BlockDiffusionDrafter(target, made["block diffusion"], gamma),
        }
        return self.in_turns(drafters, [0.0, 1.0])

    def exported(self, method: str, folder: Path) -> Drafter:
        target, gamma = self.model[0], self.options.gamma
        if method == "dflash":
            head = self.head("block diffusion", target)
            export_blocks(folder, head, target, MASK, target.dtype)
            return BlockDiffusionDrafter(target, head, gamma)
        heads = self.head("Medusa", target)
        heads.words.ids = torch.arange(target.vocab_size)  # vLLM lets them say every token
        export_medusa(folder, heads, target, target.dtype)
        return MedusaDrafter(target, heads, TokenTree.chain([0] * gamma))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = beside.parser(Bench, prompts=12, new_tokens=48, turns=2, gamma=DEPTHS)
    beside.record(Bench, parser, arguments)


if __name__ == "__main__":
    main()
