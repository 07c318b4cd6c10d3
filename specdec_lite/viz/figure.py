"""The helper that every plotly figure goes through: what a reader sees of a figure beside its data.

What lives here: text alternatives, dashes and marks, names at the ends of lines, readings under the
pointer. What does not: colours and the template (`theme`), and any figure (each stands beside its
data, in a notebook). A figure never says a thing by colour alone.
"""

import itertools
import math
import re
import textwrap
from types import NoneType

import numpy as np
import plotly.graph_objects as go

from specdec_lite.viz.theme import COLORWAY, INKS, LIGHT, PALETTE

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = (
    *("circle", "square", "diamond", "triangle-up", "x", "cross"),
    *("star", "pentagon", "triangle-down", "bowtie", "hourglass", "hexagon"),
)
MOST_ENDS = 5  # more lines than that are told apart in a legend
END = "end"  # the annotations that name lines: a phone shows a legend in their place
NAME_WIDTH = 24  # letters
LINE_HEIGHT = 17  # px
LETTER = 7.5  # px, of a title
OVER_PANELS = 1.13  # of a legend, where panels have titles
ROUND_THE_PANEL = 120  # px of a figure's height that are not its panel's


def figure(fig: go.Figure, alt: str, name: str = "") -> go.Figure:
    """The same figure in the book's theme: lines named at their ends, rounded numbers under the
    pointer. Its title is the finding, in a sentence.

    alt: one or two sentences that tell a reader who cannot see the figure what it shows, and the
    caption of all others; kept in `layout.meta`. name: by which the text of a page refers to its
    number, `<a href="#fig-name">`. ValueError if alt is empty, or the name has other letters than
    a-z, 0-9 and "-".
    """
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError(f"alt must say in words what the figure shows, got {alt!r}")
    if not re.fullmatch(r"[a-z0-9-]*", name):
        raise ValueError(f"name={name!r}: must be of the letters a-z, 0-9 and '-'")
    fig.update_layout(
        template="specdec",
        meta={"alt": " ".join(alt.split()), "name": name},
        height=fig.layout.height or 380,
    )
    if fig.layout.showlegend is False:
        fig.update_traces(showlegend=False)
    tell_apart(fig)
    fit_titles(fig)
    round_readings(fig)
    if any(words.yref == "paper" and words.y >= 1 for words in fig.layout.annotations):
        fig.layout.legend.y = OVER_PANELS
    if can_be_named_at_its_ends(fig):
        name_ends(fig)
    return fig


def tell_apart(fig: go.Figure) -> None:
    """Give lines and marks of the legend that have no dash or symbol of their own one that no other
    trace has, and bars their names: colour alone tells nothing to many readers.
    """
    shown = [trace for trace in fig.data if trace.showlegend is not False]
    free = {"dash": list(DASHES), "symbol": list(SYMBOLS)}
    parts = [(trace, *part) for trace in shown for part in marks(trace)]
    for _, part, key in parts:
        if part[key] in free[key]:
            free[key].remove(part[key])
    for _, part, key in parts:
        if part[key] is None and free[key]:
            part[key] = free[key].pop(0)
    bars = [trace for trace in shown if trace.type == "bar" and trace.name]
    for trace in bars if len(bars) > 1 else []:
        if trace.text is None and trace.width is None:
            trace.update(text=trace.name, textangle=0, showlegend=False)


def marks(trace) -> list[tuple]:
    """(what holds it, its name) of all but the colour by which a trace is told from another."""
    if trace.type != "scatter":
        return []
    mode = trace.mode or "lines+markers"
    lines = [(trace.line, "dash")] if "lines" in mode else []
    return lines + ([(trace.marker, "symbol")] if "markers" in mode else [])


def fit_titles(fig: go.Figure) -> None:
    """The title of an axis that stands upright is no longer than its panel is high."""
    room = int((fig.layout.height - ROUND_THE_PANEL) / LETTER)
    for axis in fig.select_yaxes():
        if axis.title.text:
            axis.title.text = "<br>".join(textwrap.wrap(axis.title.text, max(room, 10)))


def round_readings(fig: go.Figure) -> None:
    """What the pointer reads: three digits, and the trace's name in the same box. Lines of one
    panel are read together.
    """
    lines = [trace for trace in fig.data if trace.type == "scatter" and trace.name]
    together = len(lines) > 1 and all(trace.type == "scatter" for trace in fig.data)
    if together and fig.layout.hovermode is None:
        fig.update_layout(hovermode="x unified")
    for trace in fig.data:
        if trace.hovertemplate is not None or trace.type not in ("scatter", "bar"):
            continue
        along, across = ("x", "y") if trace.orientation == "h" else ("y", "x")
        reading = f"%{{{along}{digits(trace[along])}}}"
        if together:
            trace.hovertemplate = f"{reading}<extra>{trace.name or ''}</extra>"
        else:
            name = f"<b>{trace.name}</b><br>" if trace.name else ""
            place = f"%{{{across}{digits(trace[across])}}}"
            trace.hovertemplate = f"{name}{place}: {reading}<extra></extra>"


def digits(values) -> str:
    """The format of a reading: three digits, where not all values are whole or words."""
    is_fraction = lambda one: isinstance(one, (float, np.floating)) and one % 1
    return ":.3~r" if any(map(is_fraction, listed(values))) else ""


def listed(values) -> list:
    return [] if values is None else list(values)


def can_be_named_at_its_ends(fig: go.Figure) -> bool:
    """Two to five lines in one panel, nothing else in the legend."""
    shown = in_the_legend(fig)
    if any(trace.type != "scatter" for trace in shown):
        return False
    if not all(are_numbers(trace.x) and are_numbers(trace.y) for trace in shown):
        return False
    single = all(trace.xaxis in (None, "x") and trace.yaxis in (None, "y") for trace in fig.data)
    drawn = any("lines" in (trace.mode or "lines") for trace in shown)
    return single and drawn and 2 <= len(shown) <= MOST_ENDS


def in_the_legend(fig: go.Figure) -> list:
    return [trace for trace in fig.data if trace.name and trace.showlegend is not False]


def are_numbers(values) -> bool:
    kinds = (int, float, np.number, NoneType)
    return values is not None and all(isinstance(one, kinds) for one in values)


def name_ends(fig: go.Figure) -> None:
    """Each trace's name behind its last point, in its colour, clear of the others; no legend."""
    shown = in_the_legend(fig)
    settle_range(fig.layout.xaxis, [x for trace in fig.data for x in trace.x])
    settle_range(fig.layout.yaxis, [y for trace in fig.data for y in y_ends(trace)])
    ends = [last_point(fig, trace) for trace in shown]
    lines = [textwrap.wrap(trace.name, NAME_WIDTH) for trace in shown]
    default = {id(trace): colour for trace, colour in zip(fig.data, itertools.cycle(COLORWAY))}
    ink = dict(zip(map(str.lower, PALETTE.values()), INKS.values()))
    places = [(height(fig, y), LINE_HEIGHT * len(words)) for (_, y), words in zip(ends, lines)]
    edge = max(x for x, _ in ends)
    at_edge = [i for i, (x, _) in enumerate(ends) if x >= edge - 0.15 * abs(edge)]
    shift = dict(zip(at_edge, clear([places[i] for i in at_edge])))
    for i, (trace, (x, y), words) in enumerate(zip(shown, ends, lines)):
        colour = trace.line.color or trace.marker.color or default[id(trace)]
        fig.add_annotation(
            name=END,
            text="<br>".join(words),
            x=x,
            y=y,
            yshift=shift.get(i, 0),
            xanchor="left",
            xshift=8,
            align="left",
            showarrow=False,
            bgcolor=None if i in shift else LIGHT["background"],  # over other lines
            font={"size": 13, "color": ink.get(str(colour).lower(), LIGHT["text"])},
        )
    longest = max(len(line) for i in at_edge for line in lines[i])
    fig.update_layout(showlegend=False, margin_r=24 + round(7.2 * longest))


def last_point(fig: go.Figure, trace) -> tuple[float, float]:
    """Where a trace's name stands, in the units of an annotation: its last point, of those that the
    axis' own range shows.
    """
    xaxis, yaxis = fig.layout.xaxis, fig.layout.yaxis
    points = [
        (on(xaxis, x), on(yaxis, y)) for x, y in sorted(zip(trace.x, trace.y), key=lambda at: at[0])
    ]
    low, high = yaxis.range
    return [(x, y) for x, y in points if x is not None and y is not None and low <= y <= high][-1]


def on(axis, value: float | None) -> float | None:
    """A value as its axis counts; None for what it cannot show."""
    if value is None or value != value:
        return None
    if axis.type != "log":
        return float(value)
    return math.log10(value) if value > 0 else None


def height(fig: go.Figure, y: float) -> float:
    """Pixels from the foot of the panel to y, about."""
    low, high = fig.layout.yaxis.range
    return (y - low) / ((high - low) or 1) * (fig.layout.height - ROUND_THE_PANEL)


def settle_range(axis, ends: list[float]) -> None:
    """The range that plotly would choose, were there no names behind the lines."""
    if axis.range is None:
        values = [place for end in ends if (place := on(axis, end)) is not None]
        low, high = min(values), max(values)
        axis.range = (
            min(low, 0) if axis.rangemode == "tozero" else low - 0.05 * (high - low),
            high + 0.05 * (high - low),
        )


def y_ends(trace) -> list[float]:
    """A trace's values, with the ends of their error bars."""
    bars = trace.error_y
    up = bars.array if bars.array is not None and bars.visible is not False else [0] * len(trace.y)
    down = up if bars.arrayminus is None else bars.arrayminus
    return [
        end
        for y, above, below in zip(trace.y, up, down)
        if y is not None
        for end in (y - below, y + above)
    ]


def clear(places: list[tuple[float, float]]) -> list[float]:
    """By how much each of some (middle, height) must be moved so that none lies over another: groups
    of neighbours stay about their common middle.
    """
    groups: list[list[int]] = []
    size = lambda group: sum(places[i][1] for i in group)
    middle = lambda group: sum(places[i][0] for i in group) / len(group)
    for one in sorted(range(len(places)), key=lambda i: places[i][0]):
        groups.append([one])
        while len(groups) > 1:
            below, above = groups[-2:]
            if middle(above) - middle(below) >= (size(above) + size(below)) / 2:
                break
            groups[-2:] = [below + above]
    moves = [0.0] * len(places)
    for group in groups:
        foot = middle(group) - size(group) / 2
        for i in group:
            moves[i] = foot + places[i][1] / 2 - places[i][0]
            foot += places[i][1]
    return moves
