"""Published speedups with what the estimator needs: sizes, card, draft length, batch, context and τ.

The figures are in `gpu_speedups` of results/published.json. What a source does not state is assumed
here, in one place. The dense rows, and the fit to them, are in the recording `estimator`.
"""

import math
from dataclasses import dataclass, replace

from specdec_book.recordings import forecasts
from specdec_lite.simulation.estimate import Engine, Estimate, Hardware, Network, estimate
from specdec_lite.simulation.sizes import CARDS, DSPARK, EAGLE, EAGLE3, MODELS

MT_BENCH, OTHER = 400, 600
"""Tokens in the cache halfway through an answer; no source states them."""
MIXTURE = "Qwen3-30B-A3B"


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: where it stands, what ran, and the speedup; `plain` is steps per second."""

    source: str
    setting: str
    target: Network
    draft: Network
    hardware: Hardware
    gamma: int
    batch: int
    context: float
    tau: float
    measured: float
    plain: float

    def predict(self, engine: Engine) -> Estimate:
        """Return the estimate, τ given."""
        sizes = (self.target, self.draft, self.hardware)
        load = (self.gamma, self.batch, self.context)
        return estimate(*sizes, None, *load, tau=self.tau, engine=engine)


def row(source: str, record: dict, target: str, draft: Network, hardware: Hardware, **known) -> Row:
    """Return a measurement from a source's record; `known` has what the record does not."""
    record = {"context": OTHER} | record | known
    plain = math.nan
    if "plain ms per token" in record:
        plain = 1e3 / record["plain ms per token"] / record["batch"]
    elif "plain tokens/s" in record:
        plain = record["plain tokens/s"] / record["batch"]
    numbers = (record[name] for name in ("gamma", "batch", "context", "tau", "speedup"))
    return Row(source, record["setting"], MODELS[target], draft, hardware, *numbers, plain)


def mixture_rows() -> list[Row]:
    """Return the measurements of mixtures of experts; SpecBundle's cards are assumed."""
    found = []
    for source, card, known in (
        ("angelslim_qwen3", "H20", {"gamma": 2, "context": 500}),
        ("specbundle", "H200", {}),
    ):
        for r in forecasts.records(source):
            if r["setting"].split(",")[0].replace("-Coder", "") == MIXTURE:
                found.append(row(source, r, MIXTURE, EAGLE3[MIXTURE], CARDS[card], **known))
    return found


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
