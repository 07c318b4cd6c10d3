"""Provide what the recordings of heads for SmolLM2 share: target, chats, vLLM and a command.

A recording is a subclass of `Bench` with one method per part. The parts are recorded one by one.
`heads` decodes in alternating turns, and `engines` compares the engines.
"""

import argparse
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from specdec_lite import generate, load_smollm2
from specdec_lite.loading.smollm2 import cache_folder, smollm2_folder
from specdec_lite.loading.weights import FILE, SHIPPED
from specdec_lite.measure import stamps
from specdec_lite.speculation import Drafter
from specdec_lite.texts.smollm2_tasks import TASKS, chat
from specdec_lite.training.commands import changed_options

from .command import parser_for
from .engines import HERE, VLLM, EngineError, Worker, acceptance_of, count_rounds
from .heads import compare_decoding


class Bench:
    """The models and prompts of a recording, each loaded on first use.

    Attributes:
        name: Name of the recording.
        what: Description of the recording.
        parts: Names of the methods that measure.
        methods: vLLM's names of the methods to export.
    """

    name: str
    what: str
    parts: Sequence[str]
    methods: Sequence[str]
    """vLLM's names of the methods that `exported` writes."""

    def __init__(self, options: argparse.Namespace):
        self.options = options

    @cached_property
    def model(self):
        """SmolLM2 and its tokenizer."""
        return load_smollm2("cpu", self.options.dtype)

    @cached_property
    def prompts(self) -> list[list[int]]:
        """The shortest chats, alternating between kinds, as token ids."""
        _, tokenizer = self.model
        kinds = [[chat(tokenizer, task.text) for task in tasks] for tasks in TASKS.values()]
        turns = zip(*(sorted(kind, key=len) for kind in kinds))
        return [ids for turn in turns for ids in turn][: self.options.prompts]

    def alternate(self, drafters: dict[str, Drafter], temperatures: Sequence[float]) -> dict:
        """Return `heads.compare_decoding` on the prompts, by drafter and temperature.

        Args:
            drafters: Drafters by name.
            temperatures: Sampling temperatures.
        """
        options = self.options
        settings = (self.prompts, options.new_tokens, temperatures, options.turns)
        return compare_decoding(self.model[0], drafters, *settings)

    def exported(self, method: str, folder: Path) -> Drafter:
        """Write the files that vLLM's method loads, and return the same drafter of this library.

        Args:
            method: vLLM's name of the method.
            folder: Where the files are written.
        """
        raise NotImplementedError

    def served(self) -> dict:
        """Compare acceptance by position in vLLM and in this library on the same greedy prompts.

        Each rate is the share of all rounds in which a position was accepted.
        """
        ask = {"prompts": self.prompts, "new_tokens": self.options.new_tokens}
        folder = lambda method: self.options.work / f"served-{method}"
        results: dict[str, dict] = {}
        texts: dict[str, list[list[int]]] = {}
        for method in self.methods:
            drafter = self.exported(method, folder(method))
            outputs = [
                generate(self.model[0], ids, drafter, ask["new_tokens"]) for ids in self.prompts
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
            log = self.options.work / f"vllm-{method}.log"
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
    """Return rounds, τ, the acceptance rate of each position and its standard error.

    Args:
        counters: Counters as vLLM prints them.
    """
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
    """Return how a shipped head was trained, and the bytes of its file.

    Args:
        name: Name of the head.
    """
    report = json.loads((shipped_folder(name) / "report.json").read_text("utf-8"))
    values = {key: report[key] for key in ("command", "texts", "tokens", "steps") if key in report}
    if is_shipped(name):
        values["bytes"] = (shipped_folder(name) / FILE).stat().st_size
    return values | {"held_out": report["held_out"]}


def parser(bench: type[Bench], **usual) -> argparse.ArgumentParser:
    """Return the parser with the options of every such command.

    Args:
        bench: Recording to make.
        usual: Options of whole numbers with their defaults.
    """
    options = parser_for(f"benchmarks.{bench.name.replace('-', '_')}", bench.what)
    options.add_argument("parts", nargs="*", choices=[[], *bench.parts], help="default: all parts")
    for name, value in usual.items():
        options.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    options.add_argument("--dtype", default="float32")
    options.add_argument("--work", type=Path, default=cache_folder() / "eagle")
    options.add_argument("--out", type=Path, default=Path(f"results/{bench.name}.json"))
    return options


def record(
    bench: type[Bench], parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> None:
    """Measure the requested parts; the other parts remain as they are recorded.

    Args:
        bench: Recording to make.
        parser: Parser of the command line.
        arguments: Arguments; None uses those of this process.
    """
    options = parser.parse_args(arguments)
    data = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    data = {name: part for name, part in data.items() if name not in stamps.STAMP}
    names = [name for name in vars(options) if name not in ("parts", "work", "out")]
    own = changed_options(
        options, {name.replace("_", "-"): parser.get_default(name) for name in names}
    )
    bench = bench(options)
    for part in options.parts or bench.parts:
        data[part] = getattr(bench, part)()
        data.setdefault("dtype", {})[part] = options.dtype
        data.setdefault("commands", {})[part] = " ".join([parser.prog, part, *own])
        print(part, json.dumps(data[part]), flush=True)
        stamps.save(options.out, stamps.stamp(bench.what, parser.prog), data)
