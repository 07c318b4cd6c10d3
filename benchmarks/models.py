"""Measure what the book's two models cost and how often the shipped pair's draft is right.

    python -m benchmarks.models                  # a quarter of an hour; writes results/models.json

Every page reads these numbers from `specdec_book.recordings.models`. They are T(k) of the shipped target
and of SmolLM2 in float32 and bfloat16, and this machine's bandwidth. For the pair they also include α, τ,
c and the speedup at every draft length, from paired turns (`speed`). Finished settings are stored in
--work, so an interrupted run resumes.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from specdec_lite import CausalLM, load_pair, load_smollm2, timing
from specdec_lite.measure import stamps
from specdec_lite.texts.corpus import evaluation_prompts

from . import speed
from .__main__ import Progress, every_setting
from .command import parser_for, typed
from .passes import CONTEXT, KS, pass_rows

GAMMAS = (1, 2, 3, 4, 5, 6, 8, 10)


def shipped_target(dtype: str) -> CausalLM:
    """Return the shipped target in a dtype."""
    return load_pair(device="cpu", dtype=dtype).target


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        bench: Settings of the pair.
        targets: Functions from a dtype's name to a model, by model.
        dtypes: PyTorch's names of the dtypes for T(k).
        ks: Tokens per pass.
        context: Context length in tokens.
        budget: Seconds for T(k) of one model in one dtype.
    """

    bench: speed.Bench
    targets: dict[str, Callable[[str], CausalLM]] = field(
        default_factory=lambda: {
            "pair": shipped_target,
            "smollm2": lambda dtype: load_smollm2("cpu", dtype)[0],
        }
    )
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    ks: tuple[int, ...] = KS
    context: int = CONTEXT
    budget: float = 30.0


def the_books_models(options: argparse.Namespace) -> Plan:
    """Return the plan: the shipped pair in float32 on code and prose, and both targets.

    Args:
        options: Options of the command line.
    """
    pair = load_pair(device="cpu", dtype="float32")
    texts = evaluation_prompts()
    prompts = {
        domain: [
            torch.tensor(pair.tokenizer.encode(item["text"]))
            for item in texts[domain][: options.prompts]
        ]
        for domain in ("code", "prose")
    }
    bench = speed.Bench(
        load=lambda dtype: pair,
        prompts=prompts,
        gammas=GAMMAS,
        dtypes=("float32",),
        new_tokens=options.new_tokens,
        turns=options.turns,
        least=options.turns,
        drafters={"speculative": speed.DRAFTERS["speculative"]},
    )
    return Plan(bench, budget=options.budget)


def drafting_rows(bench: speed.Bench, progress: Progress) -> list[dict]:
    """Return one row per setting of the pair, with its numbers by γ.

    Args:
        bench: Settings of the pair.
        progress: Finished settings.
    """
    rows = []
    for row in every_setting(bench, progress, None):
        entries = {row["gamma"]: row} | {e["gamma"]: e for e in row["drafters"].values()}
        gammas = {}
        for gamma, entry in sorted(entries.items()):
            parts = {name: entry["prediction"][name] for name in ("c", "c_in_loop", "verify")}
            parts["overhead"] = entry["prediction"]["overhead"]
            values = {n: entry[n] for n in ("speedup", "ceiling", "flags", "alpha", "tau")}
            gammas[str(gamma)] = values | parts
        about = {name: row[name] for name in ("domain", "temperature", "turns", "dtype")}
        rows.append(about | {"target_seconds": row["target_seconds"]["rounds"], "gammas": gammas})
    return rows


def main(arguments: list[str] | None = None, make: Callable = the_books_models) -> Path:
    """Run the command line.

    Args:
        arguments: Arguments; None uses those of this process.
        make: Function from the options to the plan.

    Returns:
        Path of the recording.
    """
    parser = parser_for("benchmarks.models", __doc__)
    parser.add_argument(
        "--turns", type=int, default=20, help="paired turns per setting, at least 2"
    )
    parser.add_argument("--prompts", type=int, default=10, help="prompts per domain, at least 2")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument(
        "--budget", type=float, default=30.0, help="seconds for T(k) of one model in one format"
    )
    parser.add_argument("--out", type=Path, default=Path("results/models.json"))
    parser.add_argument("--work", type=Path, default=Path(".work/models"))
    options = parser.parse_args(arguments)
    for name, least in (("turns", 2), ("prompts", 2), ("new_tokens", max(GAMMAS) + 2)):
        if getattr(options, name) < least:
            parser.error(f"--{name.replace('_', '-')}: must be at least {least}")
    if options.out.is_dir():
        parser.error(f"--out {options.out}: must be a file")
    stamp = stamps.stamp(
        "T(k) of the book's two models, and the shipped pair at every draft length",
        typed(parser, arguments),
    )
    plan = make(options)
    try:
        settings = {name: getattr(options, name) for name in ("turns", "prompts", "new_tokens")}
        settings["machine"] = stamp["machine"]
        progress = Progress(options.work / f"{options.out.stem}.jsonl", settings)
    except ValueError as error:
        parser.error(str(error))
    state = {"start": timing.machine_state()}
    record = {
        "profile": timing.machine_profile("cpu"),
        "context": plan.context,
        "drafting": drafting_rows(plan.bench, progress),
        "passes": pass_rows(plan.targets, plan.dtypes, plan.ks, plan.context, plan.budget),
    }
    record["state"] = state | {"end": timing.machine_state()}
    path = stamps.save(options.out, stamp, record)
    progress.path.unlink()
    print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
