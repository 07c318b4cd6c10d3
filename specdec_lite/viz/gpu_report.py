"""What the recordings made on a GPU say, and passes drawn operation by operation.

What lives here: the tables and figures. What does not: how they are measured (`benchmarks.gpu`,
`measure.profiler`).
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import plotly.graph_objects as go

from specdec_lite import theory
from specdec_lite.loading.memory import gigabytes
from specdec_lite.measure import profiler
from specdec_lite.measure.results import Recording, spread
from specdec_lite.viz.cells import cells
from specdec_lite.viz.figure import figure
from specdec_lite.viz.tables import table
from specdec_lite.viz.theme import PALETTE

MARKS = {"eager": ("circle", "solid"), "static": ("x", "dash")}


def lanes_figure(lanes: dict[str, list], said: str) -> go.Figure:
    """A timeline of passes: a lane each, a bar for every operation from its start to its end.

    lanes: {name: operations of `measure.profiler`}. said: the last sentence of the alternative.
    """
    fig = go.Figure()
    for kind, colour, width in (
        ("weights", "target", 0.8),
        ("attention", "draft", 0.5),
        ("other", "neutral", 0.25),
    ):
        bars = [(lane, op) for lane, found in lanes.items() for op in found if op.kind == kind]
        fig.add_bar(
            name=kind,
            orientation="h",
            y=[lane for lane, _ in bars],
            base=[1e6 * op.start for _, op in bars],
            x=[1e6 * op.seconds for _, op in bars],
            hovertext=[op.name for _, op in bars],
            hovertemplate="%{hovertext}: %{x:.0f} µs<extra></extra>",
            marker=dict(color=PALETTE[colour], line_width=0),
            width=width,
        )
    name, found = next(iter(lanes.items()))
    share = profiler.share(found, "weights")
    fig.update_layout(
        title=f"{name}: products with weights fill {share:.0%} of its pass",
        barmode="overlay",
        height=180 + 60 * len(lanes),
        xaxis_title="µs since the first operation, profiler running",
        yaxis=dict(categoryorder="array", categoryarray=list(lanes)[::-1]),
    )
    return figure(
        fig,
        alt=f"Timeline of one pass, in lanes: {'; '.join(lanes)}. Each operation is a bar from its"
        " start to its end: tall for products with weights, lower for attention, lowest for all"
        f" else. {said}",
    )


Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""(title, header, lines)."""


def report(recordings: Iterable[Recording]) -> list:
    """What the recordings of a GPU hold, as tables and figures; one sentence where there are none.
    Tiny runs and those without captured graphs are left out.
    """
    groups: dict[tuple[str, str], list[Recording]] = {}
    for found in recordings:
        if found.data.get("graphs") and not found.data.get("tiny"):
            groups.setdefault((found.machine, found.data["dtype"]), []).append(found)
    shown: list = []
    for (machine, dtype), group in groups.items():
        about = f"{machine}, {dtype}; {group[0].source}"
        found = {recording.data["step"]: recording.data for recording in group}
        shown += [
            table(header, lines, f"{title}. {about}") for title, header, lines in tables(found)
        ]
        shown += figures(found, machine)
    if not shown:
        print("No recording of a GPU lies in results/ yet: `make bench-gpu` makes them.")
    return shown


def tables(found: dict[str, dict]) -> Iterator[Table]:
    """Of the data of each step: what is captured, passes, drafting, texts, rounds, batches, memory.

    found: {step: data}, of the steps that there are.
    """
    for make in (
        _captured,
        _first,
        _drafting,
        _passes,
        _texts,
        _rounds,
        _depth,
        _footprint,
        _longer,
    ):
        if made := make(found):
            yield made


def _by_mode(rows: list[dict], modes: Iterable[str], what: str, figure: Callable) -> tuple:
    cells = ({row["mode"]: row for row in rows}.get(mode) for mode in modes)
    return what, *(figure(row) if row else "–" for row in cells)


def _captured(found: dict) -> Table | None:
    if "captured" not in found:
        return None
    rows = found["captured"]["rows"]
    keys = dict.fromkeys((row["dtype"], row["attention"], row["after"]) for row in rows)
    lines = []
    for key in keys:
        part = [row for row in rows if (row["dtype"], row["attention"], row["after"]) == key]
        worst = max(part, key=lambda row: row["difference"])
        lines.append(
            (
                *key,
                f"{worst['difference']:.1e}",
                f"{worst['largest_logit']:.1f}",
                f"{worst['size']}",
            )
        )
    header = ("format", "attention", "after", "largest difference", "of logits up to", "tokens")
    return "Passes of fixed shape against growing ones", header, lines


def _first(found: dict) -> Table | None:
    if "first-steps" not in found:
        return None
    lines = []
    for row in found["first-steps"]["rows"]:
        times = sorted(row["seconds"])
        usual = times[len(times) // 2]
        slow = sum(one > 3 * usual for one in times)
        lines.append(
            (
                row["attention"],
                f"{row['tokens']}",
                f"{1e3 * usual:.1f} ms",
                f"{1e3 * times[-1]:.1f} ms",
                f"{slow} of {len(times)}",
            )
        )
    header = ("attention", "tokens a step", "median", "slowest", "three times the median")
    return "The first eager steps, one by one", header, lines


def _drafting(found: dict) -> Table | None:
    if "kernels" not in found:
        return None
    names = found["kernels"]["attention_kernels"]
    lines = [
        (
            row["mode"],
            row["lane"],
            f"{len(row['operations'])}",
            f"{1e6 * row['busy']:.0f} µs",
            f"{row['shares']['gap']:.0%}",
            ", ".join(name[:40] for name in names.get(row["mode"], ())) or "–",
        )
        for row in found["kernels"]["rows"]
    ]
    header = ("the draft's", "seen by", "operations", "busy", "gaps", "attention kernel")
    return "A pass of the draft, and a whole draft", header, lines


def _passes(found: dict) -> Table | None:
    lines = []
    for data in (found[name] for name in found if name.startswith("passes-")):
        for row in data["rows"]:
            single = row["chains"]["1"]
            wide = ", ".join(f"{k}: {t / single:.2f}" for k, t in row["chains"].items() if k != "1")
            trees = ", ".join(f"{n}: {t / single:.2f}" for n, t in row["trees"].items())
            ms = f"{1e3 * single:.2f} ms"
            lines.append(
                (data["shape"], row["mode"], ms, f"{row['bandwidth_share']:.0%}", wide, trees)
            )
    header = ("weights", "passes", "T(1)", "bandwidth", "T(k)/T(1)", "trees, by nodes")
    return ("Passes of a target, random weights", header, lines) if lines else None


def _texts(found: dict) -> Table | None:
    if "losslessness" not in found:
        return None
    exact, lines = found["losslessness"], []
    for dtype, apart in exact["one_against_many"].items():
        for mode in dict.fromkeys(row["mode"] for row in exact["rows"]):
            rows = [row for row in exact["rows"] if (row["mode"], row["dtype"]) == (mode, dtype)]
            gaps = [row["gap"] for row in rows if row["diverges_at"] is not None]
            left = f"{len(gaps)} of {len(rows)}"
            lines.append((dtype, mode, left, f"{max(gaps):.1e}" if gaps else "–", f"{apart:.1e}"))
    header = ("format", "rounds", "texts that leave the plain one", "gap there", "one pass, many")
    return "Greedy text against plain decoding", header, lines


def _rounds(found: dict) -> Table | None:
    lines, modes = [], ()
    for data in (found[name] for name in ("greedy", "sampled") if name in found):
        rows, rates = data["rows"], data["tokens_per_second"]
        modes = tuple(row["mode"] for row in rows)
        at = f"T = {data['temperature']:g}: "
        lines += [
            _by_mode(rows, modes, at + what, figure)
            for what, figure in (
                ("α, τ", lambda row: f"{_number(row['alpha'])}, {row['tau']:.2f}"),
                (
                    "c alone, in the loop",
                    lambda r: _pair(r["alone"]["c"], r["rounds"]["c_in_loop"]),
                ),
                (
                    "T(γ+1)/T(1) alone, loop",
                    lambda r: _pair(r["alone"]["verify"], r["rounds"]["verify"]),
                ),
                ("the rest of a round", lambda row: f"{row['rounds']['other']:.2f}"),
                ("predicted from passes alone", lambda row: f"{row['alone']['predicted']:.2f}×"),
                ("predicted from the rounds", lambda row: f"{row['rounds']['predicted']:.2f}×"),
                ("measured", lambda row: f"{spread(row['speedup'])}×"),
                ("tokens/s", lambda row: f"{rates['speculative ' + row['mode']]:.0f}"),
            )
        ]
        theirs = ", ".join(f"{n[3:]} {rate:.0f}" for n, rate in rates.items() if n.startswith("hf"))
        blank = ("",) * (len(modes) - 1)
        lines.append((f"{at}Hugging Face, tokens/s", theirs, *blank))
        lines += [(f"{at}{name}, not run", why, *blank) for name, why in data["not_run"].items()]
    return ("Rounds of the trained pair", ("what", *modes), lines) if lines else None


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _pair(one: float, other: float) -> str:
    return f"{one:.2f}, {other:.2f}"


def _depth(found: dict) -> Table | None:
    lines = [
        (f"{row['draft']} draft, {row['layers']} layers", row["mode"], f"{row['c']:.2f}")
        for row in found.get("depth", {"rows": ()})["rows"]
    ]
    lines += [
        (f"batch {row['batch']}", row["mode"], f"T(γ+1)/T(1) {row['verify'] / row['one']:.2f}")
        for row in found.get("batches", {"rows": ()})["rows"]
    ]
    header = ("random weights", "passes", "c, or the cost of verifying")
    return ("Shape and batch", header, lines) if lines else None


def _footprint(found: dict) -> Table | None:
    if "footprint" not in found:
        return None
    data = found["footprint"]
    added, first = data["draft_bytes"], data["first_token"]
    share = sum(added.values()) / data["target_bytes"]
    lines = [
        ("the draft's weights", gigabytes(added["weights"])),
        ("its cache", gigabytes(added["cache"])),
        ("both over the target's weights", f"{share:.1%}"),
        ("to the first token, plain", f"{1e3 * first['plain']:.1f} ms"),
        ("to the first token, speculative", f"{1e3 * first['speculative']:.1f} ms"),
    ]
    return "What the draft adds", ("what", "how much"), lines


def _longer(found: dict) -> Table | None:
    if "smollm2" not in found:
        return None
    data = found["smollm2"]
    lines = [
        (
            name,
            f"{data['steps'][name]}",
            f"{data['texts'][name]}",
            ", ".join(f"{x:.2f}" for x in data["greedy_agreement"][name]),
            f"{data['accepted_at_4'][name]:.2f}",
        )
        for name in ("shipped", "longer")
    ]
    header = ("head", "steps", "texts", "agreement by depth", "accepted of 4")
    return "A head for SmolLM2, trained longer", header, lines


def figures(found: dict[str, dict], machine: str) -> list[go.Figure]:
    """Passes by their tokens, passes in lanes, and the map, of the steps that there are."""
    drawn = [
        passes_figure(data, machine) for name, data in found.items() if name.startswith("passes-")
    ]
    if "kernels" in found:
        lanes = {
            f"{row['mode']}, {row['lane']}": [
                profiler.Operation(kind, *times, kind) for kind, *times in row["operations"]
            ]
            for row in found["kernels"]["rows"]
        }
        drawn.append(lanes_figure(lanes, "The draft, launched one by one and captured."))
    if "grid" in found:
        drawn.append(map_figure(found["grid"], machine))
    return drawn


def passes_figure(data: dict, machine: str) -> go.Figure:
    """Milliseconds of a pass by its tokens, eager and in static shapes. data: of a step "passes"."""
    fig = go.Figure()
    for row in data["rows"]:
        symbol, dash = MARKS[row["mode"]]
        fig.add_scatter(
            name=row["mode"],
            x=[int(k) for k in row["chains"]],
            y=[1e3 * seconds for seconds in row["chains"].values()],
            line_dash=dash,
            mode="lines+markers",
            marker=dict(symbol=symbol, size=9),
        )
    fig.update_layout(
        title=static_gain(data["rows"]),
        xaxis_title="tokens in one target pass, k",
        yaxis_title="ms",
        yaxis_rangemode="tozero",
    )
    return figure(
        fig,
        alt=f"Milliseconds of a pass on {machine} by its tokens, {data['shape']} of random weights,"
        " eager and in static shapes.",
    )


def static_gain(rows: list[dict]) -> str:
    """What static shapes bring to a pass over the fewest tokens, in a sentence."""
    first = {row["mode"]: next(iter(row["chains"].values())) for row in rows}
    if len(first) < 2:
        return f"A pass over the fewest tokens takes {1e3 * min(first.values()):.1f} ms"
    return (
        f"Static shapes make the shortest pass {first['eager'] / first['static']:.1f} times as fast"
    )


def map_figure(data: dict, machine: str, alpha: float = 0.8, most: int = 16) -> go.Figure:
    """The speedup by γ and batch size, a grid for every context; those not measured are blank.

    data: of the step "grid", whose passes are joined by straight lines between the measured k.
    """
    contexts = sorted({row["context"] for row in data["rows"]})
    sizes = sorted({row["batch"] for row in data["rows"]}, reverse=True)
    gammas = list(range(1, min(most, max(data["ks"]) - 1) + 1))
    measured = {
        (row["context"], row["batch"]): speedups(row, data["ks"], gammas, alpha)
        for row in data["rows"]
    }
    blank = [None] * len(gammas)
    grids = {f"context {n}": [measured.get((n, size), blank) for size in sizes] for n in contexts}
    fig = cells(grids, gammas, sizes, middle=1, scale=f"speedup at α = {alpha:g}", across=1)
    pays = [size for (_, size), row in measured.items() if max(row) > 1]
    fig.update_layout(
        title=f"Speculation pays up to batches of {max(pays)}" if pays else "It pays nowhere"
    )
    fig.update_xaxes(title="γ", row=len(grids))
    fig.update_yaxes(title="batch size")
    alt = f"Grids of the speedup on {machine} by γ and batch size, one for each context, from"
    return figure(fig, alt=f"{alt} passes with random weights and an acceptance of {alpha:g}.")


def speedups(row: dict, ks: list[int], gammas: list[int], alpha: float) -> list[float]:
    """What the corrected formula gives a row of the map at each γ."""
    one = row["target"][0]
    verify = np.interp([gamma + 1 for gamma in gammas], ks, row["target"]) / one
    return [
        theory.corrected_improvement(
            theory.expected_tokens(alpha, gamma), gamma, row["draft"] / one, float(v)
        )
        for gamma, v in zip(gammas, verify)
    ]
