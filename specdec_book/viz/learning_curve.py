"""How trained heads improve with the text that they have seen, as a figure."""

import math

import plotly.graph_objects as go

from specdec_book import recordings
from specdec_book.viz.theme import PALETTE

HEADS = {"eagle1": "EAGLE-1", "mtp": "multi-token prediction", "eagle3": "EAGLE-3"}
LOOKS = {"eagle1": ("subject", "circle"), "mtp": ("second", "square"), "eagle3": ("one", "diamond")}


def points(head: dict) -> list[tuple[float, float, float]]:
    """Return (millions of tokens seen, agreement, α) of the first drafted token, the end included."""
    final = {"seen": head["seen"], **head["held_out"]["all"]}
    return [
        (1e-6 * row["seen"], row["agrees"]["mean"][0], row["alpha"]["mean"][0])
        for row in (*head["curve"], final)
    ]


def learning_curve(record: "recordings.Recording") -> go.Figure:
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
