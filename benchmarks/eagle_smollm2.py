"""Measure the shipped EAGLE heads for SmolLM2: α by depth, vocabulary, speed here and in vLLM.

    python -m benchmarks run eagle-smollm2                     # ten minutes on a quiet core
    python -m benchmarks run eagle-smollm2 --only heads vocabulary    # these parts; the others remain

Speed is measured in processor seconds after the first round,
which a busy machine lengthens far less than wall-clock seconds. In bfloat16, rounding makes some
texts differ from plain decoding's. `served` needs vLLM (`make engines`). The command asserts
nothing.
"""

from pathlib import Path

import torch

from specdec_lite.drafters import ConfidenceTree, EagleDrafter, MtpDrafter
from specdec_lite.drafters.eagle.feature_head import Eagle1Head, Eagle3Head, FeatureHead
from specdec_lite.loading.weights import load
from specdec_lite.speculation import Drafter
from specdec_lite.training import eagle
from specdec_lite.training.export import export

from . import beside_smollm2 as beside
from .eagle import vocabularies

LABELS = {"eagle1": "EAGLE-1", "eagle3": "EAGLE-3", "mtp": "multi-token prediction"}
SERVED = {"eagle": "eagle1", "eagle3": "eagle3"}
SIZES = (1024, 4096, 12_000)


class EagleSmolLM2(beside.Bench):
    """The recording of the EAGLE family, with one method per part."""

    name = "eagle-smollm2"
    what = "the EAGLE family for SmolLM2: rates of acceptance, speed, and the same in vLLM"
    steps = ("heads", "vocabulary", "decoded", "served")
    time = "10 minutes"
    quick = "--prompts 2 --new-tokens 4 --turns 1 --texts 2".split()
    sizes = {"prompts": 6, "new_tokens": 48, "turns": 3, "gamma": 3, "texts": 64}
    methods = tuple(SERVED)

    def head(self, name: str) -> FeatureHead:
        """Return a shipped head."""
        kind = {"eagle1": Eagle1Head, "eagle3": Eagle3Head}[name]
        return load(beside.shipped_folder(name), self.model[0], kind)

    def heads(self) -> dict:
        """Return what the training measured on all held-out texts."""
        entries = {}
        for name, label in LABELS.items():
            if (beside.shipped_folder(name) / "report.json").exists():
                entries[label] = beside.facts(name)
                entries[label] |= entries[label].pop("held_out")["all"]
        return entries

    def vocabulary(self) -> list[dict]:
        """Measure EAGLE-1 with smaller draft vocabularies on some of the held-out texts."""
        target, tokenizer = self.model
        texts = eagle.smollm2_texts(target, tokenizer, self.options.cache)
        sampled = [text for text in texts.held_out if text.temperature == 1]
        some = sampled[:: max(1, len(sampled) // self.options.texts)]
        texts = eagle.Texts(texts.training, some)
        return vocabularies(self.head("eagle1"), target, texts, SIZES)

    def decoded(self) -> dict:
        """Decode greedily, alternating with plain decoding."""
        target, gamma = self.model[0], self.options.gamma
        drafters = {
            f"EAGLE-1, chain of {gamma}": EagleDrafter.from_pretrained(target, 1, draft=gamma),
            "EAGLE-2, 8 nodes": EagleDrafter.from_pretrained(
                target, 2, draft=ConfidenceTree(3, 4, 8)
            ),
            f"EAGLE-3, chain of {gamma}": EagleDrafter.from_pretrained(target, 3, draft=gamma),
        }
        if beside.is_shipped("mtp"):
            drafters[f"MTP, chain of {gamma}"] = MtpDrafter.from_pretrained(target, draft=gamma)
        return {name: row["T = 0"] for name, row in self.alternate(drafters, [0.0]).items()}

    def exported(self, method: str, folder: Path) -> Drafter:
        target, head = self.model[0], self.head(SERVED[method])
        if method == "eagle":  # vLLM lets the head draft every token
            head.ids = torch.arange(target.vocab_size)
        export(folder, head, target, target.dtype)
        return EagleDrafter(target, head, self.options.gamma)
