"""Speedups that others measured on GPUs, beside what the book's formula makes of each source's own
figures (`gpu_speedups` and `medusa2024_table1` in results/published.json).

The formula is speedup = τ ÷ cost, where cost is what one round takes in units of a plainly decoded
token. (In the symbols of chapter 7 this is (1 + o₀)·τ ÷ (v + γc + o) with all costs in one number.)
A source that prints τ and a speedup for several texts gives the cost once, from its first text; the
cost of a round does not depend on the text, so the others are real forecasts.
"""

import statistics
from dataclasses import dataclass, replace

from specdec_book import recordings


@dataclass(frozen=True, slots=True)
class Forecast:
    """One measured speedup and its forecast.

    source: key of the entry in results/published.json.
    setting: model or method. workload: the text. batch: requests at a time; None if not stated.
    tau: tokens per target pass, bonus included.
    cost: time of a round ÷ time of a plainly decoded token.
    measured: speedup that the source printed, or the quotient of its two throughputs.
    first: speedup of the text that the cost was taken from; None if the source states the cost.
    """

    source: str
    setting: str
    workload: str
    batch: int | None
    tau: float
    cost: float
    measured: float
    first: float | None = None

    @property
    def predicted(self) -> float:
        return self.tau / self.cost

    @property
    def error(self) -> float:
        """Forecast ÷ measured − 1."""
        return self.predicted / self.measured - 1


def entry(name: str) -> dict:
    """Return one source of `gpu_speedups`."""
    return recordings.published("gpu_speedups")["entries"][name]


def records(name: str) -> list[dict]:
    """Return the rows of a source as dictionaries; each has a "speedup" where the row tells it."""
    found = entry(name)
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    for row in rows:
        if "plain tokens/s" in row:
            row["speedup"] = row["tokens/s"] / row["plain tokens/s"]
        elif "plain ms per token" in row:
            row["speedup"] = row["plain ms per token"] / row["ms per token"]
    return rows


# Forecasts ----------------------------------------------------------------------------------------


def stated_costs() -> list[Forecast]:
    """Return Medusa's table 1: it prints τ and the cost of a round, and measured the speedup."""
    name = "medusa2024_table1"
    return [
        Forecast(name, model, "MT-bench", 1, tau, cost, measured)
        for model, tau, cost, measured in recordings.published(name)["rows"]
    ]


def transferred_costs(name: str) -> list[Forecast]:
    """Take the cost of a round from a source's first text, and forecast its other texts."""
    costs: dict[tuple[str, int], tuple[float, float]] = {}
    forecasts = []
    for row in records(name):
        key = (row["setting"], row["batch"])
        if key not in costs:
            costs[key] = row["tau"] / row["speedup"], row["speedup"]
            continue
        cost, first = costs[key]
        about = (row[field] for field in ("setting", "workload", "batch", "tau"))
        forecasts.append(Forecast(name, *about, cost, row["speedup"], first))
    return forecasts


def without_tau(forecasts: list[Forecast]) -> tuple[list[Forecast], list[Forecast]]:
    """Return the forecasts whose cost is from another text, and as they would be without τ.

    Such a forecast repeats the first text's speedup: its τ is the first text's.
    """
    known = [each for each in forecasts if each.first]
    return known, [replace(each, tau=each.first * each.cost) for each in known]


# All measurements ---------------------------------------------------------------------------------


def all_forecasts() -> list[Forecast]:
    """Return every forecast with a cost of its own."""
    named = ("eagle3_table2", "angelslim_qwen3", "angelspec_hy3")
    return stated_costs() + [each for name in named for each in transferred_costs(name)]


def within(forecasts: list[Forecast], error: float) -> int:
    """Return how many forecasts miss by at most this much."""
    return sum(abs(forecast.error) <= error for forecast in forecasts)


def median_error(forecasts: list[Forecast]) -> float:
    """Return the median of the relative errors without their signs."""
    return statistics.median(abs(forecast.error) for forecast in forecasts)
