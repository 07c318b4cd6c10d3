"""Provide what the experiments with heads for SmolLM2 share: target, chats and vLLM.

An experiment is a subclass of `Bench` with one method per part. `heads` decodes in alternating
turns, and `engines` compares the engines.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from specdec_lite import generate
from specdec_lite.loading.smollm2 import cache_folder, smollm2_folder
from specdec_lite.loading.weights import FILE, SHIPPED
from specdec_lite.speculation import Drafter
from specdec_lite.texts.smollm2_tasks import TASKS, chat

from .engines import HERE, VLLM, EngineError, Worker, acceptance_of, count_rounds
from .heads import compare_decoding
from .smollm2 import OnSmolLM2


class Bench(OnSmolLM2):
    """The models and prompts of an experiment, each loaded on first use.

    Attributes:
        steps: Names of the methods that measure: the parts.
        methods: vLLM's names of the methods that `exported` writes.
        sizes: Default of each option that is a whole number.
    """

    steps: ClassVar[Sequence[str]]
    methods: ClassVar[Sequence[str]]
    sizes: ClassVar[dict[str, int]]
    unrelated = ("cache",)

    @classmethod
    def add_options(cls, parser):
        for name, value in cls.sizes.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
        parser.add_argument("--dtype", default="float32")
        parser.add_argument("--cache", type=Path, default=cache_folder() / "eagle")

    def check(self):
        self.check_least(**dict.fromkeys(self.sizes, 1))

    def parts(self):
        return list(self.steps)

    def run(self, part):
        return {"data": getattr(self, part)(), "dtype": self.options.dtype, "command": self.command}

    def summarise(self, rows):
        data = {part: row["data"] for part, row in rows.items()}
        data["dtype"] = {part: row["dtype"] for part, row in rows.items()}
        data["commands"] = {part: row["command"] for part, row in rows.items()}
        return data

    def restore(self, data):
        about = lambda name, part: data.get(name, {}).get(part, "")
        return {
            part: {
                "data": data[part],
                "dtype": about("dtype", part),
                "command": about("commands", part),
            }
            for part in self.steps
            if part in data
        }

    @cached_property
    def prompts(self) -> list[list[int]]:
        """The shortest chats, alternating between kinds, as token ids."""
        _, tokenizer = self.model
        kinds = [[chat(tokenizer, task.text) for task in tasks] for tasks in TASKS.values()]
        turns = zip(*(sorted(kind, key=len) for kind in kinds))
        return [ids for turn in turns for ids in turn][: self.options.prompts]

    def alternate(self, drafters: dict[str, Drafter], temperatures: Sequence[float]) -> dict:
        """Return `heads.compare_decoding` on the prompts, by drafter and temperature."""
        options = self.options
        settings = (self.prompts, options.new_tokens, temperatures, options.turns)
        return compare_decoding(self.model[0], drafters, *settings)

    def exported(self, method: str, folder: Path) -> Drafter:
        """Write the files that vLLM's method loads, and return the same drafter of this library."""
        raise NotImplementedError

    def served(self) -> dict:
        """Compare acceptance by position in vLLM and in this library on the same greedy prompts.

        Each rate is the share of all rounds in which a position was accepted.
        """
        ask = {"prompts": self.prompts, "new_tokens": self.options.new_tokens}
        folder = lambda method: self.options.cache / f"served-{method}"
        results: dict[str, dict] = {}
        texts: dict[str, list[list[int]]] = {}
        for method in self.methods:
            drafter = self.exported(method, folder(method))
            outputs = [
                generate(self.model[0], ids, drafter, ask["new_tokens"], stop_token_ids=())
                for ids in self.prompts
            ]
            texts[method] = [output.tokens.tolist() for output in outputs]
            steps = [step for output in outputs for step in output.steps if len(step.tree)]
            ours = count_rounds([(len(step.tree), len(step.path)) for step in steps])
            results[method] = {"ours": ours | rates(ours)}
        del self.model, drafter, outputs, steps  # free memory for the engine's copy
        for method in self.methods:
            how = {"method": method, "model": str(folder(method))}
            how["num_speculative_tokens"] = self.options.gamma
            load = {"target": str(smollm2_folder()), "slots": len(ask["prompts"])}
            load |= {"dtype": self.options.dtype, "speculative": how}
            log = self.options.cache / f"vllm-{method}.log"
            with Worker([VLLM, HERE / "engine_vllm.py"], log) as worker:
                try:
                    results[method]["version"] = worker.ask(load)["version"]
                    answer = worker.ask(ask)
                except EngineError as error:
                    results[method]["refused"] = str(error)
                    continue
            theirs = answer["counters"]
            same = sum(map(list.__eq__, texts[method], answer["tokens"]))
            results[method] |= {
                "vllm": theirs | rates(theirs),
                "same": same,
                "texts": len(texts[method]),
            }
        return results


def rates(counters: dict) -> dict:
    """Return rounds, τ, the acceptance rate of each position and its standard error."""
    read = acceptance_of(counters, 0)
    rounds = counters["vllm:spec_decode_num_drafts"]
    errors = [(rate * (1 - rate) / rounds) ** 0.5 for rate in read["rates"]]
    return {"rounds": rounds, "tau": read["tau"], "rates": read["rates"], "errors": errors}


def shipped_folder(name: str) -> Path:
    """Return the folder of the shipped SmolLM2 head of this name, with its report."""
    return SHIPPED / name / "smollm2"


def is_shipped(name: str) -> bool:
    """Return whether the weights of the head of this name are available."""
    return (shipped_folder(name) / FILE).exists()


def facts(name: str) -> dict:
    """Return how a shipped head was trained, and the bytes of its file."""
    report = json.loads((shipped_folder(name) / "report.json").read_text("utf-8"))
    values = {key: report[key] for key in ("command", "texts", "tokens", "steps") if key in report}
    if is_shipped(name):
        values["bytes"] = (shipped_folder(name) / FILE).stat().st_size
    return values | {"held_out": report["held_out"]}
