"""Measure T(k), the cost of a pass over k tokens, with this machine's bandwidth and throughput.

    python -m benchmarks.memory      # two minutes on two cores; writes results/memory-<machine>.json

The models are the shipped target and a larger, untrained one with random weights, of which only the
shape matters. Both are measured in float32 and bfloat16, on the GPU if there is one. If their
weights are packed, the unpacked models are measured too, in alternation. Chapter 2 draws the
recorded curves with the reader's own.
"""

import copy
from pathlib import Path

import torch

from specdec_lite import CausalLM, load_pair, timing
from specdec_lite.engine.linear import is_packed, pack, unpack
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.measure import stamps

from .command import parser_for, typed

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


def curves(device: str, budget: float) -> list[dict]:
    """Return one row per model, dtype and layout, with the quartiles of T(k) in seconds.

    "parameters" counts the weights in matrices.

    Args:
        device: PyTorch's name of the device.
        budget: Seconds per model.
    """
    rows = []
    # float16 on a GPU without bfloat16
    half = str(load_pair(device=device).target.dtype).removeprefix("torch.")
    for name in ("float32", half):
        models = {
            "shipped target": load_pair(device=device, dtype=name).target,
            "untrained": CausalLM(
                pack(Transformer(LARGER).to(device, getattr(torch, name)).requires_grad_(False))
            ),
        }
        for label, model in models.items():
            layouts = {is_packed(model.model): model, False: model}
            if len(layouts) == 2:
                layouts[False] = CausalLM(copy.deepcopy(model.model))
                unpack(layouts[False].model)
            text = torch.arange(1, CONTEXT + 1, device=model.device)
            times = timing.spreads(
                {
                    (packed, k): timing.pass_job(layouts[packed], text, k)
                    for packed in layouts
                    for k in KS
                },
                model.device,
                repeats=25,
                budget=budget,
            )
            rows += [
                {
                    "model": label,
                    "dtype": name,
                    "packed": packed,
                    "parameters": sum(w.numel() for w in model.model.parameters() if w.dim() == 2),
                    "seconds": {
                        str(k): [t.low, t.median, t.high] for k in KS for t in [times[packed, k]]
                    },
                }
                for packed in layouts
            ]
    return rows


if __name__ == "__main__":
    parser = parser_for("benchmarks.memory", __doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--budget", type=float, default=24.0, help="seconds for each of the four models"
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="default: results/memory-<machine>.json"
    )
    options = parser.parse_args()
    if options.out and options.out.is_dir():
        parser.error(f"--out {options.out}: must be a file")
    stamp = stamps.stamp("T(k), bandwidth and throughput", typed(parser), options.device)
    data = {
        "state": {"start": timing.machine_state()},
        "profile": timing.machine_profile(options.device),
        "context": CONTEXT,
        "models": curves(options.device, options.budget),
    }
    data["state"]["end"] = timing.machine_state()
    path = stamps.save(
        options.out or Path("results") / f"memory-{stamps.slug(stamp['machine'])}.json", stamp, data
    )
    for row in data["models"]:
        one = row["seconds"]["1"][1]
        print(
            f"{row['model']:15s} {row['dtype']:9s} {'packed' if row['packed'] else 'plain':6s} T(1)"
            f" {1e3 * one:6.2f} ms · T(k)/T(1):",
            "  ".join(f"{k} {t[1] / one:.2f}" for k, t in row["seconds"].items()),
        )
    print(f"written to {path}")
