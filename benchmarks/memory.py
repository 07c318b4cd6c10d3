"""Measure T(k), the cost of a pass over k tokens, with this machine's bandwidth and throughput.

    python -m benchmarks run pass-times      # two minutes on two cores

The models are the shipped target and a larger, untrained one with random weights, of which only the
shape matters. Both are measured in float32 and bfloat16, on the GPU if there is one. If their
weights are packed, the unpacked models are measured too, in alternation. Chapter 2 draws the
recorded curves with the reader's own.
"""

import copy
from functools import partial

import torch

from specdec_lite import CausalLM, load_pair, timing
from specdec_lite.engine.linear import is_packed, pack, unpack
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.memory import half_precision

from .experiment import Run, experiment

MODELS = ("shipped target", "untrained")
CONTEXT, KS = 128, (1, 2, 3, 4, 6, 8, 16, 32, 64)
LARGER = TransformerConfig(
    vocab_size=2048,
    hidden_size=1024,
    intermediate_size=2816,
    num_layers=12,
    num_heads=16,
    num_kv_heads=16,
    head_size=64,
)


def load(label: str, device: str, dtype: str) -> CausalLM:
    """Return one of the two models."""
    if label == MODELS[0]:
        return load_pair(device=device, dtype=dtype).target
    network = Transformer(LARGER).to(device, getattr(torch, dtype)).requires_grad_(False)
    return CausalLM(pack(network))


def curves(label: str, device: str, dtype: str, budget: float) -> list[dict]:
    """Return one row per layout of a model, with the quartiles of T(k) in seconds.

    "parameters" counts the weights in matrices.
    """
    model = load(label, device, dtype)
    layouts = {is_packed(model.model): model, False: model}
    if len(layouts) == 2:
        layouts[False] = CausalLM(copy.deepcopy(model.model))
        unpack(layouts[False].model)
    text = torch.arange(1, CONTEXT + 1, device=model.device)
    jobs = {
        (packed, k): timing.pass_job(layouts[packed], text, k) for packed in layouts for k in KS
    }
    times = timing.spreads(jobs, model.device, repeats=25, budget=budget)
    return [
        {
            "model": label,
            "dtype": dtype,
            "packed": packed,
            "parameters": sum(w.numel() for w in model.model.parameters() if w.dim() == 2),
            "seconds": {str(k): [t.low, t.median, t.high] for k in KS for t in [times[packed, k]]},
        }
        for packed in layouts
    ]


@experiment("pass-times", "T(k), bandwidth and throughput", time="2 minutes", quick={"budget": 1.0})
def pass_times(
    run: Run, *, device: str = "cuda" if torch.cuda.is_available() else "cpu", budget: float = 24.0
) -> dict:
    """Return the curves of the models in their formats.

    Args:
        budget: seconds for each of the four models
    """
    rows = run(
        {
            f"{model} {dtype}": partial(curves, model, device, dtype, budget)
            for dtype in ("float32", half_precision(device))
            for model in MODELS
        }
    )
    return {
        "state": run.states(),
        "profile": timing.machine_profile(device),
        "context": CONTEXT,
        "models": [row for part in rows.values() for row in part],
    }
