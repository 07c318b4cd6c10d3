"""Pictures of a chapter each: lanes of schedules, a learning curve, a tree of several drafts."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from specdec_book.recordings import Recording
from specdec_book.viz.figure import SYMBOLS
from specdec_book.viz.theme import PALETTE
from specdec_lite.tree import TokenTree

if TYPE_CHECKING:
    from specdec_lite.simulation.clock import Replay

UNTIL = 12  # passes of the target that are drawn


def schedules(replays: "dict[str, Replay]", title: str) -> go.Figure:
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


HEADS = {"eagle1": "EAGLE-1", "mtp": "multi-token prediction", "eagle3": "EAGLE-3"}
LOOKS = {"eagle1": ("subject", "circle"), "mtp": ("second", "square"), "eagle3": ("one", "diamond")}


def points(head: dict) -> list[tuple[float, float, float]]:
    """Return (millions of tokens seen, agreement, α) of the first drafted token, the end included."""
    final = {"seen": head["seen"], **head["held_out"]["all"]}
    return [
        (1e-6 * row["seen"], row["agrees"]["mean"][0], row["alpha"]["mean"][0])
        for row in (*head["curve"], final)
    ]


def learning_curve(record: Recording) -> go.Figure:
    """Draw the agreement of each head's first draft with the target over the tokens seen."""
    fig = go.Figure()
    for key, name in HEADS.items():
        seen, agrees, alpha = zip(*points(record.data["heads"][key]))
        color, symbol = LOOKS[key]
        fig.add_scatter(
            x=seen,
            y=agrees,
            name=name,
            mode="lines+markers",
            line=dict(color=PALETTE[color], width=4),
            marker=dict(size=9, symbol=symbol),
            customdata=alpha,
            hovertemplate="%{y:.3f} agree, α %{customdata:.3f}<extra></extra>",
        )
    tokens = record.data["texts"]["all"]["tokens"] / 1e6
    fig.update_xaxes(
        type="log", title="million tokens seen in training", tickvals=[1, 2, 5, 10, 20, 30]
    )
    fig.update_yaxes(title="first drafts that agree with the target")
    fig.update_layout(title="Each head agrees more often at every new measurement", height=420)
    fig.add_vline(x=tokens, line_dash="dash", line_color=PALETTE["neutral"])
    fig.add_annotation(
        x=math.log10(tokens),
        y=0,
        yref="paper",
        xanchor="left",
        yanchor="bottom",
        text=" every text was seen once",
        showarrow=False,
    )
    return fig


def coordinates(tree: TokenTree) -> dict[int, tuple[int, float]]:
    """Return (level, height) of every node and of the root, −1: leaves are one apart."""
    places: dict[int, tuple[int, float]] = {}
    leaves = 0.0

    def place(node: int, level: int) -> float:
        nonlocal leaves
        below = [place(child, level + 1) for child in tree.children(node)]
        height = sum(below) / len(below) if below else leaves
        leaves += not below
        places[node] = (level, height)
        return height

    place(-1, 0)
    return places


def merged_tree(
    tree: TokenTree, words: Sequence[str], root: str, landed: Mapping[str, Sequence[int]]
) -> go.Figure:
    """Draw a merged tree.

    Args:
        tree: The tree.
        words: The text of every node.
        root: The text before the tree.
        landed: For each draft, the nodes of its draws.
    """
    places = coordinates(tree)
    fig = go.Figure(layout=dict(height=330))
    for node, parent in enumerate(tree.parents):
        (x, y), (right, below) = places[parent], places[node]
        fig.add_scatter(
            x=[x, right],
            y=[y, below],
            mode="lines",
            showlegend=False,
            hoverinfo="skip",
            line=dict(color=PALETTE["neutral"], width=1),
        )
    for node, text in enumerate([*words, root]):
        x, y = places[node if node < len(words) else -1]
        fig.add_annotation(x=x, y=y, text=text, showarrow=False, yshift=-24)
    for number, (shape, (name, nodes)) in enumerate(zip(SYMBOLS, landed.items())):
        size, shape = 12 + 9 * number, f"{shape}-open"
        fig.add_scatter(
            x=[places[node][0] for node in nodes],
            y=[places[node][1] for node in nodes],
            name=name,
            mode="markers",
            marker=dict(size=size, symbol=shape, line_width=3, color=PALETTE["draft"]),
        )
    leaves = max(height for _, height in places.values())
    axis = dict(title="level", dtick=1, showgrid=False, zeroline=False)
    fig.update_xaxes(**axis, range=[-0.4, tree.levels + 0.4])
    fig.update_yaxes(visible=False, range=[leaves + 0.6, -0.6])
    return fig
