"""Time every shipped drafter against plain decoding and Hugging Face, in one run on one machine.

    python -m benchmarks    # about an hour on two cores
    python -m benchmarks --gammas 4 --new-tokens 32 --minutes 15
    python -m benchmarks --model smollm2 --short    # ten minutes on one core
    python -m benchmarks --model smollm2 --dtypes float32 --gammas 8 --drafters suffix rest

All contenders decode the same prompts in the same dtype. The command writes
results/speed-<machine>.json (with SmolLM2 results/smollm2-speed-<machine>.json) once every setting
is measured. Each finished setting is stored, so an interrupted run resumes. `speed` explains how
speed is measured. The command asserts nothing: it prints and records, and it flags a speedup that
cannot be right with the reason.
"""

import argparse
import json
import math
import platform
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from specdec_lite import load_pair, timing
from specdec_lite.engine.linear import is_packed
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.measure import stamps
from specdec_lite.texts.corpus import evaluation_prompts

from . import smollm2, speed
from .command import parser_for, typed
from .hugging_face import HuggingFace
from .passes import CONTEXT, KS, pass_rows
from .speed import Bench, Other, cost_by_context, measure

SHORT = {"gammas": [4], "prompts": 2, "turns": 2, "least": 2, "dtypes": ["float32"]}
LEAST = {"prompts": 2, "new_tokens": 2, "turns": 1, "least": 1}


def shipped(options: argparse.Namespace) -> Bench:
    """Return the bench of the shipped pair on the evaluation prompts.

    Args:
        options: Options of the command line.
    """

    def load(dtype: str):
        return load_pair(device=options.device, dtype="float32" if dtype == "float32" else "auto")

    encode = load("float32").tokenizer.encode
    texts = evaluation_prompts()
    count = min(options.prompts, *map(len, texts.values()))
    return Bench(
        load=load,
        prompts={
            domain: [torch.tensor(encode(item["text"])) for item in items[:count]]
            for domain, items in texts.items()
        },
        gammas=options.gammas,
        dtypes=options.dtypes,
        temperatures=options.temperatures,
        new_tokens=options.new_tokens,
        turns=options.turns,
        least=options.least,
        drafters={name: speed.DRAFTERS[name] for name in options.drafters or speed.DRAFTERS},
        others=hugging_face_contenders(options) if "float32" in options.dtypes else {},
    )


def hugging_face_contenders(options: argparse.Namespace) -> dict[str, Other]:
    """Return Hugging Face with the same two models: plain, and assisted against our leading
    drafter.

    Args:
        options: Options of the command line.
    """
    theirs = HuggingFace(SHIPPED, "float32", options.gammas[0], options.device)
    leader = next(iter(options.drafters or speed.DRAFTERS))
    return {"hf_plain": Other(theirs, False, "plain"), "hf_assisted": Other(theirs, True, leader)}


MODELS = {
    "pair": (shipped, speed.DRAFTERS, "speed", "every shipped drafter", SHORT),
    "smollm2": (
        smollm2.bench,
        smollm2.DRAFTERS,
        "smollm2-speed",
        "drafters on SmolLM2-135M-Instruct",
        SHORT | smollm2.SHORT,
    ),
}
"""By name: the function that makes the `Bench`, its drafters, the recording's file, the recording's
subject, and the options of the short form.
"""


# Resuming -----------------------------------------------------------------------------------------


class Progress:
    """The finished settings, one line each in a file whose first line is the run's options.

    A line that an interruption cut short is measured again.

    Args:
        path: File of the finished settings.
        settings: Options of the run.

    Raises:
        ValueError: If the file belongs to a run with other options.
    """

    def __init__(self, path: Path, settings: dict):
        self.path = path
        self.rows: list[dict] = []
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        complete = [row for row in map(parse_line, lines) if row is not None]
        if complete and complete[0] != settings:
            raise ValueError(
                f"{path} contains settings measured with other options ({complete[0]}): use the same"
                " options on the same machine, or delete the file"
            )
        self.rows = complete[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(map(json_line, [settings, *self.rows])), encoding="utf-8")

    def add(self, row: dict) -> None:
        """Append a finished setting."""
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json_line(row))

    def find(self, setting: dict) -> dict | None:
        """Return the finished row of a setting, or None."""
        return next((row for row in self.rows if setting.items() <= row.items()), None)


def json_line(record: dict) -> str:
    """Return a record as one line of JSON."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def parse_line(text: str) -> dict | None:
    """Return the record of a line, or None if the line is incomplete."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def every_setting(
    bench: Bench, progress: Progress, minutes: float | None, measure_setting: Callable | None = None
) -> list[dict]:
    """Measure the settings that are not finished yet.

    Args:
        bench: What is measured.
        progress: Finished settings.
        minutes: Time for all settings, divided equally among those that remain. Each setting takes
            at least `bench.least` turns.
        measure_setting: Function that measures a setting; None uses `speed.measure`.

    Returns:
        Rows in the order of the settings.
    """
    began = perf_counter()
    left = [setting for setting in bench.settings if progress.find(asdict(setting)) is None]
    for index, setting in enumerate(left):
        now = perf_counter()
        share = (began + 60 * minutes - now) / (len(left) - index) if minutes else math.inf
        progress.add((measure_setting or measure)(bench, setting, now + share))
    return [progress.find(asdict(setting)) for setting in bench.settings]


# The table ----------------------------------------------------------------------------------------


def spread(estimate: dict | None) -> str:
    """Return an estimate with its interval as text."""
    if estimate is None:
        return "–"
    low, high = estimate["interval"]
    return f"{estimate['value']:.2f} ({low:.2f}–{high:.2f})"


def show(console: Console, row: dict) -> None:
    """Print the table of a setting: decoders without a drafter first, then every drafter.

    Args:
        console: Where the table is printed.
        row: Row of the recording.
    """
    load = row["state"]["start"]["load_average"]
    title = f"{row['dtype']} {row['domain']} T={row['temperature']:g}, {row['turns']} turns"
    table = Table(
        title=title,
        title_justify="left",
        caption=f"T(1) {1e3 * row['target_seconds']['rounds']:.2f} ms; the best plain decoder is"
        f" {row['best_plain']}" + (f"; load average {load[0]:.1f}" if load else ""),
    )
    for name in (
        "",
        "tokens/s",
        "speedup",
        "over the best plain",
        "α",
        "τ",
        "c alone / loop",
        "v in rounds / alone",
        "o",
        "plain / corrected",
        "first, p50 / p95 [ms]",
    ):
        table.add_column(name, justify="right" if name else "left", no_wrap=not name)
    entries = {row["drafter"]: row} | row["drafters"]
    for name, rate in row["tokens_per_second"].items():
        cells = drafter_cells(entries[name]) if name in entries else [""] * 8
        times = [1e3 * row["latency"][name][part] for part in ("first", "p50", "p95")]
        table.add_row(name, f"{rate:.0f}", *cells, "{:.0f}, {:.1f} / {:.1f}".format(*times))
    console.print(table)
    for name, estimate in row.items():
        if name.startswith("over_hf"):
            console.print(f"{name}: {spread(estimate)}")


def drafter_cells(entry: dict) -> list[str]:
    """Return the table cells of a drafter; a flag replaces the speedup with its reason.

    Args:
        entry: Entry of the drafter in the recording.
    """
    guess = entry["prediction"]
    formulas = [guess["plain"], guess["corrected"]]
    reasons = "; ".join(entry["flags"])
    return [
        reasons or spread(entry["speedup"]),
        "–" if reasons else spread(entry["over_best_plain"]),
        spread(entry["alpha"]),
        spread(entry["tau"]),
        f"{guess['c']:.3f} / {guess['c_in_loop']:.3f}",
        f"{guess['verify']:.2f} / {guess['verify_alone']:.2f}",
        f"{guess['overhead']:.2f}",
        " / ".join("–" if value is None else f"{value:.2f}" for value in formulas),
    ]


# The command line ---------------------------------------------------------------------------------


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = parser_for("benchmarks", __doc__)
    parser.add_argument("--model", choices=MODELS, default="pair")
    parser.add_argument(
        "--drafters",
        nargs="+",
        default=None,
        help="names of drafters; default: all; the first one leads",
    )
    parser.add_argument("--domains", nargs="+", default=None, help="kinds of text; default: all")
    parser.add_argument(
        "--short", action="store_true", help="measure little of each; other options take precedence"
    )
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument(
        "--gammas",
        type=int,
        nargs="+",
        default=[4, 2, 8],
        help="draft lengths; the first one leads",
    )
    parser.add_argument("--prompts", type=int, default=10, help="prompts per domain")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--turns", type=int, default=30, help="paired turns per setting")
    parser.add_argument(
        "--minutes",
        type=float,
        default=None,
        help="time for all settings; take fewer turns if needed",
    )
    parser.add_argument(
        "--least", type=int, default=20, help="fewest turns per setting under --minutes"
    )
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "bfloat16"], choices=("float32", "bfloat16")
    )
    parser.add_argument(
        "--device",
        default="cpu",
        help=(
            "device of everything that is timed, including Hugging Face; benchmarks.gpu measures a"
            " larger pair on a GPU"
        ),
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="default: results/[smollm2-]speed-<machine>.json"
    )
    parser.add_argument(
        "--work", type=Path, default=Path(".work/speed"), help="folder of the finished settings"
    )
    return parser


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit with an error if an option has a wrong value.

    Args:
        parser: Parser of the command line.
        options: Its result.
    """
    for name, least in LEAST.items():
        if getattr(options, name) < least:
            parser.error(
                f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least {least}"
            )
    if min(options.gammas) < 1 or len({*options.gammas}) < len(options.gammas):
        parser.error(f"--gammas {options.gammas}: must be different whole numbers ≥ 1")
    if options.new_tokens < max(options.gammas) + 2:
        parser.error(
            f"--new-tokens {options.new_tokens}: must be at least {max(options.gammas) + 2}, two"
            " rounds of the longest draft"
        )
    known = MODELS[options.model][1]
    if unknown := [name for name in options.drafters or () if name not in known]:
        parser.error(f"--drafters {unknown[0]}: must be among {', '.join(known)}")
    if min(options.temperatures) < 0:
        parser.error(f"--temperatures {options.temperatures}: must be ≥ 0")
    if options.minutes is not None and not options.minutes > 0:
        parser.error(f"--minutes {options.minutes}: must be above 0")
    if options.out and options.out.is_dir():
        parser.error(f"--out {options.out}: must be a file")


def main(
    arguments: list[str] | None = None, make: Callable[[argparse.Namespace], Bench] | None = None
) -> Path:
    """Run the command line.

    Args:
        arguments: Arguments; None reads those of this process.
        make: Function from the options to a Bench, in place of the model's own.

    Returns:
        Path of the recording.
    """
    parser = command_line()
    options = parser.parse_args(arguments)
    make_bench, _, prefix, what, short = MODELS[options.model]
    if options.short:
        parser.set_defaults(**short)
        options = parser.parse_args(arguments)
    check(parser, options)
    logging.set_verbosity_error()
    stamp = stamps.stamp(
        f"{what} beside plain decoding, and Hugging Face on the same weights",
        typed(parser, arguments),
        options.device,
    )
    machine = stamps.slug(stamp["machine"])
    path = options.out or Path("results") / f"{prefix}-{machine}.json"
    bench = (make or make_bench)(options)
    if unknown := [name for name in options.domains or () if name not in bench.prompts]:
        parser.error(f"--domains {unknown[0]}: must be among {', '.join(bench.prompts)}")
    kinds = {name: bench.prompts[name] for name in options.domains or bench.prompts}
    bench = replace(bench, prompts=kinds)
    settings = {
        name: value
        for name, value in vars(options).items()
        if name not in ("minutes", "out", "work")
    }
    settings |= {
        "machine": stamp["machine"],
        "versions": stamp["versions"],
        "threads": torch.get_num_threads(),
    }
    try:
        progress = Progress(options.work / f"{path.stem}.jsonl", settings)
    except ValueError as error:
        parser.error(str(error))
    rows = every_setting(bench, progress, options.minutes)
    first = bench.dtypes[0]
    record = {
        "profile": timing.machine_profile(options.device),
        "platform": platform.platform(terse=True),
        "state": {"start": rows[0]["state"]["start"], "end": rows[-1]["state"]["end"]},
        "gamma": bench.gammas[0],
        "gammas": list(bench.gammas),
        "new_tokens": bench.new_tokens,
        "prompts_per_domain": min(map(len, bench.prompts.values())),
        "turns": min(row["turns"] for row in rows),
        "least_turns": bench.least,
        "repeats": min(row["sweeps"] for row in rows),
        "packed": {dtype: is_packed(bench.pair(dtype).target.model) for dtype in bench.dtypes},
        "note": (
            "tokens over seconds of the rounds, without either prefill; dtype bfloat16: the target"
            " in bfloat16 and, on a CPU, the draft in float32; costs are in units of T(1), the"
            " median pass of the plain rounds that took turns; verify is of the same rounds,"
            " verify_alone of passes over the drafter's own tree, timed alone"
        ),
        "rows": rows,
    }
    if options.model == "pair":
        prompt = next(iter(bench.prompts.values()))[0]
        record["growth"] = cost_by_context(bench.pair(first).target, prompt)
    else:
        targets = {options.model: lambda dtype: bench.pair(dtype).target}
        record["context"] = CONTEXT
        record["passes"] = pass_rows(targets, ("float32", "bfloat16"), KS, CONTEXT, 15.0)
    stamps.save(path, stamp, record)
    progress.path.unlink()
    console = Console(width=200)
    for row in rows:
        show(console, row)
    console.print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
