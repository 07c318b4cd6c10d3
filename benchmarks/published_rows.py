"""Published speedups with the sizes that an estimate needs (`gpu_speedups` in published.json).

A row is used if it is a chain whose models, card, τ and speedup are known. A curve over the batch
without τ is used for its shape. What a source does not state is assumed here, in one place.
"""

import math
from dataclasses import dataclass, replace

from specdec_book import recordings
from specdec_book.recordings import forecasts
from specdec_lite.simulation.estimate import Hardware, Network
from specdec_lite.simulation.sizes import CARDS, DSPARK, EAGLE, EAGLE3, MODELS

CONTEXT = {"CNN/DailyMail": 1100, "InstructCoder": 800, "ShareGPT": 500, "GSM8K": 300}
"""Tokens in the cache halfway through an answer; no source states them."""
MT_BENCH, OTHER = 400, 600
BORROWED = {"EAGLE": 2.29, "EAGLE-3": 2.79}
"""τ of vllm_eagle_lengths for the same heads, texts and γ = 3; SGLang's rows print none."""
BUNDLE = {
    "Llama-3.1-8B": ("Llama-3.1-8B", 1),
    "Llama-3.3-70B": ("Llama-3-70B", 4),
    "Qwen3-30B-A3B": ("Qwen3-30B-A3B", 1),
    "Qwen3-Coder-30B-A3B": ("Qwen3-30B-A3B", 1),
}
"""Shapes and number of cards of SpecBundle's targets; the cards are assumed."""
SAME_AUTHORS = "SpecDecode-Bench"
"""Publication of the three sources that begin with specdecode_bench."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes:
        source: Key in `gpu_speedups`.
        setting: Model or method.
        workload: The text.
        target: Sizes of the target.
        draft: Sizes of the draft.
        hardware: The cards.
        gamma: Drafted tokens per round.
        batch: Requests at a time.
        context: Tokens in each cache.
        tau: Tokens per round; 1 in the rows of a curve.
        measured: Speedup.
        plain: Plain steps per second; NaN if not stated.
    """

    source: str
    setting: str
    workload: str
    target: Network
    draft: Network
    hardware: Hardware
    gamma: int
    batch: int
    context: float
    tau: float
    measured: float
    plain: float = math.nan

    @property
    def sizes(self) -> tuple[Network, Network, Hardware]:
        """Target, draft and cards, as the functions of the estimator take them."""
        return self.target, self.draft, self.hardware

    @property
    def load(self) -> tuple[int, int, float]:
        """γ, batch and context, in their order after the sizes."""
        return self.gamma, self.batch, self.context

    @property
    def publication(self) -> str:
        """What is left out together: a source, or several by the same authors."""
        return SAME_AUTHORS if self.source.startswith("specdecode_bench") else self.source


def row(source: str, record: dict, target: str, draft: Network, hardware: Hardware, **known) -> Row:
    """Return a measurement from a source's record; `known` has what the record does not."""
    record = {"workload": "not stated", "context": OTHER} | record | known
    plain = math.nan
    if "plain ms per token" in record:
        plain = 1e3 / record["plain ms per token"] / record["batch"]
    elif "plain tokens/s" in record:
        plain = record["plain tokens/s"] / record["batch"]
    names = ("gamma", "batch", "context", "tau", "speedup")
    about = record["setting"], record["workload"]
    numbers = (record[name] for name in names)
    return Row(source, *about, MODELS[target], draft, hardware, *numbers, plain)


def head(method: str, target: str) -> Network:
    """Return the head of "EAGLE" or "EAGLE-3" for a target."""
    return (EAGLE3 if method == "EAGLE-3" else EAGLE)[target]


def measurements() -> list[Row]:
    """Return every measurement that can be compared with an estimate."""
    records, found = forecasts.records, []
    for r in records("angelslim_qwen3"):
        target, known = r["setting"], {"gamma": 2, "context": 500}
        found.append(row("angelslim_qwen3", r, target, EAGLE3[target], CARDS["H20"], **known))
    for source in ("sglang_eagle3_batches", "vllm_eagle_lengths", "vllm_eagle_first"):
        for r in records(source):  # EAGLE heads of an 8B Llama on MT-bench
            r = {"gamma": 3, "tau": BORROWED[r["setting"]]} | r
            text = {"workload": "MT-bench", "context": MT_BENCH}
            draft = head(r["setting"], "Llama-3.1-8B")
            found.append(row(source, r, "Llama-3.1-8B", draft, CARDS["H100"], **text))
    for r in records("vllm_minicpm3"):
        draft = EAGLE3["MiniCPM3-4B"]
        found.append(row("vllm_minicpm3", r, "MiniCPM3-4B", draft, CARDS["RTX 4090"]))
    paths = recordings.published("trained_draft_pitfall")["paths"]
    for (_, speedup, accepted), batch in zip(paths, (1, 16)):
        r = {"setting": "draft model", "batch": batch, "speedup": speedup, "tau": 1 + 2 * accepted}
        draft = MODELS["Qwen2.5-0.5B"]
        found.append(row("trained_draft_pitfall", r, "Qwen2.5-7B", draft, CARDS["H100"], gamma=2))
    about = {"setting": "EAGLE-3", "workload": "GSM8K", "context": CONTEXT["GSM8K"], "gamma": 3}
    source, draft = "specdecode_bench_tree", EAGLE3["Qwen3-8B"]
    found.append(row(source, records(source)[0], "Qwen3-8B", draft, CARDS["H100"], **about))
    for r in records("specbundle"):
        target, gpus = BUNDLE[r["setting"].split(",")[0]]
        cards = replace(CARDS["H200"], gpus=gpus)
        found.append(row("specbundle", r, target, EAGLE3[target], cards))
    return found


def dense_rows() -> list[Row]:
    """Return the measurements of dense models."""
    return [each for each in measurements() if each.target.experts == 1]


def mixture_rows() -> list[Row]:
    """Return the measurements of mixtures of experts."""
    return [each for each in measurements() if each.target.experts > 1]


def curves() -> list[list[Row]]:
    """Return SpecDecode-Bench's speedups by batch, one list of rows per line of its figures.

    The draft model of its 70B target is not named, so those lines are left out.
    """
    lines: dict[tuple, list[Row]] = {}
    for source in ("specdecode_bench_vllm", "specdecode_bench_sglang"):
        for r in forecasts.records(source):
            target, method = r["setting"].split(", ")
            if method == "draft model" and target != "Qwen3-8B":
                continue
            draft = MODELS["Qwen3-0.6B"] if method == "draft model" else head(method, target)
            cards = replace(CARDS["H100"], gpus=4 if "70B" in target else 1)
            known = {"gamma": 3, "tau": 1.0, "context": CONTEXT[r["workload"]]}
            line = lines.setdefault((source, r["setting"], r["workload"]), [])
            line.append(row(source, r, target, draft, cards, **known))
    return list(lines.values())


def later_rows() -> list[Row]:
    """Return the measurements that came after the fit, and that no fit has seen."""
    small, large = "Apertus-1.5-8B", "Apertus-1.5-70B"
    four = replace(CARDS["GH200"], gpus=4)
    drafts = {"DSpark": DSPARK[small], "n-gram": Network(0.0), "draft model": MODELS[small]}
    found = []
    for source, target, card, context in (
        ("apertus_eagle", small, CARDS["GH200"], 900),
        ("apertus_load", small, CARDS["GH200"], 500),
        ("apertus_70b", large, four, 300),
        ("vllm_frspec", "Llama-3.1-8B", CARDS["A100"], MT_BENCH),
        ("trtllm_eagle3_70b", "Llama-3-70B", replace(CARDS["H200"], gpus=8), OTHER),
    ):
        for r in forecasts.records(source):
            long = r["workload"] == "long-spec-bench"
            usual = EAGLE[target] if source == "vllm_frspec" else EAGLE3.get(target, Network(0.0))
            draft = drafts.get(r["setting"], usual)
            found.append(row(source, r, target, draft, card, context=6000 if long else context))
    return found
