"""A timeline of operations: of a pass or a whole draft, on the host and on a GPU."""

# plotly defines its attributes at run time
# pyright: reportAttributeAccessIssue=false

import plotly.graph_objects as go

from specdec_book.viz.figure import figure
from specdec_book.viz.theme import PALETTE
from specdec_lite.measure import profiler


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
