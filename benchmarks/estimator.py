"""Fit the estimator to published speedups, and test it on sources that the fit has not seen.

    python -m benchmarks run estimator        # seconds on any machine; the result is the same

The measurements are others' (`gpu_speedups` in results/published.json): chains of a dense model in
bfloat16 whose sizes, card, τ and speedup are known, and curves over the batch without τ, of which
only the shape counts. Nine parameters (`specdec_lite.simulation.estimate.Engine`) have priors of
known orders of magnitude; each source has a factor of its own for its engine. The test leaves out
one publication at a time, and uses an engine with factor 1.
"""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from specdec_lite.simulation.estimate import (
    FITTED,
    Engine,
    Estimate,
    Hardware,
    Network,
    calibrate,
    costs,
    estimate,
)

from .experiment import Run, experiment, rounded
from .published_rows import Row, curves, dense_rows, mixture_rows

PRIORS = {
    "reading": (0.82, 0.08),
    "arithmetic": (0.65, 0.15),
    "overlap": (2.0, 0.5),
    "per_layer": (25e-6, 0.5),
    "per_exchange": (25e-6, 0.5),
    "per_step": (0.6e-3, 0.6),
    "per_round": (1.0e-3, 0.6),
    "per_draft": (0.15e-3, 0.8),
    "per_row": (8e-6, 0.8),
}
"""Median and standard deviation of the logarithm, before any measurement is seen."""
ENGINES, HOSTS = 0.4, 0.3
"""Scale of the logarithms of a source's two factors: of its rounds, and of its plain steps."""
NOISE = 0.08
"""Standard deviation of the logarithm of a measurement around the model."""
MOST = 6
"""Most rows that a source can count for, since its rows are not independent."""


# The fit ------------------------------------------------------------------------------------------


STACKED = {
    Network: ("parameters", "cache_bytes", "layers"),
    Hardware: ("bandwidth", "throughput", "gpus"),
    Row: tuple(field.name for field in fields(Row)),
}
"""Fields that differ between dense rows."""


def stacked(parts: Sequence) -> Any:
    """Return numbers as an array [n], and rows, networks or cards as one with arrays as fields.

    The formulas then run once for all rows.
    """
    kind = type(parts[0])
    if kind is str:
        return list(parts)
    if kind not in STACKED:
        return np.array([float(part) for part in parts])
    return kind(**{name: stacked([getattr(p, name) for p in parts]) for name in STACKED[kind]})


def seconds(rows: Row, engine: Engine) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds of a round and of a plain step [n] of stacked rows."""
    draft, verify, overhead, plain, rest = costs(*rows.sizes, *rows.load, engine)
    return draft + verify + overhead, plain + rest


def robust(errors: np.ndarray) -> np.ndarray:
    """Return errors whose squares grow like the errors themselves beyond one unit."""
    return np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))


def weights(sources: Sequence[str]) -> np.ndarray:
    """Return the weight of each row's error [n]: a source counts like MOST rows at most."""
    return np.sqrt([min(1, MOST / sources.count(source)) for source in sources])


def fit(rows: Sequence[Row], lines: Sequence[Sequence[Row]]) -> tuple[Engine, dict[str, float]]:
    """Return the engine with factor 1, and each source's own factor."""
    points = [row for line in lines for row in line]
    names = sorted({row.source for row in [*rows, *points]})
    tables = [stacked(part) for part in (rows, points) if part]
    places = [np.array([names.index(source) for source in table.source]) for table in tables]
    weight = [weights(table.source) for table in tables]
    first = tables[0]
    known = ~np.isnan(first.plain)
    curve = np.log(tables[-1].measured).reshape(-1, 4) if points else None
    center = np.log([median for median, _ in PRIORS.values()])
    scale = np.array([deviation for _, deviation in PRIORS.values()])
    size = len(center)

    def engine(values: np.ndarray, place: np.ndarray) -> Engine:
        factor, host = np.exp(values[size:]).reshape(2, -1)[:, place]
        parameters = dict(zip(PRIORS, np.exp(values[:size])))
        # A source's plain steps have a factor of their own, with which its rounds share the host.
        parameters["per_step"] = parameters["per_step"] * host
        return Engine(**parameters, factor=factor)

    def residuals(values: np.ndarray) -> np.ndarray:
        rounds, steps = seconds(first, engine(values, places[0]))
        errors = [
            weight[0] * np.log(first.tau * steps / rounds / first.measured),
            (weight[0] * -np.log(first.plain * steps))[known],
        ]
        if points:
            rounds, steps = seconds(tables[1], engine(values, places[1]))
            shape = np.log(steps / rounds).reshape(-1, 4) - curve
            errors.append(weight[1].reshape(-1, 4)[:, 1:] * (shape[:, 1:] - shape[:, :1]))
        prior = (values[:size] - center) / scale
        own, host = values[size:].reshape(2, -1)
        return np.concatenate(
            [
                robust(np.concatenate([e.ravel() for e in errors]) / NOISE),
                prior,
                robust(own / ENGINES),
                host / HOSTS,
            ]
        )

    found = least_squares(residuals, np.concatenate([center, np.zeros(2 * len(names))])).x
    parameters = dict(zip(PRIORS, map(float, np.exp(found[:size]))))
    factors = np.exp(found[size : size + len(names)])
    return Engine(**parameters), dict(zip(names, map(float, factors)))


def fit_experts(engine: Engine, rows: Sequence[Row]) -> float:
    """Return the share of a mixture's further experts that its passes seem to read.

    The plain speeds and the speedups of all rows count; the dense parameters are given.
    """

    def residuals(share: np.ndarray) -> np.ndarray:
        which = replace(engine, experts=float(share[0]))
        found = [predict(row, which) for row in rows]
        return robust(
            np.array(
                [
                    w * math.log(x) / NOISE
                    for w, row, e in zip(weights([row.source for row in rows]), rows, found)
                    for x in (e.speedup / row.measured, row.plain * e.step)
                ]
            )
        )

    return float(least_squares(residuals, [0.4], bounds=(0, 1)).x[0])


# The test -----------------------------------------------------------------------------------------


def predict(row: Row, engine: Engine) -> Estimate:
    """Return the estimate of a row, τ given."""
    return estimate(*row.sizes, None, *row.load, tau=row.tau, engine=engine)


def about(row: Row) -> dict:
    """Return what the recording states of a published measurement."""
    names = ("source", "setting", "workload", "batch", "gamma", "tau", "measured")
    return {name: getattr(row, name) for name in names}


def best_case(row: Row) -> float:
    """Return the speedup by the datasheet alone: every pass as short as `Hardware.seconds` says."""
    hardware = replace(row.hardware, per_layer=25e-6)
    verify, plain = (
        hardware.seconds(row.target, row.batch, tokens, row.context)
        for tokens in (row.gamma + 1, 1)
    )
    drafting = row.gamma * hardware.seconds(row.draft, row.batch, 1, row.context)
    return row.tau * plain / (verify + drafting)


def by_one_round(rows: Sequence[Row], engine: Engine) -> dict[int, Estimate]:
    """Return the estimates of all but the first rows of a setting by an engine calibrated on those.

    The first rows are up to three texts of the first batch and γ; the cost of their round is the
    median. The keys are the rows' ids.
    """
    row = rows[0]
    first = [r for r in rows if (r.batch, r.gamma) == (row.batch, row.gamma)][:3]
    cost = float(np.median([r.tau / r.measured for r in first]))
    sizes = (*row.sizes, *row.load)
    own = calibrate(*sizes, tau=row.tau, speedup=row.tau / cost, engine=engine)
    return {id(row): predict(row, own) for row in rows if row not in first}


def held_out(publication: str) -> list[dict]:
    """Return the predictions of a publication's rows by a fit that has not seen it."""
    lines = [line for line in curves() if line[0].publication != publication]
    rows: dict[bool, list[Row]] = {True: [], False: []}
    for row in dense_rows():
        rows[row.publication == publication].append(row)
    engine, _ = fit(rows[False], lines)
    calibrated: dict[int, Estimate] = {}
    for setting in {row.setting: None for row in rows[True]}:
        calibrated |= by_one_round([r for r in rows[True] if r.setting == setting], engine)
    found = []
    for row in rows[True]:
        e, own = predict(row, engine), calibrated.get(id(row))
        band = {"held_out": e.speedup, "low": e.low, "high": e.high}
        names = {"calibrated": "speedup", "calibrated_low": "low", "calibrated_high": "high"}
        after = {name: own and getattr(own, part) for name, part in names.items()}
        found.append(about(row) | {"datasheet": best_case(row)} | band | after)
    return found


def shapes() -> list[dict]:
    """Return the predicted shape of each curve, by a fit without its publication."""
    engine, _ = fit(dense_rows(), [])
    found = []
    for line in curves():
        speedups = [predict(row, engine).speedup for row in line]
        names = ("source", "setting", "workload")
        found.append(
            {name: getattr(line[0], name) for name in names}
            | {
                "batches": [row.batch for row in line],
                "measured": [row.measured / line[0].measured for row in line],
                "held_out": [speedup / speedups[0] for speedup in speedups],
            }
        )
    return found


@experiment(
    "estimator",
    "the fit of the estimator to published speedups, and its test on sources left out",
    time="seconds",
)
def estimator(run: Run) -> dict:
    """Return the fit to all rows, and the test that leaves out one publication at a time."""

    def fitted() -> dict:
        engine, factors = fit(dense_rows(), curves())
        engine = replace(engine, experts=fit_experts(engine, mixture_rows()))
        mixtures = []  # by the engine that was fitted to them as well
        for row in mixture_rows():
            e = predict(row, engine)
            mixtures.append(about(row) | {"fitted": e.speedup, "low": e.low, "high": e.high})
        return {
            "engine": {name: getattr(engine, name) for name in (*PRIORS, "experts")},
            "factors": factors,
            "spread": FITTED.spread,
            "error": FITTED.error,
            "mixtures": mixtures,
        }

    tested = dict.fromkeys(row.publication for row in dense_rows())
    rows = run({"fit": fitted} | {p: partial(held_out, p) for p in tested} | {"shapes": shapes})
    found = [row for publication in tested for row in rows[publication]]
    return rounded({**rows["fit"], "rows": found, "shapes": rows["shapes"]})
