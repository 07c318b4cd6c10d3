"""The look of the book's figures: one palette and one plotly template.

The palette is Okabe and Ito's, which readers with any kind of color vision can tell apart.
"""

import plotly.graph_objects as go
import plotly.io as pio

ROLES = {
    "target": ("#0072B2", "#0072B2", "#4AA8E0"),
    "draft": ("#E69F00", "#8A5A00", "#F0B429"),
    "accepted": ("#009E73", "#00704F", "#2FC79B"),
    "rejected": ("#D55E00", "#B34700", "#F08A4B"),
    "recovered": ("#CC79A7", "#A1457A", "#DD95BD"),
    "bonus": ("#56B4E9", "#1F6F9F", "#7CC7F2"),
    "neutral": ("#767676", "#6B6B6B", "#A6AFBA"),
    "one": ("#3B4754", "#3B4754", "#E1E5EA"),
    "other": ("#8A929C", "#626A73", "#929BA7"),
    "you": ("#7A3E9D", "#6F3790", "#C99BE6"),
    "subject": ("#B0124B", "#A01045", "#FF7A9E"),
    "second": ("#6B7500", "#596200", "#C3CF4A"),
}
"""Three colors for each role of a token: of its marks; of text in their color, dark enough to be read
on white; of both on a dark background. Two things without a role are "one" and "other"; "you" marks
what the reader sets, "subject" and "second" what a title is about if that has no role."""
PALETTE, INKS, BRIGHT = (dict(zip(ROLES, colors)) for colors in zip(*ROLES.values()))
COLORWAY = [PALETTE["one"], PALETTE["other"], PALETTE["neutral"]]
"""Colors of traces without a role; dashes and symbols tell them apart."""

# Last colors of a color scale. They are deep on a light background and bright on a dark one, so
# that text changes between dark and light at the same part of the scale in both themes.
DEEP = {"blue": "#005C94", "orange": "#963C00"}
DEEP_IN_THE_DARK = {"blue": "#4A9BD0", "orange": "#D97A3D"}

# Text inside a cell, which needs more contrast than text on the page.
BLACK = "#000000"

# Colors that a page exchanges when the reader changes the theme.
LIGHT = {"background": "#ffffff", "text": "#24292f", "grid": "#e3e6ea", "line": "#767c85"}
DARK = {"background": "#14181e", "text": "#e6e8eb", "grid": "#343b45", "line": "#8f98a3"}


def dark_data() -> dict[str, str]:
    """Return the dark theme's color for each color of marks, text and scales (lower-case keys)."""
    pairs = [(shades[role].lower(), BRIGHT[role]) for shades in (PALETTE, INKS) for role in BRIGHT]
    ends = {DEEP[tone].lower(): DEEP_IN_THE_DARK[tone] for tone in DEEP}
    return dict(pairs) | ends | {BLACK: "#FFFFFF"}


def layout(colors: dict) -> dict:
    """Return a plotly layout in one theme's colors, which a page applies when its theme changes."""
    axis = {
        "gridcolor": colors["grid"],
        "zerolinecolor": colors["line"],
        "linecolor": colors["line"],
        "automargin": True,
        "separatethousands": True,
        "title": {"standoff": 8},
    }
    return {
        "paper_bgcolor": colors["background"],
        "plot_bgcolor": colors["background"],
        "font": {
            "color": colors["text"],
            "size": 14,
            "family": "Source Sans, system-ui, -apple-system, Segoe UI, sans-serif",
        },
        "xaxis": axis | {"hoverformat": ".4~r"},
        "yaxis": axis,
        "hoverlabel": {
            "bgcolor": colors["background"],
            "font": {"color": colors["text"]},
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
