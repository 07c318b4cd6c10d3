"""Schedules of drafting and verification, one bar per job, on two lanes each."""

import plotly.graph_objects as go

from specdec_book.viz.theme import PALETTE
from specdec_lite.simulation.clock import Replay

UNTIL = 12  # passes of the target that are drawn


def schedules(replays: dict[str, Replay], title: str) -> go.Figure:
    """Return the lanes of each schedule; the paler a job, the fewer of its tokens were used."""
    fig = go.Figure()
    for name, replay in reversed(replays.items()):
        for lane in ("target", "draft"):
            spans = [s for s in replay.clock.spans if s.lane == lane and s.start < UNTIL]
            fig.add_bar(
                y=[f"{name}: {lane}"] * len(spans),
                base=[s.start for s in spans],
                x=[s.end - s.start for s in spans],
                orientation="h",
                showlegend=False,
                marker={
                    "color": PALETTE[lane],
                    "line": {"width": 1, "color": "white"},
                    "opacity": [0.3 + 0.7 * s.use for s in spans],
                },
            )
    axis = {"title": "time, in target passes (pale: drafted and wasted)", "range": [0, UNTIL]}
    return fig.update_layout(title=title, height=330, barmode="overlay", xaxis=axis)
