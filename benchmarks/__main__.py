"""Every shipped drafter against plain decoding, and beside Hugging Face: same prompts, dtype,
machine, one run.

    python -m benchmarks    # about an hour on two cores
    python -m benchmarks --gammas 4 --new-tokens 32 --minutes 15
    python -m benchmarks --model smollm2 --short    # ten minutes on one core
    python -m benchmarks --model smollm2 --dtypes float32 --gammas 8 --drafters suffix rest

It writes results/speed-<machine>.json (with SmolLM2 results/smollm2-speed-<machine>.json) once every
setting is measured. A setting is kept as soon as
it is done, so the same command goes on where an interrupted one stopped. How speed is measured:
`speed`. Nothing here is asserted: the figures are printed and recorded, and those that cannot be
believed are printed as the reason why.
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

from specdec_lite import load_pair, results, timing
from specdec_lite.engine.linear import is_packed
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.loading.pairs import SHIPPED

from . import smollm2, speed
from .command import parser_for, typed
from .hugging_face import HuggingFace
from .passes import CONTEXT, KS, pass_rows
from .speed import Bench, Other, growth, measure

SHORT = {"gammas": [4], "prompts": 2, "turns": 2, "least": 2, "dtypes": ["float32"]}
LEAST = {"prompts": 2, "new_tokens": 2, "turns": 1, "least": 1}


def shipped(options: argparse.Namespace) -> Bench:
    """The shipped pair on the evaluation prompts; precisions as `load_pair` gives them."""

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
        others=beside_the_pair(options) if "float32" in options.dtypes else {},
    )


def beside_the_pair(options: argparse.Namespace) -> dict[str, Other]:
    """Hugging Face with the same two models: plain, and held against our leading drafter."""
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
"""By name: what makes the `Bench`, its drafters, the recording's file, what it is of, and the options
of the short form.
"""


# Going on ------------------------------------------------------------------------------------------


class Kept:
    """The settings that are done, a line each in a file that begins with what was asked.

    A line that an interruption cut short is measured again. ValueError where the file holds the
    answer to something else.
    """

    def __init__(self, path: Path, asked: dict):
        self.path = path
        self.rows: list[dict] = []
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        whole = [line for line in map(parsed, lines) if line is not None]
        if whole and whole[0] != asked:
            raise ValueError(
                f"{path} holds settings that were measured otherwise ({whole[0]}): go on with the"
                " same options on the same machine, or delete it"
            )
        self.rows = whole[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(map(line, [asked, *self.rows])), encoding="utf-8")

    def add(self, row: dict) -> None:
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line(row))

    def find(self, setting: dict) -> dict | None:
        return next((row for row in self.rows if setting.items() <= row.items()), None)


def line(record: dict) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def parsed(text: str) -> dict | None:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def every_setting(
    bench: Bench, kept: Kept, minutes: float | None, how: Callable | None = None
) -> list[dict]:
    """Measure what is not kept yet; rows in the order of the settings.

    minutes: for all of them together, each having an equal part of what is left; a setting takes
    `bench.least` turns in any case. how: what measures a setting, None: `speed.measure`.
    """
    began = perf_counter()
    left = [setting for setting in bench.settings if kept.find(asdict(setting)) is None]
    for place, setting in enumerate(left):
        now = perf_counter()
        share = (began + 60 * minutes - now) / (len(left) - place) if minutes else math.inf
        kept.add((how or measure)(bench, setting, now + share))
    return [kept.find(asdict(setting)) for setting in bench.settings]


# The table -----------------------------------------------------------------------------------------


def spread(estimate: dict | None) -> str:
    if estimate is None:
        return "–"
    low, high = estimate["interval"]
    return f"{estimate['value']:.2f} ({low:.2f}–{high:.2f})"


def show(console: Console, row: dict) -> None:
    """The table of a setting: decoders without a drafter first, then every drafter."""
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
        cells = explained(entries[name]) if name in entries else [""] * 8
        times = [1e3 * row["latency"][name][part] for part in ("first", "p50", "p95")]
        table.add_row(name, f"{rate:.0f}", *cells, "{:.0f}, {:.1f} / {:.1f}".format(*times))
    console.print(table)
    for name, estimate in row.items():
        if name.startswith("over_hf"):
            console.print(f"{name}: {spread(estimate)}")


def explained(entry: dict) -> list[str]:
    """The cells of a drafter: a flagged one says why in place of its speedup."""
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


# The command line ----------------------------------------------------------------------------------


def command_line() -> argparse.ArgumentParser:
    parser = parser_for("benchmarks", __doc__)
    parser.add_argument("--model", choices=MODELS, default="pair")
    parser.add_argument(
        "--drafters", nargs="+", default=None, help="by name; default all, the first of them leads"
    )
    parser.add_argument("--domains", nargs="+", default=None, help="kinds of text; default all")
    parser.add_argument(
        "--short", action="store_true", help="little of each; what is asked for besides comes first"
    )
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument(
        "--gammas", type=int, nargs="+", default=[4, 2, 8], help="draft lengths, the leading first"
    )
    parser.add_argument("--prompts", type=int, default=10, help="of each domain; the clusters")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--turns", type=int, default=30, help="paired turns a setting")
    parser.add_argument(
        "--minutes", type=float, default=None, help="for all settings: take fewer turns where due"
    )
    parser.add_argument(
        "--least", type=int, default=20, help="turns that --minutes leaves a setting"
    )
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "bfloat16"], choices=("float32", "bfloat16")
    )
    parser.add_argument(
        "--device",
        default="cpu",
        help=(
            "for everything that is timed, Hugging Face included; a larger pair on a GPU:"
            " benchmarks.gpu"
        ),
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="default results/[smollm2-]speed-<machine>.json"
    )
    parser.add_argument(
        "--work", type=Path, default=Path(".work/speed"), help="folder of the settings done so far"
    )
    return parser


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
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
    """The command line; returns the recording's path. make: what is measured, from the options, in
    place of the model's own.
    """
    parser = command_line()
    options = parser.parse_args(arguments)
    own, _, prefix, what, short = MODELS[options.model]
    if options.short:
        parser.set_defaults(**short)
        options = parser.parse_args(arguments)
    check(parser, options)
    logging.set_verbosity_error()
    stamp = results.stamp(
        f"{what} beside plain decoding, and Hugging Face on the same weights",
        typed(parser, arguments),
        options.device,
    )
    machine = results.slug(stamp["machine"])
    path = options.out or Path("results") / f"{prefix}-{machine}.json"
    bench = (make or own)(options)
    if unknown := [name for name in options.domains or () if name not in bench.prompts]:
        parser.error(f"--domains {unknown[0]}: must be among {', '.join(bench.prompts)}")
    kinds = {name: bench.prompts[name] for name in options.domains or bench.prompts}
    bench = replace(bench, prompts=kinds)
    asked = {
        name: value
        for name, value in vars(options).items()
        if name not in ("minutes", "out", "work")
    }
    asked |= {
        "machine": stamp["machine"],
        "versions": stamp["versions"],
        "threads": torch.get_num_threads(),
    }
    try:
        kept = Kept(options.work / f"{path.stem}.jsonl", asked)
    except ValueError as error:
        parser.error(str(error))
    rows = every_setting(bench, kept, options.minutes)
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
        record["growth"] = growth(bench.pair(first).target, prompt)
    else:
        targets = {options.model: lambda dtype: bench.pair(dtype).target}
        record["context"] = CONTEXT
        record["passes"] = pass_rows(targets, ("float32", "bfloat16"), KS, CONTEXT, 15.0)
    results.save(path, stamp, record)
    kept.path.unlink()
    console = Console(width=200)
    for row in rows:
        show(console, row)
    console.print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
