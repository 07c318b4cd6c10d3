"""Tables and a timeline of the recordings that `python -m specdec_lite gpu` made."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from IPython.display import Markdown

from specdec_book.recordings import Recording, cards, measured, spread
from specdec_book.viz.gpu_figures import MODES, lanes_figure
from specdec_book.viz.tables import table
from specdec_lite.loading import hub, memory
from specdec_lite.measure import profiler

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""(title, header, lines)."""
WHOLE = 80
"""Layers of the model that the slices are cut from."""


def report(recordings: Iterable[Recording]) -> list:
    """Return the tables, each in a fold, and the timelines of the recordings.

    Tiny runs and runs without captured graphs are left out.
    """
    parts: list = []
    for recording in recordings:
        if not recording.data["graphs"] or recording.data["tiny"]:
            continue
        steps = recording.data["steps"]
        name = measured.title(recording)
        about = f"{name}, {recording.data['dtype']}; {recording.source}"
        parts += [
            table(
                header,
                lines,
                about if "trained" in title else f"Random weights. {about}",
                fold=f"{title}: {name}",
            )
            for title, header, lines in tables(steps)
        ]
        if absent := measured.missing(recording):
            lines = [phrase.split(": ", 1) for phrase in absent]
            fold = f"Not measured, or only in part: {name}"
            parts.append(table(("step", "why"), lines, about, fold=fold))
        if lanes := timeline(steps):
            parts.append(lanes_figure(lanes, "Whole drafts, launched one by one and captured."))
    return parts


DRIVE = "/content/drive/MyDrive/results"
"""Where the notebooks of Colab, each on a machine of its own, find one another's recordings."""


def announce() -> None:
    """Print which of the reader's cards the figures show and what they lack, or how to measure one.

    Nothing is printed where there is neither a GPU nor a recording.
    """
    own, notes = measured.scan()
    for gpu in own:
        absent = measured.missing(gpu)
        print(f"{measured.title(gpu)}, {gpu.date}" + ("; not, or only in part:" if absent else ""))
        for phrase in absent:
            print(f"  {phrase}")
    for note in notes:
        print(note)
    if not own and torch.cuda.is_available():
        print(
            "This GPU is not measured yet. Run this in a cell, then all cells again:\n"
            "!python -m specdec_lite gpu\nIn Colab, mount Drive and add"
            f" --out {DRIVE}: the other chapters find it there."
        )


def tables(steps: dict[str, dict]) -> Iterator[Table]:
    """Yield the tables of the steps that have rows."""
    full = {name: step for name, step in steps.items() if step.get("rows") or "lossless" in step}
    built = lambda **builders: [build(full) for name, build in builders.items() if name in full]
    results = built(passes=passes, slices=sliced, quarter=quarter, drafts=drafts, experts=experts)
    pairs = measured.whole_rounds(full)
    results += [build(*pair) for pair in pairs for build in (rounds, lossless)]
    results += [*built(synthetic=synthetic, trees=trees), low_bits(steps)]
    yield from (result for result in results if result and result[2])


def timeline(steps: dict[str, dict]) -> dict[str, list]:
    """Return the lanes of the trace: operations of a whole draft, on the host and on the GPU."""
    rows = steps.get("trace", {}).get("rows", ())
    operations = lambda row: [profiler.Operation(k, at, s, k) for k, at, s in row["operations"]]
    return {f"{row['mode']}, {row['lane']}": operations(row) for row in rows}


def seconds_by(rows: Iterable[dict], *names: str) -> dict[tuple, float]:
    """Return {values of the named fields: seconds}."""
    return {tuple(row[name] for name in names): row["seconds"] for row in rows}


def pivot(
    cells: dict[tuple, str], leads: Sequence[str], head: Callable, columns: Sequence = ()
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and lines of {(*key, column): text}: a line per key, "–" where it has no text.

    leads: what the parts of a key are. columns: their order; without it they ascend.
    """
    columns = columns or sorted({column for *_, column in cells})
    keys = dict.fromkeys(key[:-1] for key in cells)
    lines = [(*map(str, key), *(cells.get((*key, each), "–") for each in columns)) for key in keys]
    return (*leads, *map(head, columns)), lines


def relative(times: dict[tuple, float], first: str) -> tuple[tuple[str, ...], list[tuple]]:
    """Return header and lines: what leads, T(B, 1) in ms, T(B, k) ÷ T(B, 1); "–" if not measured."""
    cells = {
        key: f"{1e3 * t:.2f}" if key[2] == 1 else f"{t / times[*key[:2], 1]:.2f}"
        for key, t in sorted(times.items())
        if (*key[:2], 1) in times
    }
    head = lambda k: "T(1), ms" if k == 1 else f"T({k}) ÷ T(1)"
    return pivot(cells, (first, "batch"), head)


def passes(steps: dict, name: str = "passes") -> Table:
    """T(B, k) of the target by context and batch."""
    times = seconds_by(steps[name]["rows"], "context", "batch", "k")
    title = f"Captured passes of {steps[name]['parameters'] / 1e9:.1f} B parameters"
    return title, *relative(times, "context")


def quarter(steps: dict) -> Table:
    """T(B, k) of one of four cards that share a model, without their exchanges."""
    title, *rest = passes(steps, "quarter")
    return f"One of four cards that share {WHOLE} layers, no exchanges: {title}", *rest


def sliced(steps: dict) -> Table | None:
    """T(B, k) of all layers, from slices of two depths."""
    times = seconds_by(steps["slices"]["rows"], "layers", "context", "batch", "k")
    low, *_, high = sorted({key[0] for key in times}) * 2
    if low == high:
        return None
    whole = {}
    for layers, *key in times:
        if layers == low and (high, *key) in times:
            each = (times[high, *key] - times[low, *key]) / (high - low)
            whole[tuple(key)] = times[high, *key] + (WHOLE - high) * each
    title = f"{WHOLE} layers, more than one card holds, from slices of {low} and {high} layers"
    return title, *relative(whole, "context")


def drafts(steps: dict) -> Table | None:
    """c of every captured draft in the loop: seconds per drafted token in the target's T(B, 1).

    The target was not timed one by one, so a draft that was launched so has milliseconds instead.
    """
    context, rows = steps["drafts"]["context"], steps.get("passes", {}).get("rows", ())
    ones = seconds_by((row for row in rows if row["k"] == 1), "context", "batch")
    cells = {}
    for row in steps["drafts"]["rows"]:
        if one := ones.get((context, row["batch"])):
            each = row["seconds"] / row["drafted"]
            text = f"{each / one:.3f}" if row["mode"] == "captured" else f"{1e3 * each:.2f} ms"
            cells[row["draft"], row["mode"], row["batch"]] = text
    title = "c, per drafted token, in captured passes of the target"
    return title, *pivot(cells, ("draft", "passes"), "batch {}".format)


def experts(steps: dict) -> Table:
    """T(B, k) of the stack of experts by routing and batch."""
    step = steps["experts"]
    times = seconds_by(step["rows"], "routing", "batch", "k")
    title = f"{step['layers']} layers of {step['experts']} experts, {step['chosen']} per token"
    return title, *relative(times, "routing")


def rounds(pair: str, step: dict) -> Table:
    """Speedups of a trained pair by mode and temperature."""
    lines: list[tuple[str, ...]] = [
        (
            temperature,
            MODES.get(mode, mode),
            spread(row["speedup"]),
            over_fastest(step[temperature], mode, row),
            "–" if row["alpha"] is None else f"{row['alpha']:.2f}",
            f"{row['tau']:.2f}",
            f"{row['alone']['predicted']:.2f}",
            f"{row['rounds']['predicted']:.2f}",
        )
        for temperature in ("T = 0", "T = 1")
        for mode, row in step.get(temperature, {}).get("modes", {}).items()
    ]
    forecasts = ("forecast from passes timed alone", "from the round's own parts")
    over = "over the fastest plain decoding"
    header = ("temperature", "mode", "speedup", over, "α", "τ", *forecasts)
    return f"A trained pair, {pair}, γ = {step['gamma']}", header, lines


def over_fastest(step: dict, mode: str, row: dict) -> str:
    """Return a mode's speed over the fastest plain decoding, with its interval if that is recorded."""
    if "over_fastest" in row:
        return spread(row["over_fastest"])
    pace = step["tokens_per_second"]
    plain = max(value for name, value in pace.items() if name.startswith("plain"))
    return f"{pace[f'speculative {mode}'] / plain:.2f}"


def lossless(pair: str, step: dict) -> Table:
    """Where greedy texts leave the plain text."""
    lines = []
    for key in dict.fromkeys((row["dtype"], row["mode"]) for row in step["lossless"]):
        part = [row for row in step["lossless"] if (row["dtype"], row["mode"]) == key]
        gaps = [row["gap"] for row in part if row["diverges_at"] is not None]
        largest = f"{max(gaps):.1e}" if gaps else "–"
        lines.append((*key, f"{len(part) - len(gaps)} of {len(part)}", largest))
    header = ("dtype", "mode", "texts equal to plain decoding's", "largest gap of the logits")
    return f"Greedy texts of a trained pair, {pair}", header, lines


def synthetic(steps: dict) -> Table:
    """Speedups of whole rounds with synthetic acceptance by draft, γ and batch."""
    step, alpha = steps["synthetic"], f"{measured.ALPHA:g}"
    cells = {
        (row["draft"], row["gamma"], row["batch"]): f"{row['speedup'][alpha]:.2f}"
        for row in sorted(step["rows"], key=lambda row: (row["draft"], row["gamma"]))
    }
    title = f"Speedup of whole rounds of {step['target']}, α = {alpha}"
    return title, *pivot(cells, ("draft", "γ"), "batch {}".format)


def trees(steps: dict) -> Table:
    """Passes over trees beside chains of as many nodes, in passes over one token."""
    times = {(row["nodes"], row["kind"]): row["seconds"] for row in steps["trees"]["rows"]}
    one = times.pop((0, "one token"), None)
    cells = {key: f"{t / one:.2f}" for key, t in sorted(times.items())} if one else {}
    title = f"Batch 1, the shape of {steps['trees']['model']} in graphs, under a mask"
    return title, *pivot(cells, ("drafted nodes",), "{}, T(1 + n) ÷ T(1)".format)


def low_bits(steps: dict) -> Table | None:
    """Products with the same matrix in 16, 8 and 4 bits, by number of rows."""
    products = steps.get("card", {}).get("products", {})
    found = {
        name: {row["rows"]: row["seconds"] for row in rows}
        for name, key in (("16 bits", "rows"), ("FP8", "FP8"), ("4 bits", "4 bits"))
        if isinstance(rows := products.get(key), list)
    }
    if len(found) < 2:
        return None
    cells = {
        (count, name): f"{1e6 * seconds:.0f}"
        for name, rows in found.items()
        for count, seconds in rows.items()
    }
    title = "One product, {} × {}".format(*products["matrix"])
    return title, *pivot(cells, ("rows",), "{}, µs".format, list(found))


# Pairs for a card -----------------------------------------------------------------------------------

DATASHEETS = {
    8: ("RTX 4060", 272e9),
    16: ("T4", 320e9),
    24: ("RTX 4090", 1008e9),
    80: ("H100", 3350e9),
}
"""{GB: (card, bytes per second of its data sheet)}."""
PER_LAYER = 25e-6
"""Seconds of a layer at best: about ten operations of 2.5 µs."""


def pairs_table() -> Markdown:
    """Return the table of pairs by card, with c at best; the reader's measured cards come first."""
    cards_of: list[tuple] = []
    for gpu in measured.own_gpus():
        speeds, card = cards.speeds(gpu.data), gpu.data["steps"].get("card", {})
        if speeds is not None and "memory_bytes" in card:
            size = card["memory_bytes"]
            fitting = [pair for pair in hub.hub_pairs() if pair.bytes() < size]
            name = f"{size / 1e9:.0f} GB, {measured.title(gpu)}"
            layer = cards.OPERATIONS * speeds["least"]
            cards_of.append((name, speeds["bandwidth"], layer, fitting))
    for size, (card, bandwidth) in DATASHEETS.items():
        fitting = [pair for pair in hub.hub_pairs() if pair.card == size]
        cards_of.append((f"{size} GB, {card}", bandwidth, PER_LAYER, fitting))
    lines = []
    for name, bandwidth, layer, pairs in cards_of:
        for pair in pairs:
            large, small = (
                max(2 * size.parameters / bandwidth, layer * layers)
                for size, layers in zip(pair.sizes, pair.layers)
            )
            layers = ", ".join(map(str, pair.layers))
            cells = (name, pair.target, pair.draft, layers, f"{small / large:.2f}")
            lines.append((*cells, memory.gigabytes(pair.bytes()), pair.licenses[0]))
    header = ("card", "target", "draft", "layers", "c at best", "memory, 4,096 tokens", "license")
    return table(header, lines, "A card without bfloat16, such as the T4, computes in float16")


# What to doubt ------------------------------------------------------------------------------------


def doubts(recording: Recording) -> Markdown:
    """Return the table of what was checked in a recording, and how far to trust it."""
    checks = doubts_of_passes, doubts_of_experts, doubts_of_rounds, doubts_of_synthetic
    lines = [line for check in checks for line in check(recording.data["steps"])]
    header = ("checked", "recorded", "so")
    return table(header, lines, fold="What we checked, and what to doubt", source=recording.source)


def doubts_of_passes(steps: dict) -> Iterator[tuple[str, str, str]]:
    """Yield the lines about passes: bounds, order in k, clocks, and memory."""
    card, step = steps.get("card", {}), steps.get("passes", {})
    if not step.get("rows") or "peak" not in card:
        return
    short = min(row["context"] for row in step["rows"])
    times = {(r["batch"], r["k"]): r["seconds"] for r in step["rows"] if r["context"] == short}
    weights = 2 * cards.network(step).parameters
    batch, k = max(times)
    share = weights * batch * k / times[batch, k] / card["peak"]["flops"]
    plausible = lambda is_so: "plausible" if is_so else "impossible: doubt the card's own speeds"
    if (1, 1) in times:
        over = times[1, 1] / (weights / card["read_bandwidth"])
        bytes_alone = f"T(1, 1) is {over:.2f} times the time to read the weights"
        yield "a pass is not faster than its bytes", bytes_alone, plausible(over > 0.97)
    arithmetic = f"{batch} × {k} tokens: {share:.0%} of the measured peak"
    yield "a pass is not faster than its arithmetic", arithmetic, plausible(share < 1.03)
    drops = []
    for rows in (steps.get(name, {}).get("rows", ()) for name in ("passes", "slices", "quarter")):
        cells = {(r.get("layers"), r["context"], r["batch"], r["k"]): r["seconds"] for r in rows}
        ordered = sorted(cells, key=lambda key: (key[0] or 0, *key[1:]))
        pairs = zip(ordered, ordered[1:])
        drops += [1 - cells[b] / cells[a] for a, b in pairs if a[:3] == b[:3]]
    yield (
        "T(B, k) does not fall with k",
        f"it falls in {sum(d > 0 for d in drops)} of {len(drops)} steps, by at most"
        f" {max(drops, default=0):.1%}",
        "trust no difference below that",
    )
    clock, most = (
        ((state.get("end") or {}).get("gpu") or {}).get(name, "not reported")
        for state, name in ((step.get("state", {}), "clocks.sm"), (card["state"], "clocks.max.sm"))
    )
    clocks = f"{clock} at the end of the step, {most} at most"
    limit = "below its limit, for power or heat, large passes take longer"
    yield "the clock is steady", clocks, limit
    shared = [r["batch"] for r in step["rows"] if r["own_layers"] < step["shape"]["num_layers"]]
    fit, so = "all", "the bytes read are right"
    if shared:
        fit = f"from batch {min(shared)} on at the longer context, layers share a cache"
        so += "; such a server would not fit the card"
    yield "the caches fit", fit, so


def doubts_of_experts(steps: dict) -> Iterator[tuple[str, str, str]]:
    """Yield the line about the stack of experts, whose sorting is not an engine's."""
    step = steps.get("experts", {})
    ones = [r for r in step.get("rows", ()) if (r["batch"], r["k"]) == (1, 1)]
    if not ones or "peak" not in steps.get("card", {}):
        return
    experts = step["layers"] * (ones[0]["experts_used"] - 1) * step["bytes_per_expert"]
    embeddings = 2 * step["shape"]["vocab_size"] * step["shape"]["hidden_size"]
    # the counted parameters contain one expert per layer
    read = (2 * step["parameters"] - embeddings + experts) / steps["card"]["read_bandwidth"]
    yield (
        "a pass over experts waits for their bytes",
        f"T(1, 1) is {ones[0]['seconds'] / read:.1f} times the time of its bytes",
        "sorting and counting take the rest, so T(k) ÷ T(1) is lower than a good engine's",
    )


def doubts_of_rounds(steps: dict) -> Iterator[tuple[str, str, str]]:
    """Yield the lines about rounds of the shipped pair."""
    step = steps.get("rounds", {})
    modes, sampled = (step.get(f"T = {t}", {}).get("modes", {}) for t in (0, 1))
    if not modes or not {"static", "static, whole draft"} <= sampled.keys():
        return
    exact = [row for row in step["lossless"] if row["dtype"] == "float32"]
    other = [row for row in step["lossless"] if row not in exact and row["diverges_at"] is not None]
    same = sum(row["diverges_at"] is None for row in exact)
    ties = [row["gap"] <= 1e-5 * row["largest_logit"] for row in exact if "gap" in row]
    half = next((row["dtype"] for row in step["lossless"] if row not in exact), "bfloat16")
    yield (
        "greedy text equals plain text",
        f"float32: {same} of {len(exact)}; {half}: {len(other)} differ, at gaps of at most"
        f" {max((row['gap'] for row in other), default=0):.3f} between the two logits",
        f"{'lossless' if all(ties) else 'a fault: float32 texts differ where no logits tie'};"
        f" {half} rounds logits of that size to steps of {0.008 if half == 'float16' else 0.06}",
    )
    alone = [mode["alone"]["one"] for rows in (modes, sampled) for mode in list(rows.values())[:2]]
    yield (
        "passes launched one by one take the same time at any moment",
        f"T(1) alone: {1e3 * min(alone):.1f} to {1e3 * max(alone):.1f} ms",
        "the host's speed varies: compare turns, not tokens per second across rows",
    )
    verify = sampled["static, whole draft"]["rounds"]["verify"]
    yield (
        "each part of a round is at least its pass",
        f"whole draft, T = 1: verification takes {verify:.2f} plain passes",
        "host and GPU overlap, so trust the sum of the parts only",
    )
    plain = sampled["static"]["rounds"]["plain"]
    yield (
        "a ratio compares like with like",
        f"a plain step in graphs takes {plain:.2f} passes: the rest is our host's work",
        "a better plain loop would lower the speedup",
    )
    prompts = len({row["prompt"] for row in step["lossless"]})
    yield (
        "how many turns",
        f"{step['T = 0']['turns']} paired turns at each temperature, {prompts} prompts of code",
        "intervals are over these prompts; other text, other α",
    )


def doubts_of_synthetic(steps: dict) -> Iterator[tuple[str, str, str]]:
    """Yield the line about the map of speedups."""
    rows = steps.get("synthetic", {}).get("rows", ())
    at_64 = {(r["draft"], r["gamma"]): r["round_seconds"] for r in rows if r["batch"] == 64}
    drafts = {draft for draft, _ in at_64 if {(draft, 6), (draft, 8)} <= at_64.keys()}
    ratios = [at_64[draft, 6] / at_64[draft, 8] for draft in drafts]
    if max(ratios, default=0) >= 0.95:
        yield (
            "a longer draft costs more",
            f"batch 64: a round of γ = 6 takes {min(ratios):.2f} to {max(ratios):.2f} of one of γ = 8",
            "probably a slow kernel for seven tokens per row; T(64, 7) was not timed",
        )


# Forecasts from passes timed alone ------------------------------------------------------------------


def shape_misses(recording: Recording) -> dict[tuple[str, int, int], float]:
    """Return {(draft, γ, batch): forecast ÷ measured − 1} of rounds with random weights.

    The forecast is made of T(B, k) and drafts timed alone; both sides have the same tokens.
    """
    misses = {}
    for row in measured.rows(recording, "synthetic"):
        batch, gamma = row["batch"], row["gamma"]
        times = cards.pass_times(recording.data, row["draft"])
        if times is None or not times.covers(batch, max(2, gamma + 1)):
            continue
        draft = times.of_round(batch, 1) - times.of_pass(batch, 2)
        cost = (times.of_pass(batch, gamma + 1) + gamma * draft) / times.of_pass(batch, 1)
        measured_cost = row["round_seconds"] / row["plain_seconds"]
        misses[row["draft"], gamma, batch] = measured_cost / cost - 1
    return misses


def real_forecasts(recording: Recording) -> Markdown:
    """Return the table of what forecasts from passes timed alone miss by."""
    rows: dict[str, list[float]] = {}
    for pair, step in measured.whole_rounds(recording.data["steps"]):
        for temperature in ("T = 0", "T = 1"):
            for mode, row in step.get(temperature, {}).get("modes", {}).items():
                miss = row["alone"]["predicted"] / row["speedup"]["value"] - 1
                kind = "one by one" if mode.startswith("eager") else "in graphs"
                rows.setdefault(f"{pair}, {temperature}, {kind}", []).append(miss)
    shape = measured.shape_name(recording)
    for (*_, batch), miss in sorted(shape_misses(recording).items(), key=lambda item: item[0][2]):
        rows.setdefault(f"shape of {shape} with a coin, batch {batch}", []).append(miss)
    lines = [
        (name, str(len(misses)), f"{min(misses):+.0%} to {max(misses):+.0%}")
        for name, misses in rows.items()
    ]
    caption = (
        "A forecast knows T(1), T(γ + 1), a draft pass alone, and τ; nothing of the host's work"
    )
    if recording.name == measured.BOOK:
        caption += ". At batch 64 those of γ = 6 miss most: perhaps a slow kernel for seven tokens"
    header = ("rounds", "measured", "forecast ÷ measured − 1")
    return table(header, lines, caption, source=recording.source)
