"""Measure T(k), the cost of a pass of a model over k tokens, and the bytes that the pass reads."""

from collections.abc import Callable, Sequence

from specdec_lite import CausalLM, timing
from specdec_lite.engine.linear import is_packed

CONTEXT, KS = 128, (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)


def pass_rows(
    targets: dict[str, Callable[[str], CausalLM]],
    dtypes: Sequence[str],
    ks: Sequence[int],
    context: int,
    budget: float = 30.0,
) -> list[dict]:
    """Return one row per model and dtype, with the quartiles of T(k) in seconds.

    "parameters" counts the weights in matrices. "cache_bytes" are those of the context.
    """
    rows = []
    for name, load in targets.items():
        for dtype in dtypes:
            model = load(dtype)
            config = model.model.config
            parameters = sum(w.numel() for w in model.model.parameters() if w.dim() == 2)
            per_token = 2 * config.num_layers * config.num_kv_heads * config.head_size
            times = timing.pass_times(model, ks, context, repeats=25, budget=budget)
            rows.append(
                {
                    "model": name,
                    "dtype": dtype,
                    "packed": is_packed(model.model),
                    "parameters": parameters,
                    "weight_bytes": parameters * model.dtype.itemsize,
                    "cache_bytes": per_token * context * model.dtype.itemsize,
                    "seconds": {
                        str(k): [t.low, t.median, t.high] for k in ks for t in [times[1, k]]
                    },
                }
            )
    return rows
