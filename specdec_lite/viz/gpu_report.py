"""What a recording made on a GPU says, and passes drawn operation by operation.

What lives here: the lines and figures. What does not: how they are measured (`benchmarks.gpu`,
`measure.profiler`).
"""

import plotly.graph_objects as go

from specdec_lite.measure import profiler
from specdec_lite.measure.results import Recording
from specdec_lite.viz.theme import PALETTE, figure

MARKS = {"eager": ("circle", "solid"), "static": ("x", "dash")}


def lanes_figure(lanes: dict[str, list], said: str) -> go.Figure:
    """A timeline of passes: a lane each, a bar for every operation from its start to its end.

    lanes: {name: operations of `measure.profiler`}. said: the last sentence of the alternative.
    """
    fig = go.Figure()
    for kind, colour, pattern in (
        ("weights", "target", ""),
        ("attention", "draft", "/"),
        ("other", "neutral", "x"),
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
            marker_pattern=dict(shape=pattern, fillmode="overlay", size=6),
        )
    fig.update_layout(
        title="Most of a small pass is not arithmetic",
        barmode="overlay",
        height=180 + 60 * len(lanes),
        xaxis_title="µs since the first operation, profiler running",
        yaxis=dict(title="lane", categoryorder="array", categoryarray=list(lanes)[::-1]),
    )
    return figure(
        fig,
        alt=f"Timeline of one pass, in lanes: {'; '.join(lanes)}. Each operation is a bar from its"
        " start to its end, plain for products with weights, striped for attention, crossed for"
        f" all else. {said}",
    )


def report(recordings: list[Recording]) -> list[go.Figure]:
    """Print what each recording of a GPU holds, and return its figures: passes by their tokens, and
    a drafting pass in lanes. Tiny runs and those without captured graphs are left out.
    """
    whole = [
        found for found in recordings if found.data.get("graphs") and not found.data.get("tiny")
    ]
    return [drawn for found in whole for drawn in (_passes(found), _pair(found))]


def _passes(found: Recording) -> go.Figure:
    print(found.source)
    fig, batches = go.Figure(), found.data["batches"]["rows"]
    for row in found.data["passes"]["rows"]:
        mode, single, (symbol, dash) = row["mode"], row["chains"]["1"], MARKS[row["mode"]]
        trees = ", ".join(f"{n}: {t / single:.2f}" for n, t in row["trees"].items())
        wide = ", ".join(
            f"{b['batch']}: {b['verify'] / b['one']:.2f}" for b in batches if b["mode"] == mode
        )
        print(f"  {mode:6s} random weights: {row['bandwidth_share']:.0%} of the copy bandwidth")
        print(f"  {mode:6s} random weights, trees by nodes, in T(1): {trees}")
        print(f"  {mode:6s} trained target, T(γ+1)/T(1) by batch: {wide}")
        fig.add_scatter(
            name=mode,
            x=[int(k) for k in row["chains"]],
            y=[1e3 * seconds for seconds in row["chains"].values()],
            line_dash=dash,
            mode="lines+markers",
            marker=dict(symbol=symbol, size=9),
        )
    fig.update_layout(
        title=f"A pass by its tokens, {found.machine}",
        xaxis_title="tokens in one target pass, k (random weights)",
        yaxis_title="ms",
        yaxis_rangemode="tozero",
    )
    return figure(
        fig,
        alt=f"Milliseconds of a pass on {found.machine} by its tokens, random weights, eager and"
        " with captured graphs.",
    )


def _pair(found: Recording) -> go.Figure:
    exact = found.data["losslessness"]
    for dtype, apart in exact["one_against_many"].items():
        print(f"{dtype}: logits of a block and of single steps up to {apart:.1e} apart")
        for mode in MARKS:
            rows = [r for r in exact["rows"] if (r["mode"], r["dtype"]) == (mode, dtype)]
            gaps = [row["gap"] for row in rows if row["diverges_at"] is not None]
            print(
                f"  {mode:6s} {len(gaps)} of {len(rows)} greedy texts leave the plain one"
                + (f", at a gap of at most {max(gaps):.1e}" if gaps else "")
            )
    for row in found.data["speed"]["rows"]:
        mode, rates = row["mode"], row["tokens_per_second"]
        print(
            f"  {mode:6s} T={row['temperature']:g}: α {row['alpha']:.2f}, τ {row['tau']:.2f},"
            f" c {row['c']:.2f} ({row['c_in_loop']:.2f} in the loop),"
            f" predicted {row['predicted']:.2f}×, measured {row['measured']:.2f}×"
        )
        print(
            f"  {mode:6s} T={row['temperature']:g}: {rates[f'speculative {mode}']:.0f} tokens/s,"
            f" Hugging Face assisted {rates['hf assisted']:.0f}"
        )
    for row in found.data["depth"]["rows"]:
        print(f"  {row['mode']:6s} {row['draft']} draft, random weights: c {row['c']:.2f}")
    lanes = {
        f"{row['mode']}, {row['lane']}": [
            profiler.Operation(kind, *times, kind) for kind, *times in row["operations"]
        ]
        for row in found.data["timeline"]["rows"]
    }
    return lanes_figure(lanes, "The trained draft, launched one by one and captured.")
