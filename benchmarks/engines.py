"""Compare this library with real engines on the same prompts and weights.

    make engines                     # installs vLLM and llama.cpp in .engines/ (3.6 GB), then runs this
    python -m benchmarks run engines
    python -m benchmarks run engines --folders smollm2:medusa=DIR    # add a head that was exported

The engines are transformers, vLLM and llama.cpp. All decode greedily in float32 with one thread.
Within an engine the methods alternate in paired turns, over which a speedup has its interval. Seconds
include the prefill, as an engine's caller sees them. Wall-clock time and processor time are both
recorded; other jobs on the machine lengthen processor time far less. A part is one model in one
engine. `make test` does not
run the engines; it checks how recorded answers are processed.
"""

import copy
import json
import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch
from transformers.utils import logging

from specdec_lite import CausalLM, load_pair, load_smollm2, timing
from specdec_lite.batch import generate_batch
from specdec_lite.diagnosis.metrics import explain
from specdec_lite.drafters import EagleDrafter, ModelDrafter, PromptLookupDrafter, SuffixDrafter
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.loading.smollm2 import GGUF, smollm2_folder
from specdec_lite.measure.intervals import ratio
from specdec_lite.texts.corpus import evaluation_prompts
from specdec_lite.texts.smollm2_tasks import TASKS, chat
from specdec_lite.training.export import export

from .engine_load import load_curve
from .experiment import Run, Worker, experiment
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
    "NUMBA_NUM_THREADS": "1",  # its idle threads spin and use processor time
}
SUFFIX = 16
"""Most tokens per draft. Engines do not reuse other requests, because turns repeat the prompts."""
LOOKUP = {"prompt_lookup_max": 4, "prompt_lookup_min": 2}
Decode = Callable[[list[list[int]]], dict]
"""Function from a batch of prompts to {"tokens", "seconds", "processor", "counters"}."""


class EngineError(Exception):
    """An engine cannot run a job; the message is the engine's own."""


class Engine(Worker):
    """An engine in a process of its own."""

    def ask(self, job: dict) -> dict:
        """Send one job and return the answer."""
        answer = super().ask(job) or {"refused": "the process ended"}
        if "refused" in answer:
            raise EngineError(answer["refused"])
        return answer


def started(command: Sequence[str | Path], log: Path) -> Engine:
    """Start an engine; what it prints goes to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    return Engine(command, stderr=log.open("w"), env=os.environ | ENVIRONMENT)


# Decoders -----------------------------------------------------------------------------------------


def run_timed(job: Callable[[], list[list[int]]]) -> dict:
    """Run a job and measure its wall-clock and processor seconds."""
    began, used = perf_counter(), process_time()
    tokens = job()
    return {"tokens": tokens, "seconds": perf_counter() - began, "processor": process_time() - used}


def ours(target: CausalLM, drafter, new_tokens: int) -> Decode:
    """Return this library's batched decoding."""

    def decode(prompts: list[list[int]]) -> dict:
        outputs = []

        def run() -> list[list[int]]:
            outputs.extend(generate_batch(target, prompts, drafter, new_tokens, stop_token_ids=()))
            return [output.tokens.tolist() for output in outputs]

        answer = run_timed(run)
        steps = [step for output in outputs for step in output.steps if len(step.tree)]
        lengths = [(len(step.tree), len(step.path)) for step in steps]
        return answer | {"counters": count_rounds(lengths)}

    return decode


def transformers(model: HuggingFace, assisted: bool, gamma: int | None, new_tokens: int) -> Decode:
    """Return transformers' decoding."""

    def decode(prompts: list[list[int]]) -> dict:
        bursts = []

        def run() -> list[list[int]]:
            try:
                tokens, counts = model.batch(prompts, new_tokens, assisted)
            except ValueError as error:
                raise EngineError(f"ValueError: {error}") from None
            bursts.extend(counts)
            return tokens

        answer = run_timed(run)
        left, lengths = new_tokens, []
        for count in bursts:
            lengths.append((min(gamma or count, left - 1), count - 1))
            left -= count
        if not assisted:
            counters = {}
        elif gamma:
            counters = count_rounds([pair for pair in lengths if pair[0]])
        else:
            counters = {"rounds": len(bursts), "emitted": new_tokens}
        return answer | {"counters": counters}

    return decode


def count_rounds(lengths: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Count rounds under the names of vLLM's metrics page, so one converter reads both."""
    if not lengths:
        return {}
    name = "vllm:spec_decode_num_"
    longest = max(drafted for drafted, _ in lengths)
    whole = {
        f"{name}drafts": len(lengths),
        f"{name}draft_tokens": sum(drafted for drafted, _ in lengths),
        f"{name}accepted_tokens": sum(accepted for _, accepted in lengths),
    }
    position = f"{name}accepted_tokens_per_pos"
    return whole | {
        f'{position}{{position="{i}"}}': sum(accepted > i for _, accepted in lengths)
        for i in range(longest)
    }


# A part: one model in one engine ------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """A drafter that was exported for vLLM.

    Attributes:
        model: "pair" or "smollm2".
        method: vLLM's name of the method.
        path: Folder with the weights.
    """

    model: str
    method: str
    path: Path

    @classmethod
    def parse(cls, text: str) -> "Folder":
        """Parse MODEL:METHOD=DIR."""
        model, _, rest = text.partition(":")
        method, _, path = rest.partition("=")
        if model not in ("pair", "smollm2") or not method or not path:
            raise ValueError(f"--folders {text!r}: must be pair:METHOD=DIR or smollm2:METHOD=DIR")
        if not (Path(path) / "config.json").is_file():
            raise ValueError(f"--folders {text!r}: {path} contains no config.json")
        return cls(model, method, Path(path).resolve())

    def __str__(self) -> str:
        return f"{self.model}:{self.method}"


@dataclass(frozen=True)
class Plan:
    """What is decoded.

    Attributes:
        prompts: Prompts as token ids.
        new_tokens: New tokens per prompt.
        gamma: Draft length.
        batches: Batch sizes.
        turns: Turns of each method per batch size.
        least: Prompts per turn at the smallest batch size.
    """

    prompts: list[list[int]]
    new_tokens: int
    gamma: int
    batches: Sequence[int]
    turns: int
    least: int


def measure(decoders: dict[str, Decode], plan: Plan) -> dict[str, dict]:
    """Time methods that alternate in random order."""
    order = np.random.default_rng(0)
    results: dict[str, dict] = {
        name: {"seconds": {}, "processor": {}, "refused": {}} for name in decoders
    }
    for name in decoders:  # warm up
        decoders[name](plan.prompts[:1])
    for turn in range(plan.turns):
        for batch in plan.batches:
            rows = plan.prompts[: max(batch, plan.least)]
            for name in order.permutation([*decoders]):
                one = results[name]
                try:
                    parts = [rows[at : at + batch] for at in range(0, len(rows), batch)]
                    answers = [decoders[name](part) for part in parts]
                except EngineError as error:
                    one["refused"][str(batch)] = str(error)
                    continue
                for clock in ("seconds", "processor"):
                    spent = sum(answer[clock] for answer in answers)
                    one[clock].setdefault(str(batch), []).append(spent)
                one["tokens"] = [row for answer in answers for row in answer["tokens"]]
                one["counters"] = add_counters([answer["counters"] for answer in answers])
    return results


def add_counters(counters: Sequence[dict]) -> dict:
    """Add the counters of several jobs by name."""
    names = dict.fromkeys(name for one in counters for name in one)
    return {name: sum(one.get(name, 0) for one in counters) for name in names}


def entry(result: dict, plain: dict, texts: list[list[int]], gap: Callable, least: int) -> dict:
    """Return a method's entry in the recording."""
    new_tokens = len(result["tokens"][0])
    counts = {batch: new_tokens * max(int(batch), least) for batch in result["seconds"]}
    values = {
        "tokens_per_second": {
            clock: {
                batch: counts[batch] / statistics.median(spent)
                for batch, spent in result[clock].items()
            }
            for clock in ("seconds", "processor")
        },
        "texts": len(result["tokens"]),
        "differences": differences(result["tokens"], texts, gap),
        "refused": result["refused"],
        "printed": result["counters"],
    }
    if result is not plain:
        values["speedup"] = {
            batch: ratio([[each] for each in plain["processor"][batch]], [[each] for each in spent])
            for batch, spent in result["processor"].items()
        }
    return values | acceptance_of(result["counters"], sum(map(len, result["tokens"])))


def acceptance_of(counters: dict, tokens: int) -> dict:
    """Return τ, α and accepted ÷ drafted, as far as an engine's counters determine them."""
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
    """List where texts differ from plain texts: {"prompt", "place", "gap"} for each."""
    rows = []
    for row, (a, b) in enumerate(zip(texts, plain)):
        position = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)
        if position is not None:
            rows.append({"prompt": row, "place": position, "gap": gap(row, position)})
    return rows


@torch.inference_mode()
def top_gap(target: CausalLM, prompts, texts, row: int, position: int) -> float:
    """Return the gap between the two largest logits at a position of a text."""
    ids = torch.tensor([*prompts[row], *texts[row][:position]])[None]
    logits = target.score(ids, target.new_cache(), last=True).logits[0, -1]
    first, second = logits.topk(2).values.tolist()
    return first - second


def speculations(gamma: int, folders: dict[str, str]) -> dict[str, dict | None]:
    """Return vLLM's `speculative_config` for each method."""
    tokens = {"num_speculative_tokens": gamma}
    configs: dict[str, dict | None] = {
        method: {"method": method, "model": folder} | tokens for method, folder in folders.items()
    }
    suffix = {"num_speculative_tokens": SUFFIX, "suffix_decoding_max_cached_requests": 0}
    return configs | {
        "plain": None,
        "lookup": {"method": "ngram"} | LOOKUP | tokens,
        "suffix": {"method": "suffix"} | suffix,
    }


def switches(gamma: int, exported: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Return the code that switches on each method in each engine; … is a folder."""
    methods = ("draft_model", "eagle", "eagle3", *exported)
    vllm = speculations(gamma, dict.fromkeys(methods, "…"))
    constant = "num_assistant_tokens_schedule='constant', assistant_confidence_threshold=0.0"
    most = f"minTokens: {gamma}, maxTokens: {gamma}, minConfidence: 0"
    return {
        "vllm": {
            name: f"LLM(…, speculative_config={json.dumps(config, ensure_ascii=False)})"
            for name, config in vllm.items()
            if config is not None
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


# The models ---------------------------------------------------------------------------------------


@dataclass
class Bench:
    """Both models in all engines, each loaded on first use.

    The first fields are options of the experiment; `work` is the folder for exported heads, GGUF
    files and the engines' logs.
    """

    new_tokens: int
    gamma: int
    batches: Sequence[int]
    turns: int
    prompts: int
    folders: Sequence[Folder]
    work: Path
    versions: dict[str, str] = field(default_factory=lambda: {"torch": torch.__version__})
    refused: dict[str, str] = field(default_factory=dict)
    open: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def pair(self):
        return load_pair(device="cpu", dtype="float32")

    @cached_property
    def smollm2(self):
        return load_smollm2("cpu", "float32")

    def plan(self, model: str) -> Plan:
        """Return what is decoded with a model."""
        if model == "smollm2":
            _, tokenizer = self.smollm2
            chats = [[chat(tokenizer, task.text) for task in tasks] for tasks in TASKS.values()]
            short = [ids for row in zip(*(sorted(kind, key=len) for kind in chats)) for ids in row]
            rows = short[: self.prompts]
            return Plan(rows, self.new_tokens, 3, [1], self.turns, len(rows))
        texts = [row["text"] for rows in zip(*evaluation_prompts().values()) for row in rows]
        count = max(self.prompts, *self.batches)
        ids = [self.pair.tokenizer.encode(text) for text in texts[:count]]
        return Plan(ids, self.new_tokens, self.gamma, self.batches, self.turns, self.prompts)

    def target(self, model: str) -> CausalLM:
        """Return a target."""
        return self.pair.target if model == "pair" else self.smollm2[0]

    def eagle(self, model: str, version: int = 1, whole: bool = False) -> EagleDrafter:
        """Return an EAGLE drafter that drafts a chain."""
        target, gamma = self.target(model), self.plan(model).gamma
        drafter = EagleDrafter.from_pretrained(target, version, draft=gamma)
        if not whole:
            return drafter
        head = copy.deepcopy(drafter.head)
        head.ids = torch.arange(target.vocab_size)
        return EagleDrafter(target, head, gamma)

    def ours(self, model: str) -> dict[str, Decode]:
        """Return this library's methods."""
        plan = self.plan(model)
        drafters = {
            "plain": None,
            "eagle": self.eagle(model),
            "lookup": PromptLookupDrafter(plan.gamma, 4, 2),
            "suffix": SuffixDrafter(SUFFIX),
        }
        if model == "pair":
            drafters |= {
                "draft_model": ModelDrafter(self.pair.draft, plan.gamma),
                "eagle3": self.eagle(model, 3),
            }
        else:
            drafters["eagle, every token"] = self.eagle(model, whole=True)
        target = self.target(model)
        return {name: ours(target, drafter, plan.new_tokens) for name, drafter in drafters.items()}

    def transformers(self, model: str) -> dict[str, Decode]:
        """Return transformers' methods."""
        plan = self.plan(model)
        assisted = HuggingFace(SHIPPED, "float32", plan.gamma)
        lookup = HuggingFaceLookup(SHIPPED / "target", "float32", plan.gamma, None, 4)
        return {
            "plain": transformers(assisted, False, None, plan.new_tokens),
            "draft_model": transformers(assisted, True, plan.gamma, plan.new_tokens),
            "lookup": transformers(lookup, True, None, plan.new_tokens),
        }

    def speculations(self, model: str) -> dict[str, dict | None]:
        """Return vLLM's configurations by method, after exporting the heads for it."""
        folders = {"draft_model": str(SHIPPED / "draft")} if model == "pair" else {}
        for method, version in {"eagle": 1, "eagle3": 3}.items():
            if model == "pair" or version == 1:
                folder = self.work / f"{method}-{model}"
                head = self.eagle(model, version).head
                export(folder, head, self.target(model), torch.float32)
                folders[method] = str(folder)
        exported = [folder for folder in self.folders if folder.model == model]
        folders |= {folder.method: str(folder.path) for folder in exported}
        return speculations(self.plan(model).gamma, folders)

    def vllm(self, model: str, *methods: str) -> dict[str, Decode]:
        """Return vLLM's methods. Methods that vLLM rejects are recorded in `refused` and left out."""
        plan = self.plan(model)
        decoders = {}
        for name, config in self.speculations(model).items():
            if name not in methods if methods else name == "lookup":
                continue
            ask = {"new_tokens": plan.new_tokens}
            try:
                worker = self.vllm_worker(model, name, config)
                worker.ask(ask | {"prompts": plan.prompts[:1]})
            except EngineError as error:
                self.refused[f"vllm {model} {name}"] = str(error)
            else:
                decoders[name] = lambda rows, w=worker: w.ask(ask | {"prompts": rows})
        return decoders

    def vllm_worker(self, model: str, name: str, config: dict | None) -> Engine:
        """Start a process with vLLM."""
        folder = SHIPPED / "target" if model == "pair" else smollm2_folder()
        log = self.work / f"vllm-{model}-{name}.log"
        worker = self.open.enter_context(started([VLLM, HERE / "engine_vllm.py"], log))
        slots = max(self.plan(model).batches)
        job = {"target": str(folder), "dtype": "float32", "slots": slots, "speculative": config}
        self.versions["vllm"] = worker.ask(job)["version"]
        return worker

    def llama(self, model: str) -> dict[str, Decode]:
        """Return llama.cpp's methods."""
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
        worker = self.open.enter_context(started(command, self.work / f"llama-{model}.log"))
        answer = worker.ask(job | {"slots": max(plan.batches), "threads": 1})
        self.versions |= {"node-llama-cpp": answer["version"], "llama.cpp": answer["build"]}
        ask = {"new_tokens": plan.new_tokens, "gamma": plan.gamma}

        def decode(name: str, rows: list[list[int]]) -> dict:
            return worker.ask(ask | {"prompts": rows, "method": name})

        return {name: partial(decode, name) for name in methods}

    def load(self) -> dict:
        """Measure vLLM under load, plain and with the draft model, and compare the simulator."""
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
    "vllm smollm2 plain lookup": Bench.vllm,
    "llama.cpp smollm2": Bench.llama,
    "load": None,
}


def measure_part(bench: Bench, name: str) -> dict:
    """Measure one part."""
    state = {"start": timing.machine_state()}
    with bench.open:
        if name == "load":
            result = bench.load()
        else:
            _, model, *methods = name.split()
            result = measure(PARTS[name](bench, model, *methods), bench.plan(model))
    state["end"] = timing.machine_state()
    return {"found": result, "refused": bench.refused, "versions": bench.versions, "state": state}


def gather(bench: Bench, rows: dict[str, dict]) -> dict:
    """Combine the parts into the data of the recording."""
    data: dict = {"engines": {}, "refused": {}, "state": {}}
    for name, row in rows.items():
        data["refused"] |= row["refused"]
        data["state"][name] = row["state"]
        if name == "load":
            data["load"] = row["found"]
            continue
        engine, model, *_ = name.split()
        plan = bench.plan(model)
        texts = rows[f"ours {model}"]["found"]["plain"]["tokens"]
        gap = partial(top_gap, bench.target(model), plan.prompts, texts)
        plain = row["found"].get("plain")
        entries = {
            method: entry(result, plain or result, texts, gap, plan.least)
            for method, result in row["found"].items()
        }
        engines = data["engines"].setdefault(model, {})
        engines[engine] = entries | engines.get(engine, {})
    return data


# The experiment -----------------------------------------------------------------------------------


@experiment(
    "engines",
    "the same models in this library and in real engines, greedy, one thread each",
    time="30 minutes",
    quick={"new_tokens": 2, "gamma": 2, "batches": (1,), "turns": 1, "prompts": 1},
    unrelated=("cache",),
)
def engines(
    run: Run,
    *,
    new_tokens: int = 24,
    gamma: int = 4,
    batches: Sequence[int] = (1, 4, 16),
    turns: int = 6,
    prompts: int = 8,
    folders: Sequence[str] = (),
    cache: Path = Path(".work/engines"),
) -> dict:
    """Return the models in the engines, and one engine under load.

    Args:
        prompts: fewest prompts per turn
        folders: exported heads, each as MODEL:METHOD=DIR
        cache: folder of the engines' logs
    """
    exported = [Folder.parse(text) for text in folders]
    check_engines()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    cache.mkdir(parents=True, exist_ok=True)
    bench = partial(Bench, new_tokens, gamma, batches, turns, prompts, exported, cache)
    rows = run({name: lambda name=name: measure_part(bench(), name) for name in PARTS})
    for row in rows.values():
        run.stamp["versions"] |= row["versions"]
    return {
        "new_tokens": new_tokens,
        "gamma": gamma,
        "batches": list(batches),
        "turns": turns,
        "prompts": prompts,
        "folders": [*map(str, exported)],
        "threads": 1,
        **gather(bench(), rows),
        "switches": switches(gamma, [each.method for each in exported]),
    }


def check_engines() -> None:
    """Check that the engines are installed."""
    if not (VLLM.exists() and LLAMA.exists()):
        raise ValueError(".engines/vllm or .engines/llama is missing: run `make engines` first")
