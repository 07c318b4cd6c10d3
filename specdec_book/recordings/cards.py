"""A GPU's recording as the estimator needs it: T(B, k), the card's speeds, and what passes reach.

Such a recording is made by `python -m specdec_lite gpu`. Its passes have random weights and no
engine around them, so `engine` fits the part of an engine that belongs to the card, and keeps the
overheads of published engines; `calibrate` replaces those by one measured round.
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares

from specdec_lite.simulation.estimate import FITTED, Engine, Hardware, Network
from specdec_lite.simulation.goodput import PassTimes

PASSES = ("reading", "arithmetic", "overlap", "per_layer")
"""Parameters of an engine that the times of passes alone determine."""
DOUBT = 3.0
"""Standard deviation of their logarithms around the fit to published speedups."""
NOISE = 0.02
"""Standard deviation of the logarithm of a pass's time."""


def step(data: dict, name: str) -> dict:
    """Return a finished step of a GPU's recording."""
    found = data["steps"].get(name)
    if found is None or "error" in found or "skipped" in found:
        why = "it is not in this recording" if found is None else found
        raise ValueError(f"name={name!r}: this step has no result: {why}")
    return found


def network(about: dict) -> Network:
    """Return the sizes of a timed shape, without the input embeddings, which no pass multiplies by."""
    shape = about["shape"]
    table = 0 if shape["tied"] else shape["vocab_size"] * shape["hidden_size"]
    cache = 2 * shape["num_layers"] * shape["num_kv_heads"] * shape["head_size"] * 2
    return Network(about["parameters"] - table, cache_bytes=cache, layers=shape["num_layers"])


def hardware(data: dict) -> Hardware:
    """Return the card with the bandwidth and throughput that it was measured to have."""
    found = step(data, "card")
    return Hardware(found["read_bandwidth"], found["peak"]["flops"])


def pass_times(data: dict, draft: str = "head, 32k rows", context: int | None = None) -> PassTimes:
    """Return T(B, k) of the recorded target; `context` is the shortest recorded one by default.

    A pass over more tokens that was recorded as faster gets the time of the slower one.
    """
    rows = step(data, "passes")["rows"]
    context = min(row["context"] for row in rows) if context is None else context
    cells = {(r["batch"], r["k"]): r["seconds"] for r in rows if r["context"] == context}
    tokens = tuple(sorted({k for _, k in cells}))
    drafted = {
        row["batch"]: row["seconds"] / row["drafted"]
        for row in step(data, "drafts")["rows"]
        if row["draft"] == draft and row["mode"] == "captured"
    }
    batches = tuple(
        batch
        for batch in sorted({b for b, _ in cells})
        if batch in drafted and all((batch, k) in cells for k in tokens)
    )
    if not batches:
        raise ValueError(
            f"draft={draft!r}, context={context}: no batch has every pass and this draft"
        )
    seconds = np.maximum.accumulate([[cells[b, k] for k in tokens] for b in batches], axis=1)
    return PassTimes(
        batches, tokens, tuple(map(tuple, seconds.tolist())), tuple(drafted[b] for b in batches)
    )


def engine(data: dict) -> Engine:
    """Return the engine whose passes fit the recorded ones best, relative to `hardware`.

    The steps "passes" and, where there is one, "slices" determine PASSES; all else is `FITTED`.
    """
    card, found = hardware(data), []
    for name in ("passes", "slices"):
        if name == "passes" or name in data["steps"]:
            about = step(data, name)
            whole = network(about)
            for row in about["rows"]:
                share = row.get("layers", whole.layers) / whole.layers
                head = about["shape"]["vocab_size"] * about["shape"]["hidden_size"]
                sizes = replace(
                    whole,
                    parameters=head + share * (whole.parameters - head),
                    cache_bytes=share * whole.cache_bytes,
                    layers=share * whole.layers,
                )
                found.append((sizes, row["batch"], row["k"], row["context"], row["seconds"]))
    start = np.log([getattr(FITTED, name) for name in PASSES])

    def residuals(values: np.ndarray) -> np.ndarray:
        which = replace(FITTED, **dict(zip(PASSES, map(float, np.exp(values)))))
        errors = [
            np.log(which.seconds(sizes, card, batch, tokens, context) / seconds)
            for sizes, batch, tokens, context, seconds in found
        ]
        return np.concatenate([np.array(errors) / NOISE, (values - start) / DOUBT])

    best = np.exp(least_squares(residuals, start, loss="soft_l1").x)
    return replace(FITTED, **dict(zip(PASSES, map(float, best))))
