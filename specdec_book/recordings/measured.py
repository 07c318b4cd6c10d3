"""Measured pairs with the numbers of the formula: others' on GPUs, and the recordings of this book.

Each pair is a preset of `viz.Explorer(levers=True)`: α, γ, c and the other costs, the measured
speedup, who measured it, and where.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

from specdec_book import recordings
from specdec_book.recordings import Recording, cards, forecasts
from specdec_lite import theory
from specdec_lite.measure.stamps import split, validate

LIMITS = {"alpha": 1, "c": 1.2, "step_cost": 0.5, "overhead": 2, "plain_overhead": 2}
"""Largest values of the explorer's sliders."""
PUBLISHED = (
    ("specbundle", "mtbench", (3, 7)),
    ("angelslim_qwen3", "MT-bench", (2,)),
    ("vllm_eagle_lengths", "", (3, 5)),
    ("llama_cpp_laptop_mtp", "", (2, 4)),
)
"""(source, its text, draft lengths) that the menu lists: chains that state card, engine, γ and τ."""
MODES = {
    "static, whole draft": "whole draft in a graph",
    "static": "passes in graphs",
    "eager": "operations launched one by one",
}
"""Recorded modes of the shipped pair that the menu lists."""
SYNTHETIC = (("head, 32k rows", 1), ("head, 32k rows", 16), ("head, 32k rows", 128))
SYNTHETIC += (("Llama-3.2-1B", 1),)
"""(draft, batch) of the rounds with synthetic acceptance that the menu lists, all with γ = 4."""
ALPHA = 0.7
"""The α of synthetic acceptance that figures, tables and the menu show."""
REMAINDER = "o is what is left of the measured round, so the prediction predicts τ alone."


def preset(group: str, label: str, measured: float, gamma: int, by: str, **more) -> dict:
    """Return a measured pair; costs outside the explorer's sliders get the nearest value there."""
    by = by.replace("`", "")
    costs = {name: float(np.clip(more.pop(name, 0.0), 0, top)) for name, top in LIMITS.items()}
    names = {"group": group, "label": label, "gamma": gamma, "measured": measured}
    return costs | names | {"by": by[:1].upper() + by[1:], **more}


# Measured by others -------------------------------------------------------------------------------


def published_pairs() -> list[dict]:
    """Return pairs that others measured on GPUs.

    α is the one that gives the printed τ. The costs come from the source's other rows of the same
    models: never from the row whose speedup is shown.
    """
    return [
        each for source, text, gammas in PUBLISHED for each in source_pairs(source, text, gammas)
    ]


def source_pairs(source: str, text: str, gammas: Iterable[int]) -> list[dict]:
    """Return the pairs of one source."""
    about, found = forecasts.entry(source), []
    rows = [complete(row, about) for row in forecasts.records(source)]
    for row in rows:
        if row["gamma"] not in gammas or row["workload"] not in ("", text):
            continue
        if (costs := costs_without(row, rows)) is None:
            continue
        setting = row["setting"] or about["method"]
        model = about.get("model", "").partition(",")[0]
        method = about["method"].replace(",", " ").split()[0]  # EAGLE-3 of "EAGLE-3, gamma 2"
        method = "" if "EAGLE" in setting or method == setting else method
        label = ", ".join(filter(None, (model, setting, method, f"γ = {row['gamma']}")))
        machine, batch = f"{about['card']}; {about['engine']}", f"batch {row['batch']}"
        about_text = ", ".join(filter(None, (batch, row["workload"])))
        by = f"Measured by others, not by us: {machine}; {about_text}; τ {row['tau']:.2f}."
        alpha = theory.implied_alpha(row["tau"], row["gamma"])
        more = {"alpha": alpha, "source": about["url"]} | costs
        found.append(preset(machine, label, row["speedup"], row["gamma"], by, **more))
    return found


def complete(row: dict, about: dict) -> dict:
    """Return a row with γ, τ, a setting and a text, wherever its source states them."""
    gamma = row.get("gamma") or about.get("gamma") or int(about["method"].rpartition("gamma ")[2])
    row = {"setting": "", "workload": ""} | row | {"gamma": gamma}
    if "tau" not in row:
        row["tau"] = 1 + gamma * row["accepted / drafted"]
    return row


def costs_without(row: dict, rows: list[dict]) -> dict[str, float] | None:
    """Return c and o of a round from the other rows of the same setting; None if there are too few.

    A source prints one cost per γ, so c contains what each further token adds to the verification.
    Several texts at this γ give the cost of a round; several γ give its slope.
    """
    by_gamma: dict[int, list[float]] = {}
    for each in rows:
        if each is not row and all(each[name] == row[name] for name in ("setting", "batch")):
            by_gamma.setdefault(each["gamma"], []).append(each["tau"] / each["speedup"])
    costs = {gamma: median(values) for gamma, values in by_gamma.items()}
    if len(costs) < 2 and row["gamma"] not in costs:
        return None
    slope, start = np.polyfit([*costs], [*costs.values()], 1) if len(costs) > 1 else (np.inf, 0)
    cost = costs.get(row["gamma"], start + slope * row["gamma"])
    slope = min(slope, (cost - 1) / row["gamma"])  # a round costs at least one pass
    return {"c": max(0.0, slope), "overhead": cost - 1 - row["gamma"] * max(0.0, slope)}


# Recorded here ------------------------------------------------------------------------------------


BOOK = "gpu/nvidia-h100-80gb-hbm3"
"""The recording of a GPU whose numbers the chapters state."""
FOLDERS = ("results/gpu", "/content/drive/MyDrive/results/gpu")
"""Where `python -m specdec_lite gpu` writes, and a folder that all notebooks of Colab share."""
CELLS = ("batch", "k", "context", "seconds")
FIELDS = {
    "card": ("the card's own speeds", ()),
    "passes": ("passes of the target", CELLS),
    "slices": ("slices of a 70B model", ("layers", *CELLS)),
    "quarter": ("a quarter of a 70B model", CELLS),
    "drafts": ("drafts", ("draft", "mode", "batch", "drafted", "seconds")),
    "experts": ("passes over experts", ("routing", "batch", "k", "experts_used", "seconds")),
    "rounds": ("rounds of the shipped pair", ()),
    "smollm2": ("rounds of SmolLM2", ()),
    "synthetic": (
        "whole rounds with a coin",
        ("draft", "batch", "gamma", "speedup", "round_seconds", "plain_seconds"),
    ),
    "trees": ("passes over trees", ("kind", "nodes", "seconds")),
    "trace": ("a timeline", ("mode", "lane", "operations")),
}
"""Each step of the plan in words, and the fields of its rows without which no figure can be drawn."""
STEPS = {name: words for name, (words, _) in FIELDS.items()}
ROUND = {"speedup", "alpha", "tau", "alone", "rounds"}
"""Fields of a mode of a trained pair."""
OLD = "another version of the library wrote it: measure again"


def gpus() -> list[Recording]:
    """Return the book's GPU, other recorded ones, and the reader's own, all with captured graphs."""
    names = [BOOK, *(name for name in recordings.names("gpu") if name != BOOK and is_listed(name))]
    return [*map(recordings.load, names), *own_gpus()]


def is_listed(name: str) -> bool:
    """Return whether the index of the recordings has one; without an index all are the book's."""
    index = recordings.FOLDER / "README.md"
    return not index.exists() or f"[{name}]" in index.read_text(encoding="utf-8")


def own_gpus() -> list[Recording]:
    """Return what `python -m specdec_lite gpu` wrote for the reader's cards, the newest of each."""
    return scan()[0]


def scan() -> tuple[list[Recording], list[str]]:
    """Return the reader's recordings, and sentences about what is left out."""
    folders = (*FOLDERS, recordings.FOLDER / "gpu")
    book = {path.resolve() for name, path in recordings.files().items() if is_listed(name)}
    paths = {path.resolve() for folder in folders for path in Path(folder).glob("*.json")} - book
    found: dict[str, tuple] = {}
    notes: list[str] = []
    for path in sorted(paths):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            validate(path.name, content)
            stamp, data = split(content)
            data = readable(data)
        except ValueError as error:
            notes.append(f"{path} is left out: {error}.")
            continue
        if data["tiny"] or not data["graphs"]:
            continue
        machine, age = stamp["machine"], (stamp["date"], path.stat().st_mtime)
        if machine in found:
            notes.append(f"{machine} was measured twice: the newer recording is shown.")
        if machine not in found or age > found[machine][0]:
            found[machine] = age, Recording(f"your GPU/{path.stem}", **stamp, data=data)
    return [recording for _, recording in found.values()], notes


def readable(data: dict) -> dict:
    """Return a recording's data whose steps can be drawn; one of another version is an error."""
    if not isinstance(data.get("steps"), dict) or not {"graphs", "tiny", "dtype"} <= data.keys():
        raise ValueError(OLD)
    steps = dict(data["steps"])
    for name, (_, fields) in FIELDS.items():
        rows = steps.get(name, {}).get("rows", ())
        if not all(set(fields) <= row.keys() for row in rows):
            steps[name] = {"error": OLD}
    for name in ("passes", "slices", "quarter"):
        if steps.get(name, {}).get("rows") and not {"shape", "parameters"} <= steps[name].keys():
            steps[name] = {"error": OLD}
    for name in ("pair", "rounds", "smollm2"):
        parts = (steps.get(name, {}).get(f"T = {t}", {}) for t in (0, 1))
        if any(ROUND - row.keys() for part in parts for row in part.get("modes", {}).values()):
            steps[name] = {"error": OLD}
    return data | {"steps": steps}


def rows(recording: Recording, name: str) -> list[dict]:
    """Return the measured rows of a step, also of one that did not finish; empty without any."""
    return recording.data["steps"].get(name, {}).get("rows", [])


def why_missing(recording: Recording, name: str) -> str:
    """Return why a step has no result, or only a part; "" if it is whole."""
    step = recording.data["steps"].get(name)
    if step is None:
        return "not in this recording"
    if why := step.get("skipped"):
        return str(why)[:120]
    if why := step.get("error"):
        return f"it failed: {why}"[:120]
    return "" if step.get("complete", True) else "its time ended, so a part is missing"


def missing(recording: Recording, names: Iterable[str] = STEPS) -> list[str]:
    """Return a phrase for each step that a recording lacks, or has only in part."""
    return [f"{STEPS[name]}: {why}" for name in names if (why := why_missing(recording, name))]


def shape_name(recording: Recording) -> str:
    """Return the model whose shape the target of a recording has."""
    step = recording.data["steps"].get("passes", {})
    layers = step.get("shape", {}).get("num_layers")
    known = {"synthetic": "target", "passes": "model", "trees": "model"}
    names = (recording.data["steps"].get(each, {}).get(field) for each, field in known.items())
    shapes = {32: "Llama-3.1-8B", 28: "Llama-3.2-3B"}
    return next(filter(None, names), None) or shapes.get(layers, "its target")


def title(recording: Recording) -> str:
    """Return the machine's name, after "your GPU" if it is the reader's own."""
    is_own = recording.name.startswith("your GPU/")
    return f"your GPU, {recording.machine}" if is_own else recording.machine


def recorded_pairs() -> list[dict]:
    """Return the pairs that this book and its reader measured, GPUs first."""
    found = [each for gpu in gpus() for each in gpu_pairs(gpu)]
    return found + [each for speed in recordings.speeds() for each in cpu_pairs(speed)]


def gpu_pairs(recording: Recording) -> list[dict]:
    """Return the shipped pair in its modes, and rounds of a real shape with synthetic acceptance."""
    steps, found = recording.data["steps"], []
    group = f"{title(recording)} (measured here)"
    for mode, words in MODES.items():
        for t in (0, 1):
            for name, step in whole_rounds(steps):
                if mode in (modes := step.get(f"T = {t}", {}).get("modes", {})):
                    label = f"{name}, T = {t}, {words}"
                    found.append(of_round(group, label, step["gamma"], modes[mode], recording))
    return [*found, *synthetic_pairs(recording)]


def whole_rounds(steps: dict) -> list[tuple[str, dict]]:
    """Return (name of the pair, its step) of every trained pair of a recording."""
    named = [steps.get(name, {}) for name in ("pair", "smollm2")]
    pairs = [("the shipped pair", steps.get("rounds", {}))]
    pairs += [(f"{step.get('target')} with {step.get('draft')}", step) for step in named]
    return [(name, step) for name, step in pairs if "gamma" in step]


def of_round(group: str, label: str, gamma: int, row: dict, recording: Recording) -> dict:
    """Return a recorded round of the shipped pair."""
    alone, speedup = row["alone"], row["speedup"]["value"]
    verify = alone["verify"] / alone["one"]
    facts = [
        real_forecast(alone["predicted"], speedup),
        ["T(1) alone", f"{1e3 * alone['one']:.2f} ms"],
        ["T(1) in the loop, the unit of c", f"{1e3 * row['rounds']['target_seconds']:.2f} ms"],
        [f"T({gamma + 1}) ÷ T(1)", f"{verify:.2f}"],
    ]
    if "draft" in alone:  # a head has none
        facts.append(["a draft pass alone ÷ T(1)", f"{alone['draft'] / alone['one']:.2f}"])
    facts.append(["τ", f"{row['tau']:.2f}"])
    by = f"{recording.source}. {interval(row['speedup'])}. {REMAINDER}"
    more = {"alpha": row["alpha"] or 0.0, **costs_of(row["rounds"], verify, gamma)}
    return preset(group, label, speedup, gamma, by, **more, facts=facts)


def real_forecast(predicted: float, speedup: float) -> list[str]:
    """Return the fact that holds the forecast from passes timed alone against the measurement."""
    miss = predicted / speedup - 1
    return ["forecast from τ and passes alone", f"{predicted:.2f}×, {miss:+.0%} of the measured"]


def costs_of(parts: dict[str, float], verify: float, gamma: int) -> dict[str, float]:
    """Return c, t, o and o₀ of a round from its parts and T(γ + 1) ÷ T(1), timed alone.

    The device works while the host continues, so only the sum of a round's parts is certain: v comes
    from passes timed alone, c from the round, and o is the rest of the sum. If v leaves no rest,
    it is reduced to what the sum allows.
    """
    most = parts["verify"] + parts["other"] - 1
    step_cost = max(0.0, min(verify - 1, most)) / gamma
    return {
        "c": parts["draft"] / gamma,
        "step_cost": step_cost,
        "overhead": most - gamma * step_cost,
        "plain_overhead": parts["plain"] - 1,
    }


def interval(speedup: dict) -> str:
    """Return the 95 % interval of a speedup in words."""
    low, high = speedup["interval"]
    return f"95 % interval {low:.2f} to {high:.2f}"


def synthetic_pairs(recording: Recording) -> Iterator[dict]:
    """Yield rounds of a real shape whose drafts a coin accepts, with costs from single passes."""
    group, target = f"{title(recording)}, random weights (measured here)", shape_name(recording)
    by, gamma = f"{recording.source}. Random weights; a coin accepts each draft.", 4
    largest = max((row["batch"] for row in rows(recording, "synthetic")), default=0)
    for row in rows(recording, "synthetic"):
        batch = row["batch"]
        listed = row["draft"], 128 if batch == largest > 16 else batch
        if listed not in SYNTHETIC or row["gamma"] != gamma:
            continue
        times = cards.pass_times(recording.data, row["draft"])
        if times is None or not times.covers(batch, gamma + 1):
            continue
        one, draft = times.of_pass(batch, 1), times.of_round(batch, 1) - times.of_pass(batch, 2)
        verify = times.of_pass(batch, gamma + 1) / one
        label = f"shape of {target} with {row['draft']}, batch {batch}, α set to {ALPHA:g}"
        facts = [
            ["T(B, 1)", f"{1e3 * one:.2f} ms"],
            [f"T(B, {gamma + 1}) ÷ T(B, 1)", f"{verify:.2f}"],
            ["a draft pass in the loop", f"{1e3 * draft:.2f} ms"],
        ]
        costs = {"c": draft / one, "step_cost": (verify - 1) / gamma}
        speedup = row["speedup"][f"{ALPHA:g}"]
        yield preset(group, label, speedup, gamma, by, alpha=ALPHA, **costs, facts=facts)


def cpu_pairs(recording: Recording) -> Iterator[dict]:
    """Yield the rows of a recording of speed that no flag excludes."""
    group = f"{recording.machine}, two CPU cores (measured here)"
    for row in recording.data["rows"]:
        if row["flags"]:
            continue
        cost, gamma = row["prediction"], row["gamma"]
        name = f"the shipped pair, {row['dtype']}, {row['domain']}, T = {row['temperature']:g}"
        by = f"{recording.source}. {interval(row['speedup'])}."
        yield preset(
            *(group, name, row["speedup"]["value"], gamma, by),
            alpha=row["alpha"]["value"],
            c=cost["c_in_loop"],
            step_cost=max(0.0, cost["verify"] - 1) / gamma,
            overhead=cost["overhead"],
            plain_overhead=recordings.plain_cost(row) - 1,
            facts=[
                ["T(1)", f"{1e3 * cost['target_seconds']:.2f} ms"],
                [f"T({gamma + 1}) ÷ T(1)", f"{cost['verify']:.2f}"],
                ["τ", f"{row['tau']['value']:.2f}"],
            ],
        )
