"""How the book's figures look: one palette and one plotly template.

What lives here: colours and layout. What does not: the helper that every figure goes through
(`figure`), and any figure (each stands beside its data, in a notebook). The colours are Okabe and
Ito's, told apart with any kind of colour vision.
"""

import plotly.graph_objects as go
import plotly.io as pio

PALETTE = {
    "target": "#0072B2",
    "draft": "#E69F00",
    "accepted": "#009E73",
    "rejected": "#D55E00",
    "recovered": "#CC79A7",
    "bonus": "#56B4E9",
    "neutral": "#767676",
}
COLORWAY = [
    PALETTE[name]
    for name in ("target", "draft", "accepted", "rejected", "recovered", "bonus", "neutral")
]

# Words in a line's colour: dark enough to be read on white.
INKS = {
    "target": "#0072B2",
    "draft": "#8A5A00",
    "accepted": "#00704F",
    "rejected": "#B34700",
    "recovered": "#A1457A",
    "bonus": "#1F6F9F",
    "neutral": "#6B6B6B",
}
# Each role's colour, of marks and words, where the ground is dark.
BRIGHT = {
    "target": "#4AA8E0",
    "draft": "#F0B429",
    "accepted": "#2FC79B",
    "rejected": "#F08A4B",
    "recovered": "#DD95BD",
    "bonus": "#7CC7F2",
    "neutral": "#A6AFBA",
}

# The ends of a scale of colours: deep on a light ground, bright on a dark one, so that at the same
# part of the scale dark words give way to light ones, or the other way round.
DEEP = {"blue": "#005C94", "orange": "#A84300"}
DEEP_IN_THE_DARK = {"blue": "#3F93C9", "orange": "#D97A3D"}

# What a page swaps when the reader's theme is dark (and back): backgrounds, text, lines.
LIGHT = {"background": "#ffffff", "text": "#24292f", "grid": "#e3e6ea", "line": "#767c85"}
DARK = {"background": "#14181e", "text": "#e6e8eb", "grid": "#343b45", "line": "#8f98a3"}


def dark_data() -> dict[str, str]:
    """The colour, in the dark, of each colour that marks, words and scales have on white (lower
    case).
    """
    pairs = [(shades[role].lower(), BRIGHT[role]) for shades in (PALETTE, INKS) for role in BRIGHT]
    ends = {DEEP[tone].lower(): DEEP_IN_THE_DARK[tone] for tone in DEEP}
    return dict(pairs) | ends | {"#000000": "#F0F0F0"}


def layout(colours: dict) -> dict:
    """A plotly layout in one theme's colours (LIGHT or DARK): what a page applies when its theme
    changes.
    """
    axis = {
        "gridcolor": colours["grid"],
        "zerolinecolor": colours["line"],
        "linecolor": colours["line"],
        "automargin": True,
        "title": {"standoff": 8},
    }
    return {
        "paper_bgcolor": colours["background"],
        "plot_bgcolor": colours["background"],
        "font": {
            "color": colours["text"],
            "size": 14,
            "family": "Source Sans, system-ui, -apple-system, Segoe UI, sans-serif",
        },
        "xaxis": axis | {"hoverformat": ".4~r"},
        "yaxis": axis,
        "hoverlabel": {
            "bgcolor": colours["background"],
            "font": {"color": colours["text"]},
            "namelength": -1,
        },
        "legend": {
            "orientation": "h",
            "yanchor": "bottom",
            "y": 1.02,
            "x": 0,
            "bgcolor": "rgba(0,0,0,0)",
        },
    }


TEMPLATE = go.layout.Template(
    layout={
        **layout(LIGHT),
        "colorway": COLORWAY,
        "margin": {"l": 56, "r": 16, "t": 72, "b": 48},
        "title": {
            "font": {"size": 16},
            "x": 0,
            "y": 0.98,
            "yanchor": "top",
            "xanchor": "left",
            "xref": "container",
            "pad": {"l": 8},
        },
        "dragmode": False,
        "hovermode": "closest",
    }
)
pio.templates["specdec"] = TEMPLATE
