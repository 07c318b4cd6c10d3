"""The EAGLE family beside SmolLM2 as it ships: α by depth, vocabulary, speed in one loop, in vLLM.

    python -m benchmarks.eagle_smollm2                     # ten minutes on a quiet core
    python -m benchmarks.eagle_smollm2 heads vocabulary    # some parts; the others stay as they are

Writes results/eagle-smollm2.json. Speed is in seconds of the processor behind the first
round, which a busy machine lengthens far less than those of the wall; in bfloat16 rounding lets some
texts part from plain decoding's.
`served` needs vLLM (`make engines`). Nothing here is asserted.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from specdec_lite.drafters import EagleDrafter, Growth, MtpDrafter
from specdec_lite.drafters.feature_head import Eagle1Head, Eagle3Head, FeatureHead
from specdec_lite.loading.weights import load
from specdec_lite.serving.export import export
from specdec_lite.speculation import Drafter
from specdec_lite.training import eagle

from . import beside_smollm2 as beside
from .eagle import vocabularies

LABELS = {"eagle1": "EAGLE-1", "eagle3": "EAGLE-3", "mtp": "multi-token prediction"}
SERVED = {"eagle": "eagle1", "eagle3": "eagle3"}
SIZES = (1024, 4096, 12_000)


class Bench(beside.Bench):
    """One method a part."""

    name = "eagle-smollm2"
    what = "the EAGLE family beside SmolLM2: rates of acceptance, speed, and the same in vLLM"
    parts = ("heads", "vocabulary", "decoded", "served")
    methods = tuple(SERVED)

    def head(self, name: str) -> FeatureHead:
        kind = {"eagle1": Eagle1Head, "eagle3": Eagle3Head}[name]
        return load(beside.shipped_folder(name), self.model[0], kind)

    def heads(self) -> dict:
        """What the training measured on all held-out texts."""
        made = {}
        for name, label in LABELS.items():
            if (beside.shipped_folder(name) / "report.json").exists():
                made[label] = beside.facts(name)
                made[label] |= made[label].pop("held_out")["all"]
        return made

    def vocabulary(self) -> list[dict]:
        """EAGLE-1 where it may draft fewer tokens, on some of the held-out texts."""
        target, tokenizer = self.model
        texts = eagle.smollm2_texts(target, tokenizer, self.options.work)
        sampled = [text for text in texts.held_out if text.temperature == 1]
        some = sampled[:: max(1, len(sampled) // self.options.texts)]
        texts = eagle.Texts(texts.training, some)
        return vocabularies(self.head("eagle1"), target, texts, SIZES)

    def decoded(self) -> dict:
        """Greedy, in turns with plain decoding."""
        target, gamma = self.model[0], self.options.gamma
        made = {
            f"EAGLE-1, chain of {gamma}": EagleDrafter.from_pretrained(target, 1, draft=gamma),
            "EAGLE-2, 8 nodes": EagleDrafter.from_pretrained(target, 2, draft=Growth(3, 4, 8)),
            f"EAGLE-3, chain of {gamma}": EagleDrafter.from_pretrained(target, 3, draft=gamma),
        }
        if beside.is_shipped("mtp"):
            made[f"MTP, chain of {gamma}"] = MtpDrafter.from_pretrained(target, draft=gamma)
        return {name: found["T = 0"] for name, found in self.in_turns(made, [0.0]).items()}

    def exported(self, method: str, folder: Path) -> Drafter:
        target, head = self.model[0], self.head(SERVED[method])
        if method == "eagle":  # vLLM lets it draft every token of the target's
            head.ids = torch.arange(target.vocab_size)
        export(folder, head, target, target.dtype)
        return EagleDrafter(target, head, self.options.gamma)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = beside.parser(Bench, prompts=6, new_tokens=48, turns=3, gamma=3)
    parser.add_argument("--texts", type=int, default=64, help="held-out ones, for the vocabulary")
    beside.record(Bench, parser, arguments)


if __name__ == "__main__":
    main()
