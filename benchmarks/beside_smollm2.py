"""What recordings of heads beside SmolLM2 share: the target and its chats, the same drafts here and
in vLLM, and a command whose parts are recorded one by one.

What lives here: `Bench`, of which each recording is a subclass with one method a part. What does
not: decoding in turns (`heads`), and the engines' own comparison (`engines`).
"""

import argparse
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from specdec_lite import generate, load_smollm2, results
from specdec_lite.loading.smollm2 import cache_folder, smollm2_folder
from specdec_lite.loading.smollm2_tasks import TASKS, chat
from specdec_lite.loading.weights import FILE, SHIPPED
from specdec_lite.speculation import Drafter
from specdec_lite.training.loop import given

from .command import parser_for
from .engines import HERE, VLLM, Refused, Worker, as_counters, in_our_terms
from .heads import decoded


class Bench:
    """What the parts share, each loaded when it is first asked for."""

    name: str
    what: str
    parts: Sequence[str]
    methods: Sequence[str]
    """vLLM's names of what `exported` writes."""

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

    def in_turns(self, drafters: dict[str, Drafter], temperatures: Sequence[float]) -> dict:
        """`heads.decoded` on the prompts: by drafter and temperature."""
        options = self.options
        asked = (self.prompts, options.new_tokens, temperatures, options.turns)
        return decoded(self.model[0], drafters, *asked)

    def exported(self, method: str, folder: Path) -> Drafter:
        """Write what vLLM's method loads, and draft in the same way here."""
        raise NotImplementedError

    def served(self) -> dict:
        """Acceptance by position in vLLM and here, on the same greedy prompts: of all rounds, the
        share in which a position was accepted.
        """
        ask = {"prompts": self.prompts, "new_tokens": self.options.new_tokens}
        folder = lambda method: self.options.work / f"served-{method}"
        made: dict[str, dict] = {}
        texts: dict[str, list[list[int]]] = {}
        for method in self.methods:
            drafter = self.exported(method, folder(method))
            outputs = [
                generate(self.model[0], ids, drafter, ask["new_tokens"]) for ids in self.prompts
            ]
            texts[method] = [output.tokens.tolist() for output in outputs]
            steps = [step for output in outputs for step in output.steps if len(step.tree)]
            ours = as_counters([(len(step.tree), len(step.path)) for step in steps])
            made[method] = {"ours": ours | rates(ours)}
        del self.model, drafter, outputs, steps  # room for the engine's own copy
        for method in self.methods:
            how = {"method": method, "model": str(folder(method))}
            how["num_speculative_tokens"] = self.options.gamma
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


def shipped_folder(name: str) -> Path:
    """Where the head of this name for SmolLM2 lies, with its report."""
    return SHIPPED / name / "smollm2"


def is_shipped(name: str) -> bool:
    """Whether its weights are there."""
    return (shipped_folder(name) / FILE).exists()


def facts(name: str) -> dict:
    """How a shipped head was trained, and the bytes of its file."""
    report = json.loads((shipped_folder(name) / "report.json").read_text("utf-8"))
    found = {key: report[key] for key in ("command", "texts", "tokens", "steps") if key in report}
    if is_shipped(name):
        found["bytes"] = (shipped_folder(name) / FILE).stat().st_size
    return found | {"held_out": report["held_out"]}


def parser(bench: type[Bench], **usual) -> argparse.ArgumentParser:
    """The options that every such command has. usual: the numbers' own defaults."""
    made = parser_for(f"benchmarks.{bench.name.replace('-', '_')}", bench.what)
    made.add_argument("parts", nargs="*", choices=[[], *bench.parts], help="default: all")
    for name, value in usual.items():
        made.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    made.add_argument("--dtype", default="float32")
    made.add_argument("--work", type=Path, default=cache_folder() / "eagle")
    made.add_argument("--out", type=Path, default=Path(f"results/{bench.name}.json"))
    return made


def record(
    bench: type[Bench], made: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> None:
    """Measure the parts that are asked for; the others stay as they are recorded."""
    options = made.parse_args(arguments)
    data = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    data = {name: part for name, part in data.items() if name not in results.STAMP}
    names = [name for name in vars(options) if name not in ("parts", "work", "out")]
    own = given(options, {name.replace("_", "-"): made.get_default(name) for name in names})
    bench = bench(options)
    for part in options.parts or bench.parts:
        data[part] = getattr(bench, part)()
        data.setdefault("dtype", {})[part] = options.dtype
        data.setdefault("commands", {})[part] = " ".join([made.prog, part, *own])
        print(part, json.dumps(data[part]), flush=True)
        results.save(options.out, results.stamp(bench.what, made.prog), data)
