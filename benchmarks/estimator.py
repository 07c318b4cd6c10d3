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
from dataclasses import dataclass, replace
from functools import partial

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


def stack(parts: Sequence, kind: type) -> Network | Hardware:
    """Return networks or devices as one whose fields are arrays, so that formulas run once."""
    fields = {
        Network: ("parameters", "cache_bytes", "layers"),
        Hardware: ("bandwidth", "throughput", "gpus"),
    }
    return kind(
        **{name: np.array([float(getattr(p, name)) for p in parts]) for name in fields[kind]}
    )


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of dense models as columns of arrays [n]."""

    rows: Sequence[Row]
    target: Network
    draft: Network
    hardware: Hardware

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Table":
        columns = [
            stack([getattr(r, name) for r in rows], kind)
            for name, kind in (("target", Network), ("draft", Network), ("hardware", Hardware))
        ]
        return cls(rows, *columns)

    def column(self, name: str) -> np.ndarray:
        return np.array([float(getattr(row, name)) for row in self.rows])

    def costs(self, engine: Engine) -> tuple[np.ndarray, np.ndarray]:
        """Return (round, step), seconds of a round and of a plain step [n]."""
        draft, verify, overhead, plain, rest = costs(
            self.target,
            self.draft,
            self.hardware,
            self.column("gamma"),
            self.column("batch"),
            self.column("context"),
            engine,
        )
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
    tables = [Table.of(rows)] + ([Table.of(points)] if points else [])
    places = [np.array([names.index(row.source) for row in t.rows]) for t in tables]
    weight = [weights([row.source for row in t.rows]) for t in tables]
    tau, measured, plain = (tables[0].column(name) for name in ("tau", "measured", "plain"))
    known = ~np.isnan(plain)
    curve = np.log(tables[-1].column("measured")).reshape(-1, 4) if points else None
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
        rounds, steps = tables[0].costs(engine(values, places[0]))
        errors = [
            weight[0] * np.log(tau * steps / rounds / measured),
            (weight[0] * -np.log(plain * steps))[known],
        ]
        if points:
            rounds, steps = tables[1].costs(engine(values, places[1]))
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
    return estimate(
        row.target,
        row.draft,
        row.hardware,
        None,
        row.gamma,
        row.batch,
        row.context,
        tau=row.tau,
        engine=engine,
    )


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


def measured_round(rows: Sequence[Row], engine: Engine) -> tuple[Engine, list[Row]] | None:
    """Return an engine calibrated on the first batch and γ of these rows, and all other rows.

    The cost of the round is the median of its first three texts. None if there are no other rows.
    """
    first = [r for r in rows if (r.batch, r.gamma) == (rows[0].batch, rows[0].gamma)][:3]
    rest = [row for row in rows if row not in first]
    if not rest:
        return None
    row, cost = rows[0], float(np.median([r.tau / r.measured for r in first]))
    own = calibrate(
        row.target,
        row.draft,
        row.hardware,
        row.gamma,
        row.batch,
        row.context,
        tau=row.tau,
        speedup=row.tau / cost,
        engine=engine,
    )
    return own, rest


def held_out(publication: str) -> list[dict]:
    """Return the predictions of a publication's rows by a fit that has not seen it."""
    others = lambda rows: [row for row in rows if row.publication != publication]
    lines = [line for line in curves() if line[0].publication != publication]
    engine, _ = fit(others(dense_rows()), lines)
    rows = [row for row in dense_rows() if row.publication == publication]
    by_setting: dict[str, list[Row]] = {}
    for row in rows:
        by_setting.setdefault(row.setting, []).append(row)
    calibrated = {}
    for setting in by_setting.values():
        for own, rest in filter(None, [measured_round(setting, engine)]):
            calibrated |= {id(row): predict(row, own) for row in rest}
    found = []
    for row in rows:
        e, own = predict(row, engine), calibrated.get(id(row))
        found.append(
            {
                **about(row),
                "datasheet": best_case(row),
                "held_out": e.speedup,
                "low": e.low,
                "high": e.high,
                "calibrated": own and own.speedup,
                "calibrated_low": own and own.low,
                "calibrated_high": own and own.high,
            }
        )
    return found


def shapes() -> list[dict]:
    """Return the predicted shape of each curve, by a fit without its publication."""
    engine, _ = fit(dense_rows(), [])
    found = []
    for line in curves():
        first = predict(line[0], engine).speedup
        found.append(
            {
                "source": line[0].source,
                "setting": line[0].setting,
                "workload": line[0].workload,
                "batches": [row.batch for row in line],
                "measured": [row.measured / line[0].measured for row in line],
                "held_out": [predict(row, engine).speedup / first for row in line],
            }
        )
    return found


def mixtures(engine: Engine) -> list[dict]:
    """Return the predictions of the mixtures, by the engine that was fitted to them as well."""
    found = []
    for row in mixture_rows():
        e = predict(row, engine)
        found.append({**about(row), "fitted": e.speedup, "low": e.low, "high": e.high})
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
        return {
            "engine": {name: getattr(engine, name) for name in (*PRIORS, "experts")},
            "factors": factors,
            "spread": FITTED.spread,
            "error": FITTED.error,
            "mixtures": mixtures(engine),
        }

    tested = dict.fromkeys(row.publication for row in dense_rows())
    rows = run({"fit": fitted} | {p: partial(held_out, p) for p in tested} | {"shapes": shapes})
    found = [row for publication in tested for row in rows[publication]]
    return rounded({**rows["fit"], "rows": found, "shapes": rows["shapes"]})
