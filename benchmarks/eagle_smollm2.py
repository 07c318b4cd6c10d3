"""The EAGLE family beside SmolLM2 as it ships: α by depth, vocabulary, speed in one loop, in vLLM.

    python -m benchmarks.eagle_smollm2                     # ten minutes on a quiet core
    python -m benchmarks.eagle_smollm2 heads vocabulary    # some parts; the others stay as they are

Writes results/eagle-smollm2.json. Speed is in seconds of the processor, which a busy machine lengthens
far less than those of the wall; in bfloat16 rounding lets some texts part from plain decoding's.
`served` needs vLLM (`make engines`). Nothing here is asserted.
"""

import argparse
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from time import process_time

import numpy as np
import torch

from specdec_lite import generate, load_smollm2, results
from specdec_lite.drafters import EagleDrafter, Growth, MtpDrafter
from specdec_lite.drafters.feature_head import Eagle1Head, Eagle3Head, FeatureHead
from specdec_lite.loading.smollm2 import cache_folder, smollm2_folder
from specdec_lite.loading.smollm2_tasks import TASKS, chat
from specdec_lite.loading.weights import FILE, SHIPPED, load
from specdec_lite.measure.intervals import ratio
from specdec_lite.serving.export import export
from specdec_lite.training import eagle

from .eagle import vocabularies
from .engines import HERE, VLLM, Refused, Worker, as_counters, in_our_terms

PARTS = ("heads", "vocabulary", "decoded", "served")
LABELS = {"eagle1": "EAGLE-1", "eagle3": "EAGLE-3", "mtp": "multi-token prediction"}
SERVED = {"eagle1": "eagle", "eagle3": "eagle3"}
SIZES = (1024, 4096, 12_000)


class Bench:
    """What the parts share, each loaded when it is first asked for."""

    def __init__(self, options: argparse.Namespace):
        self.options = options

    @cached_property
    def model(self):
        return load_smollm2("cpu", self.options.dtype)

    @cached_property
    def prompts(self) -> list[list[int]]:
        """The shortest chats of each kind, kind after kind."""
        _, tokenizer = self.model
        kinds = [[chat(tokenizer, task.text) for task in tasks] for tasks in TASKS.values()]
        turns = zip(*(sorted(kind, key=len) for kind in kinds))
        return [ids for turn in turns for ids in turn][: self.options.prompts]

    def head(self, name: str) -> FeatureHead:
        kind = {"eagle1": Eagle1Head, "eagle3": Eagle3Head}[name]
        return load(SHIPPED / name / "smollm2", self.model[0], kind)

    def heads(self) -> dict:
        """What the training measured on all held-out texts."""
        made = {}
        for name, label in LABELS.items():
            folder = SHIPPED / name / "smollm2"
            if (folder / "report.json").exists():
                report = json.loads((folder / "report.json").read_text("utf-8"))
                facts = {key: report[key] for key in ("command", "texts", "tokens", "steps")}
                made[label] = facts | report["held_out"]["all"]
                if (folder / FILE).exists():
                    made[label]["bytes"] = (folder / FILE).stat().st_size
        return made

    def vocabulary(self) -> list[dict]:
        """EAGLE-1 where it may draft fewer tokens, on some of the held-out texts."""
        target, tokenizer = self.model
        texts = eagle.smollm2_texts(target, tokenizer, self.options.work)
        sampled = [text for text in texts.held_out if text.temperature == 1]
        some = sampled[:: max(1, len(sampled) // self.options.texts)]
        texts = eagle.Texts(texts.training, some)
        return vocabularies(self.head("eagle1"), target, texts, SIZES)

    def drafters(self) -> dict:
        target, gamma = self.model[0], self.options.gamma
        made = {
            "plain": None,
            f"EAGLE-1, chain of {gamma}": EagleDrafter.from_pretrained(target, 1, draft=gamma),
            "EAGLE-2, 8 nodes": EagleDrafter.from_pretrained(target, 2, draft=Growth(3, 4, 8)),
            f"EAGLE-3, chain of {gamma}": EagleDrafter.from_pretrained(target, 3, draft=gamma),
        }
        if (SHIPPED / "mtp" / "smollm2" / FILE).exists():
            made[f"MTP, chain of {gamma}"] = MtpDrafter.from_pretrained(target, draft=gamma)
        return made

    def decoded(self) -> dict:
        """Greedy, the drafters taking turns in an order that chance gives: tokens a target pass, and
        speed against plain decoding in the same loop, both with intervals over prompts; and how many
        texts are plain decoding's.
        """
        target, drafters = self.model[0], self.drafters()
        order = np.random.default_rng(0)
        shape = (len(self.prompts), self.options.turns)
        spent = {name: np.zeros(shape) for name in drafters}
        passes = {name: np.zeros(shape) for name in drafters}
        tokens = {name: np.zeros(shape) for name in drafters}
        same = dict.fromkeys(drafters, 0)
        for drafter in drafters.values():  # warms up
            generate(target, self.prompts[0], drafter, 4)
        for turn in range(self.options.turns):
            for row, ids in enumerate(self.prompts):
                texts = {}
                for name in order.permutation([*drafters]):
                    began = process_time()
                    output = generate(target, ids, drafters[name], self.options.new_tokens)
                    spent[name][row, turn] = process_time() - began
                    passes[name][row, turn] = output.stats.target_passes
                    tokens[name][row, turn] = output.stats.tokens
                    texts[name] = output.tokens.tolist()
                for name, text in texts.items():
                    same[name] += text == texts["plain"]
        return {
            name: {
                "same": same[name] / self.options.turns,
                "tau": ratio(tokens[name], passes[name]),
                "speedup": ratio(spent["plain"], spent[name]),
            }
            for name in drafters
        }

    def served(self) -> dict:
        """Acceptance by position in vLLM and here, on the same greedy prompts: of all rounds, the
        share in which a position was accepted.
        """
        target, gamma = self.model[0], self.options.gamma
        ask = {"prompts": self.prompts, "new_tokens": self.options.new_tokens}
        made: dict[str, dict] = {}
        texts: dict[str, list[list[int]]] = {}
        for name, method in SERVED.items():
            head = self.head(name)
            if name == "eagle1":  # vLLM lets it draft every token of the target's
                head.ids = torch.arange(target.vocab_size)
            drafter = EagleDrafter(target, head, gamma)
            outputs = [generate(target, ids, drafter, ask["new_tokens"]) for ids in self.prompts]
            texts[method] = [output.tokens.tolist() for output in outputs]
            steps = [step for output in outputs for step in output.steps if len(step.tree)]
            ours = as_counters([(len(step.tree), len(step.path)) for step in steps])
            made[method] = {"ours": ours | rates(ours)}
            export(self.options.work / f"served-{method}", head, target, target.dtype)
        del self.model, target, head, drafter  # room for the engine's own copy
        for method in SERVED.values():
            folder = str(self.options.work / f"served-{method}")
            how = {"method": method, "model": folder, "num_speculative_tokens": gamma}
            load = {"target": str(smollm2_folder()), "slots": len(ask["prompts"])}
            load |= {"dtype": self.options.dtype, "speculative": how}
            log = self.options.work / f"vllm-{method}.log"
            with Worker([VLLM, HERE / "engine_vllm.py"], log) as worker:
                try:
                    made[method]["version"] = worker.ask(load)["version"]
                    answer = worker.ask(ask)
                except Refused as error:
                    made[method]["refused"] = str(error)
                    continue
            theirs = answer["counters"]
            same = sum(map(list.__eq__, texts[method], answer["tokens"]))
            made[method] |= {
                "vllm": theirs | rates(theirs),
                "same": same,
                "texts": len(texts[method]),
            }
        return made


def rates(counters: dict) -> dict:
    """Of counters as vLLM prints them: rounds, and the share of them in which each position was
    accepted, with its standard error.
    """
    read = in_our_terms(counters, 0)
    rounds = counters["vllm:spec_decode_num_drafts"]
    errors = [(rate * (1 - rate) / rounds) ** 0.5 for rate in read["rates"]]
    return {"rounds": rounds, "tau": read["tau"], "rates": read["rates"], "errors": errors}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eagle_smollm2")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all")
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--gamma", type=int, default=3)
    parser.add_argument("--texts", type=int, default=64, help="held-out ones, for the vocabulary")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--work", type=Path, default=cache_folder() / "eagle")
    parser.add_argument("--out", type=Path, default=Path("results/eagle-smollm2.json"))
    options = parser.parse_args(arguments)
    data = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    data = {name: part for name, part in data.items() if name not in results.STAMP}
    bench = Bench(options)
    what = "the EAGLE family beside SmolLM2: rates of acceptance, speed, and the same in vLLM"
    for part in options.parts or PARTS:
        data[part] = getattr(bench, part)()
        data.setdefault("dtype", {})[part] = options.dtype
        print(part, json.dumps(data[part]), flush=True)
        results.save(options.out, results.stamp(what, "python -m benchmarks.eagle_smollm2"), data)


if __name__ == "__main__":
    main()
