"""Measure SmolLM2 in several number formats: T(k), and what speculation gains in each.

    python -m benchmarks run formats-smollm2 --prompts 2 --turns 1 --minutes 4    # coarse

The less a plain pass costs, the more every drafted token costs in comparison. All times begin after
the first round of a text: processor seconds on one thread, which a busy machine lengthens far less
than wall-clock seconds, and elapsed seconds on several. Record with the number of threads at which
plain decoding in int4 is fastest. Plain decoding, prompt lookup, the trained head and the automatic
choice between the last two alternate in random order on the same prompts, the first ones of the
scoreboard's six kinds. A part stops after its share of --minutes, always after complete turns, and
records how many turns it made.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic, perf_counter, process_time
from typing import Literal

import numpy as np
import torch

from specdec_lite import CausalLM, load_smollm2, stream
from specdec_lite.contract import Drafter
from specdec_lite.drafters import EagleDrafter, PromptLookupDrafter, automatic
from specdec_lite.drafters.self_drafts import quantize
from specdec_lite.engine.int4 import int4_bytes
from specdec_lite.loading.weights import fingerprint
from specdec_lite.measure.intervals import RESAMPLES, ratio
from specdec_lite.measure.timing import pass_jobs
from specdec_lite.texts.benchmark_prompts import KINDS

from .experiment import Run, experiment, packed_run
from .scoreboard_counts import encoded_prompts

FORMATS = ("float32", "bfloat16", "int8", "int4")
DECODED = ("bfloat16", "int4")
KS = (1, 2, 3, 4, 5, 6, 7, 8, 9)
CONTEXT = 128
GAMMA = {"bfloat16": 2, "int4": 2}
"""Draft length of the head by format."""
LOOKUP = {"bfloat16": 8, "int4": 7}
"""Draft length of the lookup; the product in int4 takes eight rows at a time."""


def clock() -> float:
    """Return processor seconds on one thread, which other programs lengthen little.

    With several threads these are elapsed seconds: processor seconds would add the threads up.
    """
    return process_time() if torch.get_num_threads() == 1 else perf_counter()


class TimedDrafter(Drafter):
    """A drafter that measures its drafting time, in seconds of `clock`.

    Args:
        drafter: Drafter to time.
    """

    def __init__(self, drafter: Drafter):
        self.drafter = drafter
        self.hidden_layers = drafter.hidden_layers
        self.seconds = 0.0

    def start(self, context):
        session = self.drafter.start(context)
        propose = session.propose

        def timed(context):
            began = clock()
            proposal = propose(context)
            self.seconds += clock() - began
            return proposal

        session.propose = timed
        return session


def decode(
    target: CausalLM,
    drafter: Drafter | None,
    prompt,
    new_tokens: int,
    temperature: float,
    seed: int,
) -> dict:
    """Decode one text; tokens, rounds and seconds are counted after its first round."""
    timed = None if drafter is None else TimedDrafter(drafter)
    steps = stream(target, prompt, timed, new_tokens, temperature, stop_token_ids=(), seed=seed)
    first = next(steps).tokens
    before = 0.0 if timed is None else timed.seconds
    began = clock()
    rounds = [step.tokens for step in steps]
    return {
        "seconds": clock() - began,
        "tokens": sum(map(len, rounds)),
        "rounds": len(rounds),
        "drafting": 0.0 if timed is None else timed.seconds - before,
        "text": [token for tokens in (first, *rounds) for token in tokens],
    }


def load(dtype: str) -> CausalLM:
    """Return SmolLM2 in a format; "int8" rounds its linear layers once more, one scale per row."""
    if dtype == "int8":
        return quantize(load_smollm2("cpu", "bfloat16")[0])
    return load_smollm2("cpu", dtype)[0]


def geometric_mean(seconds: dict[str, np.ndarray], plain: dict[str, np.ndarray]) -> dict:
    """Return the geometric mean over kinds of plain's seconds per token over a drafter's.

    Shapes: seconds [prompts, turns].
    """
    rng = np.random.default_rng(0)
    logs = np.zeros(RESAMPLES)
    value = 0.0
    for kind, each in seconds.items():
        rows = rng.integers(len(each), size=(RESAMPLES, len(each)))
        theirs, ours = plain[kind].sum(1), each.sum(1)
        logs += np.log(theirs[rows].sum(1) / ours[rows].sum(1)) / len(seconds)
        value += math.log(theirs.sum() / ours.sum()) / len(seconds)
    interval = np.exp(np.quantile(logs, (0.025, 0.975))).tolist()
    return {"value": math.exp(value), "interval": interval}


@dataclass(frozen=True)
class Bench:
    """What the parts share.

    Attributes:
        models: The models that decode, by format.
        prompts: The prompts of each kind as token ids.
        new_tokens: New tokens per prompt.
        turns: Paired turns at most.
        seconds: Time for one part.
        repeats: Passes per k.
    """

    models: dict[str, CausalLM]
    prompts: dict[str, list[list[int]]]
    new_tokens: int
    turns: int
    seconds: float
    repeats: int

    def passes(self) -> dict:
        """Measure T(k) of every format in alternation, and a step of the head in two of them."""
        models = {dtype: load(dtype) for dtype in FORMATS}
        text = torch.arange(1, CONTEXT + 1)
        jobs = {}
        for dtype, model in models.items():
            jobs |= {(dtype, k): job for k, job in pass_jobs(model, text, KS).items()}
        times: dict[tuple, list[float]] = {key: [] for key in jobs}
        rng = np.random.default_rng(0)
        for job in jobs.values():
            job()
        for _ in range(self.repeats):
            for number in rng.permutation(len(jobs)):
                key = list(jobs)[number]
                began = clock()
                jobs[key]()
                times[key].append(clock() - began)
        table = {}
        for dtype, model in models.items():
            quartiles = {
                str(k): np.quantile(times[dtype, k], (0.25, 0.5, 0.75)).tolist() for k in KS
            }
            table[dtype] = {"seconds": quartiles, "bytes": matrix_bytes(model)}
            if dtype in DECODED:
                table[dtype]["c"] = self.step(model) / quartiles["1"][1]
        return table

    def step(self, model: CausalLM) -> float:
        """Return the processor seconds per draft pass of the head while it decodes one text."""
        head = EagleDrafter.from_pretrained(model, 1, draft=GAMMA["bfloat16"])
        prompt = next(iter(self.prompts.values()))[0]
        run = decode(model, head, prompt, self.new_tokens, 0.0, 0)
        return run["drafting"] / max(1, run["rounds"]) / GAMMA["bfloat16"]

    def decoders(self, dtype: str, row: dict) -> dict[str, Drafter | None]:
        """Return the decoders; the automatic choice uses the costs of the measured passes."""
        target = self.models[dtype]
        passes = [median for _, median, _ in row["seconds"].values()]
        return {
            "plain": None,
            "lookup": PromptLookupDrafter(LOOKUP[dtype]),
            "head": EagleDrafter.from_pretrained(target, 1, draft=GAMMA[dtype]),
            "automatic": automatic(target, passes, row["c"]),
        }

    def decoded(self, dtype: str, temperature: float, passes: dict) -> dict:
        """Decode all prompts with all decoders, alternating."""
        rng = np.random.default_rng(0)
        ends = monotonic() + self.seconds
        target, drafters = self.models[dtype], self.decoders(dtype, passes[dtype])
        tables: dict[str, dict] = {
            kind: {name: [[] for _ in prompts] for name in drafters}
            for kind, prompts in self.prompts.items()
        }
        same: dict[str, list[bool]] = {name: [] for name in drafters}
        longest = 0.0
        for turn in range(self.turns):
            began = monotonic()
            if turn and began + longest > ends:
                break
            for kind, prompts in self.prompts.items():
                for number, prompt in enumerate(prompts):
                    runs = {}
                    for name in rng.permutation([*drafters]):
                        seed = 1000 * turn + number
                        run = decode(
                            target, drafters[name], prompt, self.new_tokens, temperature, seed
                        )
                        runs[name] = run
                        row = [run["seconds"], run["tokens"], run["rounds"]]
                        tables[kind][name][number].append(row)
                    for name, run in runs.items():
                        same[name].append(run["text"] == runs["plain"]["text"])
            longest = max(longest, monotonic() - began)
        return summary(tables, {name: sum(each) / len(each) for name, each in same.items()})


@experiment(
    "formats-smollm2",
    "SmolLM2's T(k) in four number formats, and speculation in two of them",
    time="40 minutes, quiet",
    quick={"prompts": 1, "kinds": ("edit",), "new_tokens": 6, "turns": 1, "repeats": 2},
    unrelated=("minutes",),
)
def formats(
    run: Run,
    *,
    prompts: int = 8,
    kinds: Sequence[Literal[*KINDS]] = KINDS,
    new_tokens: int = 64,
    turns: int = 6,
    minutes: float = 40.0,
    repeats: int = 25,
) -> dict:
    """Return the passes of all formats, and the decoding of DECODED by temperature.

    Args:
        prompts: prompts per kind
        turns: paired turns, at most
        minutes: time for all parts
        repeats: passes per k
    """
    model, tokenizer = load_smollm2("cpu", "bfloat16")
    encoded = encoded_prompts(tokenizer, kinds, prompts)
    rows = {kind: [ids.tolist() for ids in each] for kind, each in encoded.items()}
    settings = [(dtype, temperature) for dtype in DECODED for temperature in (0, 1)]
    models = {dtype: load(dtype) for dtype in DECODED}
    bench = Bench(models, rows, new_tokens, turns, 60 * minutes / len(settings), repeats)
    passes = run({"passes": bench.passes})["passes"]
    decoded = run(
        {
            f"{dtype}, T = {temperature}": partial(bench.decoded, dtype, temperature, passes)
            for dtype, temperature in settings
        }
    )
    return {"target": fingerprint(model), "passes": passes, "decoded": decoded}


def matrix_bytes(model: CausalLM) -> int:
    """Return the bytes of the matrices that one pass reads."""
    if in_int4 := int4_bytes(model.model):
        return in_int4
    layers = [m for m in model.model.modules() if hasattr(m, "rows") and hasattr(m, "scales")]
    if layers:
        return sum(layer.rows.nbytes + layer.scales.nbytes for layer in layers)
    return sum(w.nbytes for w in model.model.parameters() if w.dim() == 2)


def summary(tables: dict[str, dict], same: dict[str, float]) -> dict:
    """Return every decoder's speedup and τ by kind, its geometric mean over kinds, and its runs."""
    cells = {
        kind: {name: np.array(each, float) for name, each in row.items()}
        for kind, row in tables.items()
    }
    per_token = lambda runs: runs[..., 0] / np.maximum(1, runs[..., 1])
    names: Sequence[str] = list(next(iter(cells.values())))
    plain = {kind: per_token(row["plain"]) for kind, row in cells.items()}
    result = {}
    for name in names:
        seconds = {kind: per_token(row[name]) for kind, row in cells.items()}
        result[name] = {
            "turns": int(next(iter(seconds.values())).shape[1]),
            "same": same[name],
            "seconds_per_token": float(np.mean([each.mean() for each in seconds.values()])),
            "speedup": geometric_mean(seconds, plain),
            "kinds": {
                kind: {
                    "speedup": ratio(plain[kind], seconds[kind]),
                    "tau": ratio(row[name][..., 1], row[name][..., 2]),
                }
                for kind, row in cells.items()
            },
            "runs": {
                kind: [" ".join(packed_run(*run) for run in runs) for runs in row[name]]
                for kind, row in cells.items()
            },
        }
    return result
