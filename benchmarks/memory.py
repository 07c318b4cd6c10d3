"""T(k): what a pass over k tokens costs, on this machine, beside its bandwidth and throughput.

    python -m benchmarks.memory      # two minutes on two cores; writes results/memory-<machine>.json

The shipped target and an untrained, larger model (random weights: only its shape matters here), in
bf16 and float32, on the GPU where there is one; where their weights are packed, the same models
unpacked as well, in turns. Chapter 2 draws the recorded curves beside the reader's own.
"""

import copy
from pathlib import Path

import torch

from specdec_lite import CausalLM, load_pair, results, timing
from specdec_lite.engine.linear import is_packed, unpack
from specdec_lite.engine.transformer import Transformer, TransformerConfig

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
    """One row a model, format and layout: {"model", "dtype", "packed", "parameters" (in matrices),
    "seconds": {k: [low, median, high]}}; the quartiles of the repetitions.
    """
    rows = []
    half = str(load_pair(device=device).target.dtype).removeprefix(
        "torch."
    )  # float16 on a card without bfloat16
    for name in ("float32", half):
        models = {
            "shipped target": load_pair(device=device, dtype=name).target,
            "untrained": CausalLM(
                Transformer(LARGER).to(device, getattr(torch, name)).requires_grad_(False)
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
        "--out", type=Path, default=None, help="default results/memory-<machine>.json"
    )
    asked = parser.parse_args()
    if asked.out and asked.out.is_dir():
        parser.error(f"--out {asked.out}: must be a file")
    stamp = results.stamp("T(k), bandwidth and throughput", typed(parser), asked.device)
    found = {
        "state": {"start": timing.machine_state()},
        "profile": timing.machine_profile(asked.device),
        "context": CONTEXT,
        "models": curves(asked.device, asked.budget),
    }
    found["state"]["end"] = timing.machine_state()
    path = results.save(
        asked.out or Path("results") / f"memory-{results.slug(stamp['machine'])}.json", stamp, found
    )
    for row in found["models"]:
        one = row["seconds"]["1"][1]
        print(
            f"{row['model']:15s} {row['dtype']:9s} {'packed' if row['packed'] else 'plain':6s} T(1)"
            f" {1e3 * one:6.2f} ms · T(k)/T(1):",
            "  ".join(f"{k} {t[1] / one:.2f}" for k, t in row["seconds"].items()),
        )
    print(f"written to {path}")
