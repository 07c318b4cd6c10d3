"""A GPU (or any device) measured in one run: trained pair, losslessness, passes, batches, phases,
speed, launches.

    python -m benchmarks.gpu                        # under ten minutes on a data-centre GPU
    python -m benchmarks.gpu --device cpu --tiny    # the whole script in tiny shapes, to see that it runs

The first writes results/gpu-<machine>.json.
Every part is kept in `--work` as soon as it is measured, and a run that was interrupted, or that
reached `--budget`, goes on from there. Nothing is asserted: the figures are printed and recorded.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from specdec_lite import memory, results, timing

from .gpu_parts import FULL, MODES, PARTS, TINY, Bench

NEEDED = 30_000_000_000
"""Bytes on the device for the full shapes: the large random model, two copied arrays of 4 GiB, the
pair in two formats, slots.
"""


def measure(bench: Bench, budget: float, console: Console) -> dict:
    """Run the parts that are not there yet, as long as the budget in seconds lasts; {part: figures}
    of all that are.
    """
    began, found = perf_counter(), {}
    for name, part in PARTS.items():
        kept = bench.work / f"{name}.json"
        if not kept.exists() and perf_counter() - began < budget:
            console.print(f"{name}: {part.__doc__.splitlines()[0]}")
            kept.write_text(json.dumps(part(bench), indent=1) + "\n", encoding="utf-8")
        if kept.exists():
            found[name] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def show(console: Console, found: dict, graphs: bool) -> None:
    """The short table: what was asked of a GPU, and what came out."""
    table = Table(title="Measured", show_header=True)
    for name in ("what", "eager", "graphs" if graphs else "static shapes, no graphs"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for part, lines in LINES.items():
        for what, rows, figure in lines(found[part]) if part in found else ():
            table.add_row(
                what,
                *(
                    next((figure(row) for row in rows if row["mode"] == mode), "–")
                    for mode in MODES
                ),
            )
    console.print(table)


def of_passes(found: dict) -> Iterator[tuple]:
    """Lines of the table, here as below: (what, rows, a row's figure). What has no mode stands in
    the eager column.
    """
    rows = found["rows"]
    yield (
        (
            f"target only, {found['parameters'] / 1e9:.2g} B random weights: share of the copy"
            " bandwidth"
        ),
        rows,
        lambda r: f"{r['bandwidth_share']:.0%}",
    )
    yield (
        "… T(k)/T(1) at the largest k",
        rows,
        lambda r: f"{list(r['chains'].values())[-1] / r['chains']['1']:.2f}",
    )
    nodes = list(rows[0]["trees"])
    yield (
        f"… trees of {' / '.join(nodes)} nodes over T(1)",
        rows,
        lambda r: " / ".join(f"{r['trees'][n] / r['chains']['1']:.2f}" for n in nodes),
    )


def of_depth(found: dict) -> Iterator[tuple]:
    for name in ("shallow", "narrow and deep"):
        yield (
            f"c of a {name} draft, random weights",
            [row for row in found["rows"] if row["draft"] == name],
            lambda r: f"{r['c']:.2f}",
        )


def of_batches(found: dict) -> Iterator[tuple]:
    sizes = sorted({row["batch"] for row in found["rows"]})
    for size in dict.fromkeys((sizes[0], sizes[-1])):
        yield (
            f"trained target, batch {size}: T(γ+1)/T(1)",
            [row for row in found["rows"] if row["batch"] == size],
            lambda r: f"{r['verify'] / r['one']:.2f}",
        )


def of_speed(found: dict) -> Iterator[tuple]:
    def rates(row: dict, *names: str) -> str:
        return " / ".join(f"{row['tokens_per_second'][name]:.0f}" for name in names)

    for temperature in (0.0, 1.0):
        rows = [row for row in found["rows"] if row["temperature"] == temperature]
        yield (
            f"trained pair, T={temperature:g}: α, τ",
            rows,
            lambda r: f"{r['alpha']:.2f}, {r['tau']:.2f}" if r["alpha"] is not None else "–",
        )
        yield (
            "… c, c in the loop, T(γ+1)/T(1), o",
            rows,
            lambda r: f"{r['c']:.2f}, {r['c_in_loop']:.2f}, {r['verify']:.2f}, {r['overhead']:.2f}",
        )
        yield (
            "… speedup predicted / measured",
            rows,
            lambda r: f"{r['predicted']:.2f} / {r['measured']:.2f}",
        )
        yield (
            "… tokens/s plain / speculative",
            rows,
            lambda r: rates(r, f"plain {r['mode']}", f"speculative {r['mode']}"),
        )
        yield (
            "… Hugging Face plain / assisted, tuned",
            rows[:1],
            lambda r: rates(r, "hf plain", "hf assisted"),
        )
    added = found["draft_bytes"]
    target = found["target_bytes"]
    first = found["first_token"]
    only = [{"mode": MODES[0]}]
    yield (
        "the draft's weights, its cache; both over the target's weights",
        only,
        lambda r: (
            f"{memory.gigabytes(added['weights'])}, {memory.gigabytes(added['cache'])};"
            f" {sum(added.values()) / target:.1%}"
        ),
    )
    yield (
        "ms to the first token, plain / speculative",
        only,
        lambda r: f"{1e3 * first['plain']:.1f} / {1e3 * first['speculative']:.1f}",
    )


def of_texts(found: dict) -> Iterator[tuple]:
    for dtype, apart in found["one_against_many"].items():
        rows = [row for row in found["rows"] if row["dtype"] == dtype]
        left = {
            mode: [row for row in rows if row["mode"] == mode and row["diverges_at"] is not None]
            for mode in MODES
        }
        words = {
            mode: (
                f"{len(gone)} depart, gap ≤ {max(row['gap'] for row in gone):.1e}"
                if gone
                else "all equal"
            )
            for mode, gone in left.items()
        }
        yield f"greedy text against plain, {dtype}", rows, lambda r: words[r["mode"]]
        yield (
            "… logits of one pass over γ + 1 tokens and of single ones, largest difference",
            [{"mode": MODES[0]}],
            lambda r: f"{apart:.1e}",
        )


def of_launches(found: dict) -> Iterator[tuple]:
    for lane in dict.fromkeys(row["lane"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["lane"] == lane]
        yield (
            f"a pass of the draft, {lane}: operations, share of the gaps",
            rows,
            lambda r: f"{len(r['operations'])}, {r['shares']['gap']:.0%}",
        )


LINES = {
    "passes": of_passes,
    "depth": of_depth,
    "batches": of_batches,
    "speed": of_speed,
    "losslessness": of_texts,
    "timeline": of_launches,
}


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="tiny shapes: to see that it runs, not what a device can do",
    )
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the recording")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(".work/gpu"),
        help="folder of the parts and of the trained pair",
    )
    parser.add_argument(
        "--budget", type=float, default=540.0, help="seconds after which no further part begins"
    )
    return parser


def unfit(chosen: argparse.Namespace) -> str | None:
    """Why this machine cannot run what was chosen: said before a pair is trained, not after."""
    if chosen.device.startswith("cuda") and not torch.cuda.is_available():
        return (
            "--device cuda: PyTorch sees no CUDA device here; with --device cpu --tiny the script"
            " runs in tiny shapes"
        )
    if chosen.dtype == "bfloat16" and not memory.has_bfloat16(chosen.device):
        return "--dtype bfloat16: this card does not compute in it; use --dtype float16"
    free = (
        memory.free_bytes(chosen.device)
        if chosen.device.startswith("cuda") and not chosen.tiny
        else None
    )
    if free is not None and free < NEEDED:
        return (
            f"{memory.gigabytes(free)} are free on {chosen.device}, and the full shapes need"
            f" {memory.gigabytes(NEEDED)}; with --tiny the script runs in tiny shapes"
        )
    return None


def main(arguments: list[str] | None = None) -> Path | None:
    """The command line; returns the recording's path once every part is there."""
    parser = options()
    chosen = parser.parse_args(arguments)
    refused = unfit(chosen)
    if refused:
        parser.error(refused)
    logging.set_verbosity_error()
    machine = results.slug(timing.machine_name(chosen.device))
    work = chosen.work / f"{'tiny' if chosen.tiny else 'full'}-{chosen.dtype}-{machine}"
    work.mkdir(parents=True, exist_ok=True)
    console = Console(width=150)
    bench = Bench(chosen.device, chosen.dtype, TINY if chosen.tiny else FULL, work)
    found = measure(bench, chosen.budget, console)
    show(console, found, bench.graphs)
    if len(found) < len(PARTS):
        console.print(
            f"not measured yet: {', '.join(PARTS.keys() - found.keys())}; run the same command"
            " again"
        )
        return None
    command = " ".join(
        ["python -m benchmarks.gpu", *(sys.argv[1:] if arguments is None else arguments)]
    )
    what = (
        "tiny shapes, to see that the script runs"
        if chosen.tiny
        else (
            "a pair trained on the spot and models with random weights, eager and with captured"
            " CUDA graphs"
        )
    )
    stamped = results.stamp(what, command, chosen.device)
    kind = (
        f"-{chosen.dtype}" * (chosen.dtype != "bfloat16") + "-tiny" * chosen.tiny
    )  # none takes another's place
    path = results.save(
        chosen.out / f"gpu-{results.slug(stamped['machine'])}{kind}.json",
        stamped,
        {"dtype": chosen.dtype, "tiny": chosen.tiny, "graphs": bench.graphs, **found},
    )
    console.print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
