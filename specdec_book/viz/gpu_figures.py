"""Figures of the recordings made on a GPU: passes by their tokens, by operation and on a map."""

# plotly defines its attributes at run time
# pyright: reportAttributeAccessIssue=false

import numpy as np
import plotly.graph_objects as go

from specdec_book.viz.cells import cells
from specdec_book.viz.figure import figure
from specdec_book.viz.theme import PALETTE
from specdec_lite import theory
from specdec_lite.measure import profiler

MARKS = {"eager": ("circle", "solid"), "static": ("x", "dash")}


def figures(steps: dict[str, dict], machine: str) -> list[go.Figure]:
    """Return the figures of one machine, one for each part that was recorded."""
    drawn = [
        passes_figure(data, machine) for name, data in steps.items() if name.startswith("passes-")
    ]
    if "kernels" in steps:
        lanes = {
            f"{row['mode']}, {row['lane']}": [
                profiler.Operation(kind, start, seconds, kind)
                for kind, start, seconds in row["operations"]
            ]
            for row in steps["kernels"]["rows"]
        }
        drawn.append(lanes_figure(lanes, "The draft, launched one by one and captured."))
    if "grid" in steps:
        drawn.append(map_figure(steps["grid"], machine))
    return drawn


def lanes_figure(lanes: dict[str, list], note: str) -> go.Figure:
    """Draw a timeline of passes: one lane per pass, one bar per operation."""
    fig = go.Figure()
    for kind, color, width in (
        ("weights", "one", 0.8),
        ("attention", "other", 0.5),
        ("other", "neutral", 0.25),
    ):
        bars = [(lane, op) for lane, ops in lanes.items() for op in ops if op.kind == kind]
        fig.add_bar(
            name=kind,
            orientation="h",
            y=[lane for lane, _ in bars],
            base=[1e6 * op.start for _, op in bars],
            x=[1e6 * op.seconds for _, op in bars],
            hovertext=[op.name for _, op in bars],
            hovertemplate="%{hovertext}: %{x:.0f} µs<extra></extra>",
            marker=dict(color=PALETTE[color], line_width=0),
            width=width,
        )
    name, operations = next(iter(lanes.items()))
    share = profiler.share(operations, "weights")
    fig.update_layout(
        title=f"{name}: products with weights take {share:.0%} of the pass",
        barmode="overlay",
        height=180 + 60 * len(lanes),
        xaxis_title="µs since the first operation, profiler running",
        yaxis=dict(categoryorder="array", categoryarray=list(lanes)[::-1]),
    )
    return figure(
        fig,
        alt=f"Timeline of one pass, in lanes: {'; '.join(lanes)}. Each operation is a bar from its"
        " start to its end. Products with weights are tall, attention is lower, everything else is"
        f" lowest. {note}",
    )


def passes_figure(data: dict, machine: str) -> go.Figure:
    """Draw the milliseconds of a pass against its tokens, eager and with static shapes."""
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
        alt=f"Milliseconds of a pass on {machine} against its tokens, for {data['shape']} of random"
        " weights, eager and with static shapes.",
    )


def static_gain(rows: list[dict]) -> str:
    """Return a sentence about the speedup of the shortest pass by static shapes."""
    first = {row["mode"]: next(iter(row["chains"].values())) for row in rows}
    if len(first) < 2:
        return f"A pass over the fewest tokens takes {1e3 * min(first.values()):.1f} ms"
    return (
        f"Static shapes make the shortest pass {first['eager'] / first['static']:.1f} times as fast"
    )


def map_figure(data: dict, machine: str, alpha: float = 0.8, max_gamma: int = 16) -> go.Figure:
    """Draw the predicted speedup by γ and batch size, one grid per context.

    Times between the measured k are interpolated; combinations that were not measured are blank.
    """
    contexts = sorted({row["context"] for row in data["rows"]})
    sizes = sorted({row["batch"] for row in data["rows"]}, reverse=True)
    gammas = list(range(1, min(max_gamma, max(data["ks"]) - 1) + 1))
    measured = {
        (row["context"], row["batch"]): speedups(row, data["ks"], gammas, alpha)
        for row in data["rows"]
    }
    blank = [None] * len(gammas)
    grids = {f"context {n}": [measured.get((n, size), blank) for size in sizes] for n in contexts}
    fig = cells(grids, gammas, sizes, middle=1, scale=f"speedup at α = {alpha:g}", across=1)
    pays = [size for (_, size), row in measured.items() if max(row) > 1]
    fig.update_layout(
        title=f"Speculation pays up to batches of {max(pays)}"
        if pays
        else "Speculation pays at no batch size"
    )
    fig.update_xaxes(title="γ", row=len(grids))
    fig.update_yaxes(title="batch size")
    alt = (
        f"Grids of the speedup on {machine} by γ and batch size, one for each context, predicted"
        f" from passes with random weights and an acceptance rate of {alpha:g}."
    )
    return figure(fig, alt=alt)


def speedups(row: dict, ks: list[int], gammas: list[int], alpha: float) -> list[float]:
    """Return the speedup that the corrected formula predicts at each γ."""
    one = row["target"][0]
    verify = np.interp([gamma + 1 for gamma in gammas], ks, row["target"]) / one
    tokens = [theory.expected_tokens(alpha, gamma) for gamma in gammas]
    return [
        float(theory.corrected_improvement(count, gamma, row["draft"] / one, float(v)))
        for count, gamma, v in zip(tokens, gammas, verify)
    ]
