"""Figures of the recordings of GPUs: passes, drafts, whole rounds, and a timeline of operations.

A reader's own recording (`recordings.measured.own_gpus`) is drawn beside the book's.
"""

from collections.abc import Sequence
from textwrap import wrap

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
        ("weights", "subject", 0.8),
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
        title=f"{name}, lowest lane: products with weights take {share:.0%} of its time",
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


def name_of(recording: Recording) -> str:
    """Return how a card is named in a figure: "" for the book's."""
    return "" if recording.name == measured.BOOK else measured.title(recording)


def where(recording: Recording, more: str = "") -> str:
    """Return whose target has which shape."""
    return f"{name_of(recording) or recording.machine}: {measured.shape_name(recording)}{more}"


def finish(
    fig: go.Figure,
    recordings: Sequence[Recording],
    steps: Sequence[str],
    subject: dict,
    alt: str,
    name: str,
    **layout,
) -> go.Figure:
    """Finish a figure of recordings: roles of other cards, and what they lack, below the axis."""
    fig.update_layout(**layout)
    names = {name_of(each) for each in recordings} - {""}
    roles = {
        trace.name: "you" for trace in fig.data if any(trace.name.startswith(n) for n in names)
    }
    notes = [
        f"{name_of(each)}: {phrase}"
        for each in recordings
        if name_of(each)
        for phrase in measured.missing(each, steps)
    ]
    axis = fig.layout.xaxis.title
    lines = [line for note in notes for line in wrap(note, 90)]
    if lines:
        axis.text += f"<br><span style='font-size:11px'>{'<br>'.join(lines)}</span>"
    rows = len(lines) + max(0, len(fig.data) - 6) * (name == "gpu-formula")
    fig.layout.height = (fig.layout.height or 380) + 22 * rows
    present = {trace.name for trace in fig.data} | {
        bar for trace in fig.data if trace.type == "bar" for bar in trace.y
    }
    subject = {name: role for name, role in subject.items() if name in present}
    return figure(fig, alt, name, source=recordings[0].source, subject=subject | roles)


def passes_figure(recordings: Sequence[Recording]):
    """Return the figure of T(B, k) ÷ T(B, 1) of the large target, by k and batch."""
    fig, first, tokens, shapes = go.Figure(), {}, set(), []
    for recording in recordings:
        rows, name = measured.rows(recording, "passes"), name_of(recording)
        context = min((row["context"] for row in rows), default=0)
        times = {(r["batch"], r["k"]): r["seconds"] for r in rows if r["context"] == context}
        several = sorted({b for b, k in times if k > 1 and (b, 1) in times})
        # another card has other batches: its smallest and its largest
        for batch in dict.fromkeys(several[:1] + several[-1:]) if name else (1, 16, 64, 128):
            ks = sorted(k for b, k in times if b == batch)
            ratios = [times[batch, k] / times[batch, 1] for k in ks]
            fig.add_scatter(name=f"{name or 'target'}, B = {batch}", x=ks, y=ratios)
            tokens.update(ks)
            if not name:
                first[batch] = ratios[-1]
        if rows:
            shapes.append(where(recording, f", context {context}"))
    low, high = min(first), max(first)
    return finish(
        *(fig, recordings, ["passes"], {f"target, B = {batch}": "target" for batch in (low, high)}),
        alt="Time of a pass over k tokens in each of B rows ÷ time of a pass over one, captured,"
        f" random weights in these shapes: {'; '.join(shapes)}.",
        name="gpu-passes",
        title=f"{max(tokens)} tokens take {first[low]:.2f} passes at batch {low}, and"
        f" {first[high]:.1f} at batch {high}",
        xaxis={"title": "k, tokens of each row in the pass", "tickvals": sorted(tokens)},
        yaxis={"title": "T(B, k) ÷ T(B, 1)", "rangemode": "tozero"},
    )


def map_figure(recordings: Sequence[Recording]):
    """Return the figure of the measured speedup of whole rounds, by batch and γ, at one α."""
    alpha = f"{measured.ALPHA:g}"
    fig, gains, shapes, every = go.Figure(), {}, [], set()
    for recording in recordings:
        step, name = recording.data["steps"].get("synthetic", {}), name_of(recording)
        rows = [r for r in measured.rows(recording, "synthetic") if r["draft"].startswith("head")]
        for gamma in (1, 3, 6, 8):
            mine = sorted((r["batch"], r["speedup"][alpha]) for r in rows if r["gamma"] == gamma)
            if not mine:
                continue
            x, y = zip(*mine)
            fig.add_scatter(name=f"{name or 'drafts'}, γ = {gamma}", x=x, y=y)
            every.update(x)
            if not name:
                gains[gamma] = dict(mine)
        if rows:
            shapes.append(where(recording, f", context {step['context']}"))
    long = 6
    low, high = min(gains[1]), max(gains[1])
    fig.add_hline(y=1, line_dash="dot", line_color=PALETTE["neutral"])
    return finish(
        *(fig, recordings, ["synthetic"], {f"drafts, γ = {long}": "draft", "drafts, γ = 1": "one"}),
        alt="Speedup of whole rounds with a one-layer head over plain rounds timed beside them, in"
        f" these shapes: {'; '.join(shapes)}. Random weights; a coin accepts each draft with"
        f" probability {alpha}, so the cost is measured and the tokens are expected ones.",
        name="gpu-map",
        title=f"γ = {long} reaches {gains[long][low]:.2f}× at batch {low} and"
        f" {gains[long][high]:.2f}× at {high}, where γ = 1 reaches {gains[1][high]:.2f}×",
        xaxis={"title": "B, rows of the batch", "type": "log", "tickvals": sorted(every)},
        yaxis={"title": f"speedup at α = {alpha}", "rangemode": "tozero"},
    )


def modes_figure(recordings: Sequence[Recording]):
    """Return the figure of tokens per second of the shipped pair, by how its rounds are launched."""
    fig, paces = go.Figure(), {}
    for recording in recordings:
        rounds = recording.data["steps"].get("rounds", {}).get("T = 1", {})
        pace, title = rounds.get("tokens_per_second", {}), name_of(recording)
        paces[title] = pace
        for kind, name, words in (("plain", "plain", PLAIN), ("speculative", "with drafts", MODES)):
            rows = {each: pace.get(f"{kind} {mode}") for mode, each in words.items()}
            rows = {each: value for each, value in rows.items() if value}
            if rows:
                fig.add_bar(
                    name=f"{title}, {name}" if title else name,
                    orientation="h",
                    x=list(rows.values()),
                    y=list(rows),
                )
    best = "speculative static, whole draft"
    plain = max(value for name, value in paces[""].items() if name.startswith("plain"))
    return finish(
        *(fig, recordings, ["rounds"]),
        subject={"plain": "target", MODES["static, whole draft"]: "draft"},
        alt="Tokens per second of the shipped pair at T = 1, plain and speculative (γ = 4), by the"
        " kind of its passes.",
        name="gpu-modes",
        title=f"A whole draft in a graph is {paces[''][best] / plain:.2f}× as fast as the fastest"
        " plain decoding",
        barmode="group",
        xaxis_title="tokens per second, T = 1",
        yaxis={"categoryorder": "array", "categoryarray": list(MODES.values())[::-1]},
        height=420,
    )


def drafts_figure(recordings: Sequence[Recording]):
    """Return the figure of c by draft: measured in a graph, and as the ratio of bytes alone."""
    fig, targets = go.Figure(), []
    for recording in recordings:
        name = name_of(recording)
        names, costs, bytes_alone = draft_costs(recording)
        if not names:
            continue
        targets.append(where(recording))
        fig.add_bar(
            name=name or "draft pass, measured in a graph", orientation="h", x=costs, y=names
        )
        if not name:
            cost = dict(zip(names, costs))
            fig.add_scatter(
                name="ratio of the bytes read",
                x=bytes_alone,
                y=names,
                mode="markers",
                marker={"size": 11, "symbol": "diamond"},
            )
    small, large = "Qwen3-0.6B, 28 layers", "Llama-3.2-1B, 16 layers"
    return finish(
        *(fig, recordings, ["passes", "drafts"], {small: "draft", large: "draft"}),
        alt="Cost of a draft pass in passes of the target at batch 1, in a captured graph, beside the"
        f" ratio of the bytes that both read. Random weights; shapes of the targets:"
        f" {'; '.join(targets)}.",
        name="gpu-drafts",
        title=f"Half the size, more layers, higher cost: c = {cost[small]:.2f} against {cost[large]:.2f}",
        barmode="group",
        xaxis_title="c at batch 1: a draft pass in the loop ÷ a pass of the target",
        height=320,
    )


def draft_costs(recording: Recording) -> tuple[list[str], list[float], list[float]]:
    """Return the drafts with their layers, c of each at batch 1, and the ratio of bytes alone."""
    steps = recording.data["steps"]
    passes = measured.rows(recording, "passes")
    ones = [r["seconds"] for r in passes if (r["batch"], r["k"]) == (1, 1)]
    names, costs, ratios = [], [], []
    for row in measured.rows(recording, "drafts") if ones else ():
        if (row["mode"], row["batch"]) != ("captured", 1) or row["draft"] == "block":
            continue
        sizes = steps["drafts"]["drafts"][row["draft"]]
        layers = sizes["shape"]["num_layers"]
        names.append(f"{row['draft']}, {layers} layer{'s' * (layers > 1)}")
        costs.append(row["seconds"] / row["drafted"] / min(ones))
        target = cards.network(steps["passes"]).parameters
        ratios.append(cards.network(sizes).parameters / target)
    return names, costs, ratios


def formula_figure(recordings: Sequence[Recording]):
    """Return the figure of the formula's time of a pass ÷ the recorded time, for every pass."""
    fig = go.Figure()
    for recording in recordings:
        name = name_of(recording)
        for series, points in formula_points(recording).items():
            fig.add_scatter(
                name=f"{name}: {series}" if name else series,
                x=[1e3 * recorded for recorded, _ in points],
                y=[computed / recorded for recorded, computed in points],
                mode="markers",
            )
    ratios = [computed / recorded for recorded, computed in in_graphs(recordings[0])]
    low, high = min(ratios), max(ratios)
    fig.add_hline(y=1, line_dash="dot", line_color=PALETTE["neutral"])
    return finish(
        *(fig, recordings, ["card", "passes", "drafts"], dict(zip(SERIES, ("target", "draft")))),
        alt="Time of a pass by the formula, from counted operations, bytes and arithmetic, divided"
        " by the recorded time: dense targets by batch, tokens and context, and drafts in a graph"
        " and one by one. Random weights.",
        name="gpu-formula",
        title=f"In graphs the formula gives {low:.0%} to {high:.0%} of the recorded times",
        xaxis={"title": "recorded time of a pass, ms", "type": "log"},
        yaxis={"title": "formula ÷ recorded", "rangemode": "tozero"},
    )


SERIES = ("target, in a graph", "drafts, in a graph", "drafts, one by one")


def in_graphs(recording: Recording) -> list[tuple[float, float]]:
    """Return (recorded, computed) seconds of all captured passes."""
    points = formula_points(recording)
    return [pair for series in SERIES[:2] for pair in points.get(series, ())]


def formula_points(recording: Recording) -> dict[str, list[tuple[float, float]]]:
    """Return {series: (recorded, computed) seconds of its passes}; empty without the card's speeds."""
    steps, points = recording.data["steps"], {}
    speeds = cards.speeds(recording.data)
    if speeds is None:
        return {}
    for row in measured.rows(recording, "passes"):
        sizes = row["batch"], row["k"], row["context"]
        computed = cards.pass_seconds(steps["passes"]["shape"], *sizes, speeds)
        points.setdefault(SERIES[0], []).append((row["seconds"], computed))
    for row in measured.rows(recording, "drafts"):
        is_block, step = row["draft"] == "block", steps["drafts"]
        k, passes = (row["drafted"], 1) if is_block else (1, row["drafted"])
        shape = step["drafts"][row["draft"]]["shape"] | {"qk_norm": "Qwen3" in row["draft"]}
        launched = row["mode"] == "eager"
        computed = cards.pass_seconds(shape, row["batch"], k, step["context"], speeds, launched)
        points.setdefault(SERIES[1 + launched], []).append((row["seconds"] / passes, computed))
    return points
