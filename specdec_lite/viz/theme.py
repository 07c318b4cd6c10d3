"""How the book's figures look: one palette, one plotly template, one helper that every figure goes
through.

What lives here: colours and layout. What does not: any figure (each stands beside its data, in a
notebook). The colours are Okabe and Ito's, told apart with any kind of colour vision; a figure
never says a thing by colour alone.
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

# What a page swaps when the reader's theme is dark (and back): backgrounds, text, lines. Data
# colours stay.
LIGHT = {"background": "#ffffff", "text": "#24292f", "grid": "#e3e6ea", "line": "#767c85"}
DARK = {"background": "#14181e", "text": "#e6e8eb", "grid": "#343b45", "line": "#8f98a3"}


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
            "family": "system-ui, -apple-system, Segoe UI, sans-serif",
        },
        "xaxis": axis,
        "yaxis": axis,
        "hoverlabel": {"bgcolor": colours["background"], "font": {"color": colours["text"]}},
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


DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = (
    *("circle", "square", "diamond", "triangle-up", "x", "cross"),
    *("star", "pentagon", "triangle-down", "bowtie", "hourglass", "hexagon"),
)
SHAPES = ("", "/", ".", "x", "-", "+")


def tell_apart(fig: go.Figure) -> None:
    """Give traces of the legend that have no dash, symbol or pattern of their own one that no other
    trace has: colour alone tells nothing to many readers.
    """
    if fig.layout.showlegend is False:
        fig.update_traces(showlegend=False)
    shown = [trace for trace in fig.data if trace.showlegend is not False]
    free = {"dash": list(DASHES), "symbol": list(SYMBOLS), "shape": list(SHAPES)}
    parts = [(trace, *part) for trace in shown for part in marks(trace)]
    for _, part, name in parts:
        if part[name] in free[name]:
            free[name].remove(part[name])
    for _, part, name in parts:
        if part[name] is None and free[name]:
            part[name] = free[name].pop(0)


def marks(trace) -> list[tuple]:
    """(what holds it, its name) of all but the colour by which a trace is told from another."""
    if trace.type == "bar":
        return [(trace.marker.pattern, "shape")]
    if trace.type != "scatter":
        return []
    mode = trace.mode or "lines+markers"
    lines = [(trace.line, "dash")] if "lines" in mode else []
    return lines + ([(trace.marker, "symbol")] if "markers" in mode else [])


def figure(fig: go.Figure, alt: str) -> go.Figure:
    """The same figure in the book's theme, with its text alternative in `layout.meta.alt`.

    alt: one or two sentences that tell a reader who cannot see the figure what it shows. ValueError
    if empty.
    """
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError(f"alt must say in words what the figure shows, got {alt!r}")
    tell_apart(fig)
    return fig.update_layout(
        template="specdec", meta={"alt": alt.strip()}, height=fig.layout.height or 380
    )
