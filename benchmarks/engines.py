"""Real engines beside ours, on the same prompts and the same weights: transformers, vLLM, llama.cpp.

    make engines                     # sets both up in .engines/ (3.6 GB), then runs this
    python -m benchmarks.engines     # writes results/engines-<machine>.json
    python -m benchmarks.engines --folders smollm2:medusa=DIR    # a head that was exported, too

Greedy, float32, one thread each; within an engine its methods take turns, and a speedup is the median
of paired turns. Seconds hold the prefill, as an engine's caller sees them, and are given twice: of the
wall, and of the processor, which a busy machine lengthens far less. A part (one model in one engine)
is kept in --work as soon as it is done, so the same command goes on where an interrupted one stopped.
No part of `make test`, which checks what becomes of recorded answers.
"""

import argparse
import copy
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch
from transformers.utils import logging

from specdec_lite import CausalLM, load_pair, load_smollm2, results, timing
from specdec_lite.drafters import EagleDrafter, ModelDrafter, PromptLookupDrafter, SuffixDrafter
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.loading.smollm2 import GGUF, smollm2_folder
from specdec_lite.loading.smollm2_tasks import TASKS, chat
from specdec_lite.serving.batch import generate_batch
from specdec_lite.serving.export import export
from specdec_lite.serving.metrics import explain

from .__main__ import Kept
from .command import parser_for, typed
from .engine_load import load_curve
from .hugging_face import HuggingFace, HuggingFaceLookup

VLLM = Path(".engines/vllm/bin/python")
LLAMA = Path(".engines/llama")
HERE = Path(__file__).parent
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",  # its idle threads spin, and count as time of the processor
}
SUFFIX = 16
"""Tokens of a draft, at most. An engine's memory of other requests is off: turns repeat the prompts."""
LOOKUP = {"prompt_lookup_max": 4, "prompt_lookup_min": 2}
Decode = Callable[[list[list[int]]], dict]
"""Decodes prompts together: {"tokens", "seconds", "processor", "counters"}."""


class Refused(Exception):
    """An engine will not do what it was asked; the text is its own."""


class Worker:
    """An engine in a process of its own, which answers a line of JSON with a line of JSON."""

    def __init__(self, command: Sequence[str | Path], log: Path):
        log.parent.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env=os.environ | ENVIRONMENT,
        )

    def ask(self, job: dict) -> dict:
        """Raises Refused with what the engine said."""
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"refused": "the process ended"}
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.wait()


# Decoders ------------------------------------------------------------------------------------------


def timed(job: Callable[[], list[list[int]]]) -> dict:
    began, used = perf_counter(), process_time()
    tokens = job()
    return {"tokens": tokens, "seconds": perf_counter() - began, "processor": process_time() - used}


def ours(target: CausalLM, drafter, new_tokens: int) -> Decode:
    def decode(prompts: list[list[int]]) -> dict:
        outputs = []

        def run() -> list[list[int]]:
            outputs.extend(generate_batch(target, prompts, drafter, new_tokens))
            return [output.tokens.tolist() for output in outputs]

        answer = timed(run)
        steps = [step for output in outputs for step in output.steps if len(step.tree)]
        lengths = [(len(step.tree), len(step.path)) for step in steps]
        return answer | {"counters": as_counters(lengths)}

    return decode


def transformers(model: HuggingFace, assisted: bool, gamma: int | None, new_tokens: int) -> Decode:
    """gamma: drafted tokens of every round; None where rounds differ, which it does not tell."""

    def decode(prompts: list[list[int]]) -> dict:
        bursts = []

        def run() -> list[list[int]]:
            try:
                tokens, heard = model.batch(prompts, new_tokens, assisted)
            except ValueError as error:
                raise Refused(f"ValueError: {error}") from None
            bursts.extend(heard)
            return tokens

        answer = timed(run)
        left, lengths = new_tokens, []
        for count in bursts:
            lengths.append((min(gamma or count, left - 1), count - 1))
            left -= count
        if not assisted:
            counters = {}
        elif gamma:
            counters = as_counters([pair for pair in lengths if pair[0]])
        else:
            counters = {"rounds": len(bursts), "emitted": new_tokens}
        return answer | {"counters": counters}

    return decode


def as_counters(lengths: Sequence[tuple[int, int]]) -> dict[str, int]:
    """(drafted, accepted) of every round, counted under the names of vLLM's page, so that one
    converter reads both.
    """
    if not lengths:
        return {}
    name = "vllm:spec_decode_num_"
    longest = max(drafted for drafted, _ in lengths)
    whole = {
        f"{name}drafts": len(lengths),
        f"{name}draft_tokens": sum(drafted for drafted, _ in lengths),
        f"{name}accepted_tokens": sum(accepted for _, accepted in lengths),
    }
    place = f"{name}accepted_tokens_per_pos"
    return whole | {
        f'{place}{{position="{i}"}}': sum(accepted > i for _, accepted in lengths)
        for i in range(longest)
    }


# A part: one model in one engine -------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """A drafter that was exported for vLLM. model: "pair" or "smollm2"; method: vLLM's name."""

    model: str
    method: str
    path: Path

    @classmethod
    def parse(cls, text: str) -> "Folder":
        """MODEL:METHOD=DIR. Raises ValueError where that is not what it is."""
        model, _, rest = text.partition(":")
        method, _, path = rest.partition("=")
        if model not in ("pair", "smollm2") or not method or not path:
            raise ValueError(f"{text!r}: must be pair:METHOD=DIR or smollm2:METHOD=DIR")
        if not (Path(path) / "config.json").is_file():
            raise ValueError(f"{text!r}: {path} holds no config.json")
        return cls(model, method, Path(path).resolve())

    def __str__(self) -> str:
        return f"{self.model}:{self.method}"


@dataclass(frozen=True)
class Plan:
    """What is decoded. least: prompts that a turn takes at the smallest batch."""

    prompts: list[list[int]]
    new_tokens: int
    gamma: int
    batches: Sequence[int]
    turns: int
    least: int = 3


def measure(decoders: dict[str, Decode], plan: Plan) -> dict[str, dict]:
    """{method: what it did}, the methods taking turns in an order that chance gives."""
    order = np.random.default_rng(0)
    found: dict[str, dict] = {
        name: {"seconds": {}, "processor": {}, "refused": {}} for name in decoders
    }
    for name in decoders:  # warms up
        decoders[name](plan.prompts[:1])
    for turn in range(plan.turns):
        for batch in plan.batches:
            rows = plan.prompts[: max(batch, plan.least)]
            for name in order.permutation([*decoders]):
                one = found[name]
                try:
                    parts = [rows[at : at + batch] for at in range(0, len(rows), batch)]
                    answers = [decoders[name](part) for part in parts]
                except Refused as error:
                    one["refused"][str(batch)] = str(error)
                    continue
                for clock in ("seconds", "processor"):
                    spent = sum(answer[clock] for answer in answers)
                    one[clock].setdefault(str(batch), []).append(spent)
                one["tokens"] = [row for answer in answers for row in answer["tokens"]]
                one["counters"] = together([answer["counters"] for answer in answers])
    return found


def together(counters: Sequence[dict]) -> dict:
    """Counts of several jobs, added up by name."""
    names = dict.fromkeys(name for one in counters for name in one)
    return {name: sum(one.get(name, 0) for one in counters) for name in names}


def entry(found: dict, plain: dict, texts: list[list[int]], gap: Callable, least: int = 3) -> dict:
    """What a chapter reads of a method.

    plain: what the same engine did without drafts. texts: our own plain ones. least: the plan's.
    gap: (prompt's place, place in the text) → top-2 gap of the target's logits there.
    """
    new_tokens = len(found["tokens"][0])
    counts = {batch: new_tokens * max(int(batch), least) for batch in found["seconds"]}
    made = {
        "tokens_per_second": {
            clock: {
                batch: counts[batch] / statistics.median(spent)
                for batch, spent in found[clock].items()
            }
            for clock in ("seconds", "processor")
        },
        "texts": len(found["tokens"]),
        "differences": differences(found["tokens"], texts, gap),
        "refused": found["refused"],
        "printed": found["counters"],
    }
    if found is not plain:
        made["speedup"] = {
            batch: paired(plain["processor"][batch], spent)
            for batch, spent in found["processor"].items()
        }
    return made | in_our_terms(found["counters"], sum(map(len, found["tokens"])))


def paired(plain: Sequence[float], drafted: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest of the ratios of paired turns."""
    ratios = [a / b for a, b in zip(plain, drafted)]
    return {"value": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}


def in_our_terms(counters: dict, tokens: int) -> dict:
    """τ, α and accepted ÷ drafted, as far as an engine's own counters tell them. Empty where nothing
    was drafted.
    """
    if not any(counters.values()):
        return {}
    if "rounds" in counters:
        return {"tau": counters["emitted"] / counters["rounds"]}
    if "refuted" in counters:
        timings = {
            "predicted_n": tokens,
            "draft_n": counters["validated"] + counters["refuted"],
            "draft_n_accepted": counters["used"],
        }
        reading = explain(json.dumps({"timings": timings}))
        return {"tau": reading.tau, "drafted_acceptance": reading.drafted_acceptance}
    reading = explain("\n".join(f"{name} {count:g}" for name, count in counters.items()))
    return {
        "tau": reading.tau,
        "alpha": reading.alpha,
        "drafted_acceptance": reading.drafted_acceptance,
        "rates": list(reading.rates),
    }


def differences(texts, plain, gap: Callable[[int, int], float]) -> list[dict]:
    """Where texts part from ours: {"prompt", "place", "gap"} of each that does."""
    found = []
    for row, (a, b) in enumerate(zip(texts, plain)):
        place = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)
        if place is not None:
            found.append({"prompt": row, "place": place, "gap": gap(row, place)})
    return found


@torch.inference_mode()
def top_gap(target: CausalLM, prompts, texts, row: int, place: int) -> float:
    """Between the two likeliest logits of the token at a place of a text."""
    ids = torch.tensor([*prompts[row], *texts[row][:place]])[None]
    logits = target.score(ids, target.new_cache(), last=True).logits[0, -1]
    first, second = logits.topk(2).values.tolist()
    return first - second


def speculations(gamma: int, folders: dict[str, str]) -> dict[str, dict | None]:
    """vLLM's `speculative_config` by the name of the method. folders: of what drafts."""
    tokens = {"num_speculative_tokens": gamma}
    made: dict[str, dict | None] = {
        method: {"method": method, "model": folder} | tokens for method, folder in folders.items()
    }
    suffix = {"num_speculative_tokens": SUFFIX, "suffix_decoding_max_cached_requests": 0}
    return made | {
        "plain": None,
        "lookup": {"method": "ngram"} | LOOKUP | tokens,
        "suffix": {"method": "suffix"} | suffix,
    }


def switches(gamma: int, exported: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """How each engine was told to draft, as one would type it; … stands for a folder. exported:
    vLLM's names of methods beside those that are always there.
    """
    methods = ("draft_model", "eagle", "eagle3", *exported)
    vllm = speculations(gamma, dict.fromkeys(methods, "…"))
    constant = "num_assistant_tokens_schedule='constant', assistant_confidence_threshold=0.0"
    most = f"minTokens: {gamma}, maxTokens: {gamma}, minConfidence: 0"
    return {
        "vllm": {
            name: f"LLM(…, speculative_config={json.dumps(how, ensure_ascii=False)})"
            for name, how in vllm.items()
            if how is not None
        },
        "llama.cpp": {
            "draft_model": f"new DraftSequenceTokenPredictor(sequence, {{{most}}})",
            "lookup": "new InputLookupTokenPredictor({patternLength: {min: 2, max: 4},"
            f" predictionLength: {{min: 1, max: {gamma}}}}})",
        },
        "transformers": {
            "draft_model": "generate(…, assistant_model=draft) after"
            f" draft.generation_config.update(num_assistant_tokens={gamma}, {constant})",
            "lookup": f"generate(…, prompt_lookup_num_tokens={gamma}, max_matching_ngram_size=4)",
        },
        "ours": {
            "draft_model": f"generate(target, ids, ModelDrafter(draft, {gamma}))",
            "lookup": f"generate(target, ids, PromptLookupDrafter({gamma}, 4, 2))",
            "suffix": f"generate(target, ids, SuffixDrafter({SUFFIX}))",
            "eagle": f"generate(target, ids, EagleDrafter.from_pretrained(target, draft={gamma}))",
        },
    }


# The models ----------------------------------------------------------------------------------------


class Bench:
    """Both models in all engines; each is loaded when it is first asked for.

    work: folder for exported heads, GGUF files and the engines' logs.
    """

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.work = options.work
        self.versions: dict[str, str] = {"torch": torch.__version__}
        self.refused: dict[str, str] = {}
        self.open = ExitStack()

    @cached_property
    def pair(self):
        return load_pair(device="cpu", dtype="float32")

    @cached_property
    def smollm2(self):
        return load_smollm2("cpu", "float32")

    def plan(self, model: str) -> Plan:
        chosen = self.options
        if model == "smollm2":
            _, tokenizer = self.smollm2
            chats = [[chat(tokenizer, task.text) for task in tasks] for tasks in TASKS.values()]
            short = [min(kind, key=len) for kind in chats][: chosen.chats]
            return Plan(short, chosen.new_tokens, 3, [1], 1, len(short))
        texts = [row["text"] for rows in zip(*evaluation_prompts().values()) for row in rows]
        ids = [self.pair.tokenizer.encode(text) for text in texts[: max(chosen.batches)]]
        return Plan(ids, chosen.new_tokens, chosen.gamma, chosen.batches, chosen.turns)

    def target(self, model: str) -> CausalLM:
        return self.pair.target if model == "pair" else self.smollm2[0]

    def eagle(self, model: str, version: int = 1, whole: bool = False) -> EagleDrafter:
        """A chain. whole: may draft every token of the target's, not only the frequent ones."""
        target, gamma = self.target(model), self.plan(model).gamma
        made = EagleDrafter.from_pretrained(target, version, draft=gamma)
        if not whole:
            return made
        head = copy.deepcopy(made.head)
        head.ids = torch.arange(target.vocab_size)
        return EagleDrafter(target, head, gamma)

    def ours(self, model: str) -> dict[str, Decode]:
        plan = self.plan(model)
        drafters = {"plain": None, "eagle": self.eagle(model)}
        if model == "pair":
            drafters |= {
                "lookup": PromptLookupDrafter(plan.gamma, 4, 2),
                "suffix": SuffixDrafter(SUFFIX),
                "draft_model": ModelDrafter(self.pair.draft, plan.gamma),
                "eagle3": self.eagle(model, 3),
            }
        else:
            drafters["eagle, every token"] = self.eagle(model, whole=True)
        target = self.target(model)
        return {name: ours(target, drafter, plan.new_tokens) for name, drafter in drafters.items()}

    def transformers(self, model: str) -> dict[str, Decode]:
        plan = self.plan(model)
        assisted = HuggingFace(SHIPPED, "float32", plan.gamma)
        lookup = HuggingFaceLookup(SHIPPED / "target", "float32", plan.gamma, None, 4)
        return {
            "plain": transformers(assisted, False, None, plan.new_tokens),
            "draft_model": transformers(assisted, True, plan.gamma, plan.new_tokens),
            "lookup": transformers(lookup, True, None, plan.new_tokens),
        }

    def speculations(self, model: str) -> dict[str, dict | None]:
        """What vLLM is told, by the name of what it then does; the heads are exported for it."""
        folders = {"draft_model": str(SHIPPED / "draft")} if model == "pair" else {}
        for method, version in {"eagle": 1, "eagle3": 3}.items():
            if model == "pair" or version == 1:
                folder = self.work / f"{method}-{model}"
                head = self.eagle(model, version).head
                export(folder, head, self.target(model), torch.float32)
                folders[method] = str(folder)
        given = [folder for folder in self.options.folders if folder.model == model]
        folders |= {folder.method: str(folder.path) for folder in given}
        made = speculations(self.plan(model).gamma, folders)
        return made if model == "pair" else {name: made[name] for name in folders}

    def vllm(self, model: str, *methods: str) -> dict[str, Decode]:
        """methods: these alone; none: all but lookup, whose threads take time while others run.
        Methods that vLLM refuses are noted in `refused`, and left out.
        """
        plan = self.plan(model)
        decoders = {}
        for name, how in self.speculations(model).items():
            if name not in methods if methods else name == "lookup":
                continue
            ask = {"new_tokens": plan.new_tokens}
            try:
                worker = self.vllm_worker(model, name, how)
                worker.ask(ask | {"prompts": plan.prompts[:1]})
            except Refused as error:
                self.refused[f"vllm {model} {name}"] = str(error)
            else:
                decoders[name] = lambda rows, w=worker: w.ask(ask | {"prompts": rows})
        return decoders

    def vllm_worker(self, model: str, name: str, how: dict | None) -> Worker:
        folder = SHIPPED / "target" if model == "pair" else smollm2_folder()
        log = self.work / f"vllm-{model}-{name}.log"
        worker = self.open.enter_context(Worker([VLLM, HERE / "engine_vllm.py"], log))
        slots = max(self.plan(model).batches)
        job = {"target": str(folder), "dtype": "float32", "slots": slots, "speculative": how}
        self.versions["vllm"] = worker.ask(job)["version"]
        return worker

    def llama(self, model: str) -> dict[str, Decode]:
        plan = self.plan(model)
        methods = ["plain", "lookup"]
        job = {"target": str(smollm2_folder() / GGUF), "draft": None}
        if model == "pair":
            from .engine_llama import write_gguf

            files = {
                name: str(write_gguf(SHIPPED / name, self.work / f"{name}.gguf"))
                for name in ("target", "draft")
            }
            job = files
            methods.append("draft_model")
        command = ["node", HERE / "engine_llama.mjs", LLAMA]
        worker = self.open.enter_context(Worker(command, self.work / f"llama-{model}.log"))
        said = worker.ask(job | {"slots": max(plan.batches), "threads": 1})
        self.versions |= {"node-llama-cpp": said["version"], "llama.cpp": said["build"]}
        ask = {"new_tokens": plan.new_tokens, "gamma": plan.gamma}

        def decode(name: str, rows: list[list[int]]) -> dict:
            return worker.ask(ask | {"prompts": rows, "method": name})

        return {name: partial(decode, name) for name in methods}

    def load(self) -> dict:
        """vLLM under a load, beside the simulator: plain and with the small model."""
        how = self.speculations("pair")
        workers = {
            name: self.vllm_worker("pair", name, how[name]) for name in ("plain", "draft_model")
        }
        plan = self.plan("pair")
        prompts = [ids[-32:] for ids in plan.prompts]
        return load_curve(workers, prompts, plan.new_tokens, plan.gamma)


PARTS = {
    "vllm pair": Bench.vllm,
    "vllm pair plain lookup": Bench.vllm,
    "ours pair": Bench.ours,
    "llama.cpp pair": Bench.llama,
    "transformers pair": Bench.transformers,
    "ours smollm2": Bench.ours,
    "vllm smollm2": Bench.vllm,
    "llama.cpp smollm2": Bench.llama,
    "load": None,
}


def part(bench: Bench, name: str) -> dict:
    """{"found", "refused", "versions", "state"}."""
    state = {"start": timing.machine_state()}
    with bench.open:
        if name == "load":
            found = bench.load()
        else:
            _, model, *methods = name.split()
            found = measure(PARTS[name](bench, model, *methods), bench.plan(model))
    state["end"] = timing.machine_state()
    return {"found": found, "refused": bench.refused, "versions": bench.versions, "state": state}


def gathered(bench: Bench, rows: dict[str, dict]) -> dict:
    """The recording's data from the parts: {model: {engine: {method: entry}}} and the rest."""
    made: dict = {"engines": {}, "refused": {}, "state": {}}
    for name, row in rows.items():
        made["refused"] |= row["refused"]
        made["state"][name] = row["state"]
        if name == "load":
            made["load"] = row["found"]
            continue
        engine, model, *_ = name.split()
        plan = bench.plan(model)
        texts = rows[f"ours {model}"]["found"]["plain"]["tokens"]
        gap = partial(top_gap, bench.target(model), plan.prompts, texts)
        plain = row["found"].get("plain")
        entries = {
            method: entry(found, plain or found, texts, gap, plan.least)
            for method, found in row["found"].items()
        }
        engines = made["engines"].setdefault(model, {})
        engines[engine] = entries | engines.get(engine, {})
    return made


# The command line ----------------------------------------------------------------------------------


def command_line() -> argparse.ArgumentParser:
    parser = parser_for("benchmarks.engines", __doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--chats", type=int, default=6, help="prompts for SmolLM2")
    parser.add_argument("--folders", nargs="+", default=[], metavar="MODEL:METHOD=DIR")
    default = f"results/engines-{results.slug(results.machine_name())}.json"
    parser.add_argument("--out", type=Path, default=Path(default))
    parser.add_argument("--work", type=Path, default=Path(".work/engines"))
    return parser


def main(arguments: list[str] | None = None, make: Callable = Bench, run: Callable = part) -> Path:
    """The command line; returns the recording's path. make, run: what is measured, and how."""
    parser = command_line()
    options = parser.parse_args(arguments)
    numbers = (options.new_tokens, options.gamma, options.turns, options.chats, *options.batches)
    if min(numbers) < 1:
        parser.error("--new-tokens, --gamma, --turns, --chats and --batches: must be at least 1")
    try:
        options.folders = [Folder.parse(text) for text in options.folders]
    except ValueError as error:
        parser.error(f"--folders {error}")
    if run is part and not (VLLM.exists() and LLAMA.exists()):
        parser.error(".engines/vllm or .engines/llama is missing: run make engines first")
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    names = ("new_tokens", "gamma", "batches", "turns", "chats")
    asked = {name: getattr(options, name) for name in names}
    asked["folders"] = [*map(str, options.folders)]
    try:
        kept = Kept(
            options.work / f"{options.out.stem}.jsonl", asked | {"machine": results.machine_name()}
        )
    except ValueError as error:
        parser.error(str(error))
    for name in options.parts:
        if kept.find({"part": name}) is None:
            kept.add({"part": name} | run(make(options), name))
            print(f"done: {name}", flush=True)
    rows = {name: row for name in PARTS if (row := kept.find({"part": name}))}
    versions = {key: text for row in rows.values() for key, text in row["versions"].items()}
    stamp = results.stamp(
        "the same models in this library and in real engines, greedy, one thread each",
        typed(parser, arguments),
    )
    stamp["versions"] |= versions
    note = (
        "the machine was shared with other jobs, see state: tokens a second of the processor are"
        " what to read, and only ratios within one engine"
    )
    record = asked | {"threads": 1, "note": note} | gathered(make(options), rows)
    record["switches"] = switches(options.gamma, [each.method for each in options.folders])
    path = results.save(options.out, stamp, record)
    print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
