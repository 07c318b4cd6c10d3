"""Time every shipped drafter against plain decoding and Hugging Face, in one run on one machine.

    python -m benchmarks run speed                   # the shipped pair; about an hour on two cores
    python -m benchmarks run speed --gammas 4 --new-tokens 32 --minutes 15

All contenders decode the same prompts in the same dtype. `speed` explains how speed is measured.
Nothing is asserted: the recording flags a speedup that cannot be right, with the reason.
"""

import math
import platform
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from specdec_lite import timing
from specdec_lite.diagnosis.report import spread
from specdec_lite.engine.linear import is_packed
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.texts.corpus import evaluation_prompts

from .experiment import Run, experiment
from .hugging_face import HuggingFace
from .scoreboard_counts import load_models
from .speed import DRAFTERS, Bench, Other, Setting, measure

Dtype = Literal["float32", "bfloat16"]
DOMAINS = tuple(evaluation_prompts())

# The table ----------------------------------------------------------------------------------------


def show(console: Console, row: dict) -> None:
    """Print the table of a setting: decoders without a drafter first, then every drafter."""
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
    """Return the table cells of a drafter; a flag replaces the speedup with its reason."""
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


# The experiment -----------------------------------------------------------------------------------

NOTE = (
    "tokens over seconds of the rounds, without either prefill; costs are in units of T(1), the"
    " median pass of the plain rounds that took turns; verify is of the same rounds, verify_alone of"
    " passes over the drafter's own tree, timed alone"
)


@experiment(
    "speed",
    "every shipped drafter beside plain decoding, and Hugging Face on the same weights",
    time="1 hour",
    quick={
        "prompts": 2,
        "turns": 2,
        "least": 1,
        "gammas": (2,),
        "new_tokens": 6,
        "minutes": 0.2,
        "drafters": ("speculative", "medusa_chain"),
    },
    least={"prompts": 2},
    unrelated=("minutes",),
    threads=1,
)
def speed(
    run: Run,
    *,
    drafters: Sequence[Literal[*DRAFTERS]] = tuple(DRAFTERS),
    domains: Sequence[Literal[*DOMAINS]] = DOMAINS,
    temperatures: Sequence[float] = (0.0, 1.0),
    gammas: Sequence[int] = (4, 2, 8),
    prompts: int = 10,
    new_tokens: int = 96,
    turns: int = 30,
    minutes: float | None = None,
    least: int = 20,
    dtypes: Sequence[Dtype] = ("float32", "bfloat16"),
    device: str = "cpu",
) -> dict:
    """Return the settings of the shipped pair with every drafter.

    Args:
        drafters: names of drafters; the first one leads
        domains: kinds of text
        gammas: draft lengths; the first one leads
        prompts: prompts per domain
        turns: paired turns per setting
        minutes: time for all settings; take fewer turns if needed
        least: fewest turns per setting under --minutes
        device: device of everything that is timed
    """
    if len({*gammas}) < len(gammas):
        raise ValueError(f"--gammas {gammas}: must be different")
    if new_tokens < max(gammas) + 2:
        raise ValueError(
            f"--new-tokens {new_tokens}: must be at least {max(gammas) + 2}, two rounds of the"
            " longest draft"
        )
    logging.set_verbosity_error()
    load = lambda dtype: load_models("pair", dtype, device)
    encode, texts = load("float32").tokenizer.encode, evaluation_prompts()
    prompts = min(prompts, *map(len, texts.values()))
    others = {}
    if "float32" in dtypes:  # the same two models: plain, and assisted against our leader
        theirs = HuggingFace(SHIPPED / "target", "float32", SHIPPED / "draft", gammas[0], device)
        others = {
            "hf_plain": Other(theirs, False, "plain"),
            "hf_assisted": Other(theirs, True, drafters[0]),
        }
    bench = Bench(
        load=load,
        prompts={
            domain: [torch.tensor(encode(item["text"])) for item in texts[domain][:prompts]]
            for domain in domains
        },
        gammas=gammas,
        dtypes=dtypes,
        temperatures=temperatures,
        new_tokens=new_tokens,
        turns=turns,
        least=least,
        drafters={name: DRAFTERS[name] for name in drafters},
        others=others,
    )
    settings = {str(setting): setting for setting in bench.settings}
    ends = perf_counter() + 60 * minutes if minutes else math.inf

    def timed(setting: Setting) -> dict:
        now = perf_counter()
        left = sum(name not in run.store.rows for name in settings)
        return measure(bench, setting, now + (ends - now) / left)

    rows = run({name: partial(timed, setting) for name, setting in settings.items()})
    measured = [*rows.values()]
    console = Console(width=200)
    for row in measured:
        show(console, row)
    return {
        "profile": timing.machine_profile(device),
        "platform": platform.platform(terse=True),
        "state": {"start": measured[0]["state"]["start"], "end": measured[-1]["state"]["end"]},
        "gamma": gammas[0],
        "gammas": list(gammas),
        "new_tokens": new_tokens,
        "prompts_per_domain": min(map(len, bench.prompts.values())),
        "turns": min(row["turns"] for row in measured),
        "least_turns": least,
        "repeats": min(row["sweeps"] for row in measured),
        "packed": {dtype: is_packed(bench.pair(dtype).target.model) for dtype in dtypes},
        "note": NOTE,
        "rows": measured,
    }
