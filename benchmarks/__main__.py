"""Every shipped drafter against plain decoding, and the pair against Hugging Face: same prompts,
dtype, machine, one run.

    python -m benchmarks    # about forty minutes on two cores (--repeats 2: eighteen)

It writes results/speed-<machine>.json.
All contenders take turns, prompt by prompt, so that a machine that slows down slows them all.
Speeds are new tokens over the seconds of the whole call, prefill included; ratios are of medians
over the repetitions, summed over the prompts; intervals are 95 % bootstrap intervals over prompts.
Nothing here is asserted: the figures are printed and recorded.
"""

import argparse
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import scipy.stats
import torch
from rich.console import Console
from rich.table import Table
from tqdm import tqdm
from transformers.utils import logging

from specdec_lite import generate, load_pair, results, theory, timing
from specdec_lite.acceptance import block_verification
from specdec_lite.drafters import BlockwiseDrafter, MedusaDrafter, ModelDrafter
from specdec_lite.engine.linear import is_packed
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.loading.pairs import SHIPPED, Pair
from specdec_lite.speculation import Drafter
from specdec_lite.training.blockwise import COUNT
from specdec_lite.tree import TokenTree

from .hugging_face import HuggingFace

DRAFTERS: dict[str, Callable[[Pair, int], Drafter]] = {
    "speculative": lambda pair, gamma: ModelDrafter(pair.draft, gamma),
    "block_verification": lambda pair, gamma: ModelDrafter(pair.draft, gamma),
    "medusa_chain": lambda pair, gamma: MedusaDrafter.from_pretrained(
        pair.target, tree=TokenTree.chain([0] * min(gamma, 4))
    ),
    "medusa_dense": lambda pair, gamma: MedusaDrafter.from_pretrained(
        pair.target, tree=TokenTree.cartesian([range(4), range(3)])
    ),
    "medusa_sparse": lambda pair, gamma: MedusaDrafter.from_pretrained(pair.target),
    "blockwise": lambda pair, gamma: BlockwiseDrafter.from_pretrained(
        pair.target, k=min(gamma, COUNT) + 1
    ),
}
"""What is timed beside plain decoding: a drafter for a pair and a draft length γ. The first one is
held against Hugging Face too.
"""
RULES = {"block_verification": block_verification}
"""Judged by another rule than the default: timed above temperature 0 only, where the rules differ,
and not a measure of α.
"""
CONTENDERS = ("hf_plain", "hf_assisted", "plain", *DRAFTERS)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the result: which precision, which text, which temperature."""

    dtype: str
    domain: str
    temperature: float


def interval(statistic, *samples) -> list[float]:
    """95 % percentile bootstrap interval of a statistic of paired samples (one entry per prompt)."""
    found = scipy.stats.bootstrap(
        samples,
        statistic,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        rng=0,
    )
    return [float(found.confidence_interval.low), float(found.confidence_interval.high)]


def ratio(over, under) -> dict:
    """Σ over / Σ under with its interval; both are [prompts]."""
    quotient = lambda a, b: a.sum() / b.sum()
    return {"value": float(quotient(over, under)), "interval": interval(quotient, over, under)}


def contenders(
    pair: Pair, drafters: dict[str, Drafter], setting: Setting, options
) -> dict[str, Callable]:
    """What takes turns on a prompt: name → job(ids, seed). Hugging Face only in float32, where both
    sides run the same weights alike.
    """

    def ours(drafter, rule):
        return lambda ids, seed: generate(
            pair.target, ids, drafter, options.new_tokens, setting.temperature, rule=rule, seed=seed
        )

    jobs = {
        name: ours(drafter, RULES.get(name))
        for name, drafter in ({"plain": None} | drafters).items()
    }
    if setting.dtype != "float32":
        return jobs
    hf = HuggingFace(SHIPPED, "float32", options.gamma, options.device)

    def theirs(assisted):
        return lambda ids, seed: hf(ids, options.new_tokens, setting.temperature, seed, assisted)

    return {"hf_plain": theirs(False), "hf_assisted": theirs(True)} | jobs


def take_turns(
    jobs: dict[str, Callable],
    prompts: list[torch.Tensor],
    repeats: int,
    label: str,
    device: torch.device,
) -> tuple[dict, dict]:
    """(median seconds [prompts] of every job, {name: [(prompt index, Stats)]} of those that return
    an `Output`), after two prompts of warm-up.
    """
    seconds = {name: np.zeros((len(prompts), repeats)) for name in jobs}
    stats: dict[str, list] = {name: [] for name in jobs}
    for turn in tqdm(range(-1, repeats), desc=label):
        for index, ids in enumerate(prompts if turn >= 0 else prompts[:2]):
            for name, job in jobs.items():
                timing.synchronise(device)
                began = perf_counter()
                out = job(ids, turn)
                timing.synchronise(device)
                if turn >= 0:
                    seconds[name][index, turn] = perf_counter() - began
                    stats[name] += [(index, out.stats)] if out is not None else []
    return {name: np.median(taken, axis=1) for name, taken in seconds.items()}, stats


def run_setting(setting: Setting, prompts: list[torch.Tensor], options) -> dict:
    """Time all contenders on one setting and explain the speedups: the pair's own at the top, the
    other drafters' under "drafters".
    """
    pair = load_pair(
        device=options.device, dtype="float32" if setting.dtype == "float32" else "auto"
    )
    drafters = {
        name: make(pair, options.gamma)
        for name, make in DRAFTERS.items()
        if setting.temperature > 0 or name not in RULES
    }
    jobs = contenders(pair, drafters, setting, options)
    median, stats = take_turns(
        jobs,
        prompts,
        options.repeats,
        f"{setting.dtype} {setting.domain} T={setting.temperature:g}",
        pair.target.device,
    )
    result = {
        "tokens_per_second": {
            name: options.new_tokens * len(prompts) / float(taken.sum())
            for name, taken in median.items()
        }
    }
    if "hf_plain" in median:
        result["over_hf_assisted"] = ratio(median["hf_assisted"], median["speculative"])
        result["over_hf_plain"] = ratio(median["hf_plain"], median["plain"])
    explained = {}
    for name, drafter in drafters.items():
        counted = acceptance(stats[name], len(prompts), has_alpha(name, drafter))
        explained[name] = (
            {"speedup": ratio(median["plain"], median[name])}
            | counted
            | {"prediction": prediction(pair, drafter, prompts[0], setting, counted)}
        )
    return result | explained.pop("speculative") | {"drafters": explained}


def drafted_shape(drafter: Drafter) -> tuple[bool, int, int]:
    """(whether it drafts chains, levels, nodes) of a full draft."""
    tree = getattr(drafter, "tree", None)
    if tree is not None:
        return tree.is_chain, drafter.levels, len(tree)
    length = drafter.gamma if isinstance(drafter, ModelDrafter) else drafter.k - 1
    return True, length, length


def has_alpha(name: str, drafter: Drafter) -> bool:
    """Whether accepted ÷ tested estimates α: not on trees, whose siblings are tested one after
    another, nor where blocks are judged whole.
    """
    return drafted_shape(drafter)[0] and name not in RULES


def acceptance(stats: list, prompts: int, alpha: bool) -> dict:
    """α = accepted ÷ tested (None unless `alpha`), τ = tokens per target pass, counts summed per
    prompt, and the share of the time that went into drafting and verifying."""
    total = lambda get: np.array(
        [sum(get(s) for index, s in stats if index == i) for i in range(prompts)], dtype=float
    )
    seconds = total(lambda s: s.seconds).sum()
    return {
        "alpha": ratio(total(lambda s: s.accepted), total(lambda s: s.tested)) if alpha else None,
        "tau": ratio(total(lambda s: s.tokens), total(lambda s: s.target_passes)),
        "share": {
            part: float(total(lambda s: getattr(s, part)).sum() / seconds)
            for part in ("drafting", "verifying")
        },
    }


def prediction(pair, drafter, prompt, setting: Setting, counted: dict) -> dict:
    """From what `acceptance` counted: the plain formula (where there is an α), and the same with
    T(nodes + 1)/T(1), c in the loop and the round's overhead as measured here.
    """
    _, gamma, nodes = drafted_shape(drafter)
    costs = timing.measure_costs(
        pair.target, drafter, (1, nodes + 1), prompt=prompt, temperature=setting.temperature
    )
    alpha, tau = counted["alpha"], counted["tau"]["value"]
    one = costs.target[1]
    alone = (
        costs.draft_in_loop if costs.draft is None else costs.draft
    )  # heads have no pass of their own to time outside the loop
    share = 1 / gamma if costs.draft is None else 1.0  # one pass of heads makes the whole draft
    c = share * alone / one
    c_loop = share * costs.draft_in_loop / one
    verify = costs.target[nodes + 1] / one
    overhead = costs.overhead / one
    return {
        "c": c,
        "c_in_loop": c_loop,
        "verify": verify,
        "overhead": overhead,
        "target_seconds": one,
        "plain": theory.walltime_improvement(alpha["value"], gamma, c) if alpha else None,
        "corrected": theory.corrected_improvement(tau, gamma, c_loop, verify, overhead),
    }


def growth(options) -> dict:
    """Seconds per token by position in one long plain run, beside the target's pass at the same
    lengths of context.
    """
    pair = load_pair(device=options.device, dtype="float32")
    prompt = torch.tensor(pair.tokenizer.encode(evaluation_prompts()["code"][0]["text"]))[:64]
    runs = [
        [step.seconds for step in generate(pair.target, prompt, None, 1000, 1.0, seed=seed).steps]
        for seed in range(3)
    ]
    per_token = np.median(np.array(runs), axis=0)
    places = (100, 300, 500, 700, 900)
    alone = {
        context: timing.measure_costs(pair.target, None, (1,), context=context).target[1]
        for context in places
    }
    return {
        "context": list(places),
        "pass_seconds": [alone[c] for c in places],
        "seconds_per_token": [
            float(np.median(per_token[c - 64 - 25 : c - 64 + 25])) for c in places
        ],
    }


def show(console: Console, rows: list[dict]) -> None:
    table = Table(title="Shipped pair, tokens per second and ratios")
    for name in (
        "setting",
        *CONTENDERS,
        "speedup",
        "over HF assisted",
        "α",
        "τ",
        "% drafting / verifying",
        "c alone / loop",
        "T(γ+1)/T(1)",
        "plain / corrected",
    ):
        table.add_column(name, justify="left" if name == "setting" else "right")
    spread = lambda r: (
        f"{r['value']:.2f} ({r['interval'][0]:.2f}–{r['interval'][1]:.2f})" if r else "–"
    )
    both = lambda guess: " / ".join(
        "–" if guess[name] is None else f"{guess[name]:.2f}" for name in ("plain", "corrected")
    )
    share = lambda r: " / ".join(f"{100 * part:.0f}" for part in r["share"].values())
    for row in rows:
        speeds, guess = row["tokens_per_second"], row["prediction"]
        table.add_row(
            f"{row['dtype']} {row['domain']} T={row['temperature']:g}",
            *(f"{speeds[n]:.0f}" if n in speeds else "–" for n in CONTENDERS),
            spread(row["speedup"]),
            spread(row.get("over_hf_assisted")),
            spread(row["alpha"]),
            spread(row["tau"]),
            share(row),
            f"{guess['c']:.3f} / {guess['c_in_loop']:.3f}",
            f"{guess['verify']:.2f}",
            both(guess),
        )
        for name, other in row["drafters"].items():
            guess = other["prediction"]
            table.add_row(
                f"  {name}",
                *[""] * len(CONTENDERS),
                spread(other["speedup"]),
                "",
                spread(other["alpha"]),
                spread(other["tau"]),
                share(other),
                f"{guess['c']:.3f} / {guess['c_in_loop']:.3f}",
                f"{guess['verify']:.2f}",
                both(guess),
            )
    console.print(table)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument(
        "--prompts",
        type=int,
        default=6,
        help=(
            "prompts per domain, at least two; of fewer than six an interval is little more than"
            " their range"
        ),
    )
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--device",
        default="cpu",
        help=(
            "for everything that is timed, Hugging Face included; a larger pair on a GPU:"
            " benchmarks.gpu"
        ),
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        help="where to write; default results/speed-<machine>.json",
    )
    options = parser.parse_args()
    for name, least in (("gamma", 1), ("prompts", 2), ("new_tokens", 2), ("repeats", 1)):
        if getattr(options, name) < least:
            parser.error(
                f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least {least}"
            )
    if options.out and options.out.is_dir():
        parser.error(f"--out {options.out}: must be a file")
    logging.set_verbosity_error()
    pair, texts = load_pair(device=options.device), evaluation_prompts()
    options.prompts = min(options.prompts, *map(len, texts.values()))
    encode = lambda text: torch.tensor(pair.tokenizer.encode(text))
    rows = []
    for dtype in ("float32", "bfloat16"):
        for domain in ("code", "data", "prose"):
            chosen = [encode(item["text"]) for item in texts[domain]][: options.prompts]
            for temperature in (0.0, 1.0):
                setting = Setting(dtype, domain, temperature)
                rows.append(asdict(setting) | run_setting(setting, chosen, options))
    stamp = results.stamp(
        "every shipped drafter beside plain decoding, and Hugging Face on the same weights",
        " ".join(["python -m benchmarks", *sys.argv[1:]]),
        options.device,
    )
    record = {
        "profile": timing.machine_profile(options.device),
        "platform": platform.platform(terse=True),
        "gamma": options.gamma,
        "new_tokens": options.new_tokens,
        "prompts_per_domain": options.prompts,
        "repeats": options.repeats,
        "packed": {
            dtype: is_packed(load_pair(device=options.device, dtype=dtype).target.model)
            for dtype in ("float32", "bfloat16")
        },
        "note": (
            "dtype bfloat16: the target in bfloat16 and, on a CPU, the draft in float32;"
            " predictions take T(nodes + 1) of a chain for a tree's pass"
        ),
        "rows": rows,
        "growth": growth(options),
    }
    path = results.save(
        options.out or Path("results") / f"speed-{results.slug(stamp['machine'])}.json",
        stamp,
        record,
    )
    console = Console(width=200)
    show(console, rows)
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
