"""Figures of the recordings of GPUs: passes, drafts, whole rounds, and a timeline of operations.

A reader's own recording (`recordings.measured.own_gpus`) is drawn beside the book's.
"""

# plotly defines its attributes at run time
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence

import plotly.graph_objects as go

from specdec_book.recordings import Recording, cards, measured
from specdec_book.viz.figure import figure
from specdec_book.viz.theme import PALETTE
from specdec_lite.measure import profiler

MODES = {
    "eager": "one by one",
    "eager, one read": "one by one, one read",
    "static, plain rule": "passes in graphs",
    "static": "passes in graphs, one read",
    "static, whole draft": "whole draft in a graph",
}
"""Recorded modes of a round, from slow to fast, in words."""
PLAIN = {"eager": MODES["eager"], "static": MODES["static, plain rule"]}
"""Recorded modes of plain decoding in words."""


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
    name, operations = list(lanes.items())[-1]
    share = profiler.share(operations, "weights")
    fig.update_layout(
        title=f"{name}, lowest lane: products with weights take {share:.0%} of its operations",
        barmode="overlay",
        height=180 + 36 * len(lanes),
        xaxis_title="µs since the first operation, profiler running",
        yaxis=dict(categoryorder="array", categoryarray=list(lanes)[::-1]),
    )
    return figure(
        fig,
        alt=f"Timeline of one pass, in lanes: {'; '.join(lanes)}. Each operation is a bar from its"
        " start to its end. Products with weights are tall, attention is lower, everything else is"
        f" lowest. {note}",
    )


def passes_figure(recordings: Sequence[Recording], batches: Sequence[int] = (1, 16, 64, 128)):
    """Return the figure of T(B, k) ÷ T(B, 1) of the large target, by k and batch."""
    fig, first, tokens = go.Figure(), {}, set()
    for recording in recordings:
        rows = recording.data["steps"].get("passes", {}).get("rows", ())
        context = min((row["context"] for row in rows), default=0)
        times = {(r["batch"], r["k"]): r["seconds"] for r in rows if r["context"] == context}
        own = measured.is_own(recording)
        for batch in batches:
            ks = sorted(k for b, k in times if b == batch)
            if 1 not in ks:
                continue
            ratios = [times[batch, k] / times[batch, 1] for k in ks]
            fig.add_scatter(
                name=f"your GPU, B = {batch}" if own else f"target, B = {batch}", x=ks, y=ratios
            )
            tokens.update(ks)
            if not own:
                first[batch] = ratios[-1]
    low, high = min(first), max(first)
    fig.update_layout(
        title=f"{max(tokens)} tokens take {first[low]:.2f} passes at batch {low}, and"
        f" {first[high]:.1f} at batch {high}",
        xaxis={"title": "k, tokens of each row in the pass", "tickvals": sorted(tokens)},
        yaxis={"title": "T(B, k) ÷ T(B, 1)", "rangemode": "tozero"},
    )
    step = recordings[0].data["steps"]["passes"]
    alt = (
        f"Time of a pass over k tokens in each of B rows ÷ time of a pass over one, for"
        f" {step['parameters'] / 1e9:.1f} B parameters in the shape of Llama-3.1-8B, random weights,"
        f" captured passes, context {context}."
    )
    subject = {f"target, B = {batch}": "target" for batch in (low, high)} | own_lines(fig)
    return figure(fig, alt, "gpu-passes", source=recordings[0].source, subject=subject)


def own_lines(fig: go.Figure) -> dict[str, str]:
    """Return the names of the reader's own lines with their role."""
    return {line.name: "you" for line in fig.data if line.name.startswith("your GPU")}


def map_figure(recordings: Sequence[Recording], alpha: float = 0.7, gammas=(1, 3, 6, 8)):
    """Return the figure of the measured speedup of whole rounds, by batch and γ, at one α."""
    fig, gains = go.Figure(), {}
    for recording in recordings:
        step = recording.data["steps"].get("synthetic", {})
        rows = [row for row in step.get("rows", ()) if row["draft"].startswith("head")]
        own = measured.is_own(recording)
        for gamma in gammas:
            mine = sorted(
                (r["batch"], r["speedup"][f"{alpha:g}"]) for r in rows if r["gamma"] == gamma
            )
            fig.add_scatter(
                name=f"your GPU, γ = {gamma}" if own else f"drafts, γ = {gamma}",
                x=[batch for batch, _ in mine],
                y=[speed for _, speed in mine],
            )
            if not own:
                gains[gamma] = dict(mine)
    batches, long = sorted(gains[1]), 6
    low, high = batches[0], batches[-1]
    fig.add_hline(y=1, line_dash="dot", line_color=PALETTE["neutral"])
    fig.update_layout(
        title=f"γ = {long} reaches {gains[long][low]:.2f}× at batch {low} and"
        f" {gains[long][high]:.2f}× at {high}, where γ = 1 reaches {gains[1][high]:.2f}×",
        xaxis={"title": "B, rows of the batch", "type": "log", "tickvals": batches},
        yaxis={"title": f"speedup at α = {alpha:g}", "rangemode": "tozero"},
    )
    step = recordings[0].data["steps"]["synthetic"]
    alt = (
        f"Speedup of whole rounds of {step['target']}'s shape with a one-layer head over plain rounds"
        f" timed beside them, context {step['context']}. Random weights; a coin accepts each draft with"
        f" probability {alpha:g}, so the cost is measured and the tokens are expected ones."
    )
    subject = {f"drafts, γ = {long}": "draft", "drafts, γ = 1": "one"} | own_lines(fig)
    return figure(fig, alt, "gpu-map", source=recordings[0].source, subject=subject)


def modes_figure(recordings: Sequence[Recording], temperature: int = 1):
    """Return the figure of tokens per second of the shipped pair, by how its rounds are launched."""
    fig = go.Figure()
    for recording in recordings:
        rounds = recording.data["steps"].get("rounds", {}).get(f"T = {temperature}")
        if not rounds:
            continue
        pace, own = rounds["tokens_per_second"], measured.is_own(recording)
        for kind, name, words in (("plain", "plain", PLAIN), ("speculative", "with drafts", MODES)):
            rows = {each: pace[f"{kind} {mode}"] for mode, each in words.items()}
            fig.add_bar(
                name=f"your GPU, {name}" if own else name,
                orientation="h",
                x=list(rows.values()),
                y=list(rows),
            )
    pace = recordings[0].data["steps"]["rounds"][f"T = {temperature}"]["tokens_per_second"]
    best = "speculative static, whole draft"
    plain = max(value for name, value in pace.items() if name.startswith("plain"))
    fig.update_layout(
        title=f"A whole draft in a graph is {pace[best] / plain:.2f}× as fast as the fastest plain"
        " decoding",
        barmode="group",
        xaxis_title=f"tokens per second, T = {temperature}",
        yaxis={"categoryorder": "array", "categoryarray": list(MODES.values())[::-1]},
        height=420,
    )
    alt = (
        f"Tokens per second of the shipped pair at T = {temperature}, plain and speculative (γ = 4),"
        " by the kind of its passes."
    )
    subject = {"plain": "target", MODES["static, whole draft"]: "draft"} | own_roles(fig)
    return figure(fig, alt, "gpu-modes", source=recordings[0].source, subject=subject)


def own_roles(fig: go.Figure) -> dict[str, str]:
    """Return the role of each trace of the reader's own GPU."""
    return {each.name: "you" for each in fig.data if each.name.startswith("your GPU")}


def drafts_figure(recordings: Sequence[Recording]):
    """Return the figure of c by draft: measured in a graph, and as the ratio of bytes alone."""
    fig = go.Figure()
    for recording in recordings:
        steps, own = recording.data["steps"], measured.is_own(recording)
        if not {"drafts", "passes"} <= steps.keys():
            continue
        names, costs, bytes_alone = draft_costs(steps)
        fig.add_bar(
            name="your GPU" if own else "draft pass, measured in a graph",
            orientation="h",
            x=costs,
            y=names,
        )
        if not own:
            fig.add_scatter(
                name="ratio of the bytes read",
                x=bytes_alone,
                y=names,
                mode="markers",
                marker={"size": 11, "symbol": "diamond"},
            )
    cost = dict(zip(*draft_costs(recordings[0].data["steps"])[:2]))
    small, large = "Qwen3-0.6B, 28 layers", "Llama-3.2-1B, 16 layers"
    fig.update_layout(
        title=f"Half the size, more layers, higher cost: c = {cost[small]:.2f} against {cost[large]:.2f}",
        barmode="group",
        xaxis_title="c at batch 1: a draft pass in the loop ÷ a pass of the 8B target",
        height=320,
    )
    alt = (
        "Cost of a draft pass in passes of an 8B target at batch 1, in a captured graph, beside the"
        " ratio of the bytes that both read. Shapes of these models with random weights."
    )
    subject = {small: "draft", large: "draft"} | own_roles(fig)
    return figure(fig, alt, "gpu-drafts", source=recordings[0].source, subject=subject)


def draft_costs(steps: dict) -> tuple[list[str], list[float], list[float]]:
    """Return the drafts with their layers, c of each at batch 1, and the ratio of bytes alone."""
    about = steps["drafts"]["drafts"]
    target = cards.network(steps["passes"]).parameters
    one = min(r["seconds"] for r in steps["passes"]["rows"] if (r["batch"], r["k"]) == (1, 1))
    names, costs, ratios = [], [], []
    for row in steps["drafts"]["rows"]:
        if (row["mode"], row["batch"]) != ("captured", 1) or row["draft"] == "block":
            continue
        sizes = about[row["draft"]]
        layers = sizes["shape"]["num_layers"]
        names.append(f"{row['draft']}, {layers} layer{'s' * (layers > 1)}")
        costs.append(row["seconds"] / row["drafted"] / one)
        ratios.append(cards.network(sizes).parameters / target)
    return names, costs, ratios
