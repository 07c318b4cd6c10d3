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


def network(about: dict) -> Network:
    """Return the sizes of a timed shape, without the input embeddings, which no pass multiplies by."""
    shape = about["shape"]
    table = 0 if shape["tied"] else shape["vocab_size"] * shape["hidden_size"]
    cache = 2 * shape["num_layers"] * shape["num_kv_heads"] * shape["head_size"] * 2
    return Network(about["parameters"] - table, cache_bytes=cache, layers=shape["num_layers"])


def hardware(data: dict) -> Hardware:
    """Return the card with the bandwidth and throughput that it was measured to have."""
    card = data["steps"]["card"]
    return Hardware(card["read_bandwidth"], card["peak"]["flops"])


def pass_times(data: dict, draft: str = "head, 32k rows") -> PassTimes | None:
    """Return T(B, k) of the recorded target at the shortest context; None without passes or draft.

    A pass over more tokens that was recorded as faster gets the time of the slower one.
    """
    passes, drafts = (data["steps"].get(name, {}).get("rows", ()) for name in ("passes", "drafts"))
    context = min((row["context"] for row in passes), default=0)
    cells = {(r["batch"], r["k"]): r["seconds"] for r in passes if r["context"] == context}
    count = lambda k: sum(each == k for _, each in cells)
    # a run that ended within a k has it for some batches only
    tokens = tuple(sorted(k for k in {k for _, k in cells} if count(k) == count(1)))
    drafted = {
        row["batch"]: row["seconds"] / row["drafted"]
        for row in drafts
        if row["draft"] == draft and row["mode"] == "captured"
    }
    timed = sorted({batch for batch, _ in cells} & drafted.keys())
    batches = tuple(b for b in timed if all((b, k) in cells for k in tokens))
    if not tokens or batches[:1] != (1,):
        return None
    seconds = np.maximum.accumulate([[cells[b, k] for k in tokens] for b in batches], axis=1)
    rows = tuple(map(tuple, seconds.tolist()))
    return PassTimes(batches, tokens, rows, tuple(drafted[b] for b in batches))


def engine(data: dict) -> Engine:
    """Return the engine whose passes fit the recorded ones best, relative to `hardware`.

    The steps "passes" and, where there is one, "slices" determine PASSES; all else is `FITTED`.
    """
    card, found = hardware(data), []
    for name in ("passes", "slices"):
        about = data["steps"].get(name, {})
        for row in about.get("rows", ()):
            whole = network(about)
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


# The formula of a pass ------------------------------------------------------------------------------

OPERATIONS = 20
"""Operations of a layer, as the recorded timeline of one counts them; q and k norms add six."""
OTHERS = 4
"""Operations outside the layers: the embedding, the last norm and its cast, and the head."""


def speeds(data: dict) -> dict[str, float] | None:
    """Return a card's bandwidth, throughput, launch and shortest operation; None if not measured.

    The shortest operation is the mean of a layer's small ones where a timeline has them, otherwise
    one step of captured tiny operations.
    """
    found = data["steps"].get("card", {})
    if not {"read_bandwidth", "peak", "launches"} <= found.keys():
        return None
    rows = data["steps"].get("trace", {}).get("rows", ())
    layers = (r for r in rows if r["mode"].startswith("one layer") and r["lane"] == "GPU")
    small = [s for kind, _, s in next(layers, {"operations": ()})["operations"] if kind == "other"]
    return {
        "bandwidth": found["read_bandwidth"],
        "throughput": found["peak"]["flops"],
        "launch": found["launches"]["eager"],
        "least": sum(small) / len(small) if small else found["launches"]["captured"],
    }


def pass_seconds(
    shape: dict, batch: int, k: int, context: int, speeds: dict, launched: bool = False
) -> float:
    """Return the seconds of a pass in 16 bits, operation by operation.

    Each operation takes its bytes, its arithmetic, or the shortest time, whichever is longest; if the
    host launches them one by one, the pass takes at least all launches.
    """
    width, groups = shape["hidden_size"], shape["num_kv_heads"] * shape["head_size"]
    heads, wide = shape["num_heads"] * shape["head_size"], shape["intermediate_size"]
    matrices = width * (heads + 2 * groups), heads * width, 2 * wide * width, wide * width
    least = speeds["least"]

    def product(weights: int) -> float:
        arithmetic = 2 * weights * batch * k / speeds["throughput"]
        return max(least, 2 * weights / speeds["bandwidth"], arithmetic)

    operations = OPERATIONS + 6 * shape.get("qk_norm", False)
    attention = max(least, 4 * batch * context * groups / speeds["bandwidth"])
    layer = sum(map(product, matrices)) + attention + (operations - 5) * least
    total = shape["num_layers"] * layer + product(shape["vocab_size"] * width)
    launches = shape["num_layers"] * operations + OTHERS
    return max(total + (OTHERS - 1) * least, launched * launches * speeds["launch"])
