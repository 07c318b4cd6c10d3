"""The helper that finishes every plotly figure of the book.

It adds the text alternative, dashes and symbols, names at the ends of lines and rounded readings
under the pointer. Color is never the only difference between two traces.
"""

import itertools
import re
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from types import NoneType

import numpy as np
import plotly.graph_objects as go

from specdec_book.viz.captions import spaced_percent
from specdec_book.viz.theme import COLORWAY, INKS, LIGHT, PALETTE

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = (
    *("circle", "square", "diamond", "triangle-up", "x", "cross"),
    *("star", "pentagon", "triangle-down", "bowtie", "hourglass", "hexagon"),
)
MAX_NAMED_LINES = 5  # a figure with more lines has a legend
SOURCE = "source"  # name of the annotation with the source
SOURCE_WIDTH = 60  # characters
SUBJECT_ROLES = ("subject", "second")  # of a title's first and second subject without a role
END = "end"  # name of the annotations that name lines; a phone shows a legend instead
NAME_WIDTH = 24  # characters
LINE_HEIGHT = 17  # px
CHARACTER_WIDTH = 7.5  # px, in a title
LEGEND_ABOVE_TITLES = 1.13  # height of a legend above panels that have titles
PANEL_MARGIN = 120  # px of a figure's height outside its panel


def figure(
    fig: go.Figure,
    alt: str,
    name: str = "",
    source: str = "",
    subject: str | Sequence[str] | Mapping[str, str] = (),
) -> go.Figure:
    """Put a figure into the book's theme: lines named at their ends, rounded readings.

    Args:
        fig: A figure of plotly, which is changed.
        alt: What the figure shows, in words.
        name: Name by which the text can link to the figure.
        source: Where the numbers come from: a text that an ⓘ shows.
        subject: What the title is about: names of traces, or of bars on a category axis. They are
            thick and in color, everything else is thin and pale. A mapping gives each a role of
            `PALETTE`; without one the first is "target", the second "draft".

    Returns:
        `fig`.

    Raises:
        ValueError: If `alt` is empty, `name` has other characters than a-z, 0-9 and "-", or
            `subject` names nothing in the figure or an unknown role.
    """
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError(f"alt={alt!r}: must say in words what the figure shows")
    if not re.fullmatch(r"[a-z0-9-]*", name):
        raise ValueError(f"name={name!r}: must consist of the characters a-z, 0-9 and '-'")
    fig.update_layout(
        template="specdec",
        meta={"alt": spaced_percent(" ".join(alt.split())), "name": name, "source": source},
        height=fig.layout.height or 380,
    )
    if fig.layout.title.text:
        fig.layout.title.text = spaced_percent(fig.layout.title.text)
    if fig.layout.showlegend is False:
        fig.update_traces(showlegend=False)
    for trace in fig.data:
        if trace.type == "scatter" and np.ndim(trace.marker.color):  # error bars have one color
            trace.update(error_x_color=PALETTE["other"], error_y_color=PALETTE["other"])
    if subject:
        emphasize(fig, subject)
    set_dashes_and_symbols(fig)
    wrap_axis_titles(fig)
    separate_thousands(fig)
    tick_log_axes(fig)
    round_readings(fig)
    if any(note.yref == "paper" and note.y >= 1 for note in fig.layout.annotations):
        fig.layout.legend.y = LEGEND_ABOVE_TITLES
    if can_name_ends(fig):
        name_ends(fig)
    if source:  # a published page shows the ⓘ in the caption instead
        fig.add_annotation(
            name=SOURCE,
            text="ⓘ",
            hovertext="<br>".join(textwrap.wrap(escape(source, quote=False), SOURCE_WIDTH)),
            **dict(xref="paper", x=1, xanchor="right", showarrow=False),
            **dict(yref="paper", y=0, yanchor="top", yshift=-24),
        )
    return fig


def emphasize(fig: go.Figure, subject: str | Sequence[str] | Mapping[str, str]) -> None:
    """Make what the title is about thick and colored, and everything else thin and pale."""
    names = [subject] if isinstance(subject, str) else list(subject)
    roles = subject if isinstance(subject, Mapping) else dict(zip(names, SUBJECT_ROLES))
    unknown = [name for name in names if roles.get(name) not in PALETTE]
    if unknown:
        raise ValueError(f"subject={unknown}: must have a role each, of {', '.join(PALETTE)}")
    colors = {name: PALETTE[role] for name, role in roles.items()}
    missing = set(names)
    for trace in fig.data:
        bars = [] if trace.type != "bar" else trace.y if trace.orientation == "h" else trace.x
        bars = [str(bar) for bar in (() if bars is None else bars)]
        is_subject = trace.name in colors
        missing -= {trace.name, *bars}
        color = colors.get(trace.name, PALETTE["other"])
        if trace.type == "bar":
            own = [colors.get(bar, color) for bar in bars]
            trace.marker.color = color if is_subject or len(set(own)) == 1 else own
            continue
        if trace.marker.coloraxis is None:
            trace.marker.update(color=color, size=trace.marker.size or (10 if is_subject else 6))
        if trace.line.width != 0:
            trace.line.update(color=color, width=4 if is_subject else 1.5)
        trace.zorder = 1 if is_subject else None
        if is_subject and trace.name == names[0] and trace.line.dash is None:
            trace.line.dash = "solid"
    if missing:
        raise ValueError(f"subject={sorted(missing)}: must be names of traces or of bars")


def set_dashes_and_symbols(fig: go.Figure) -> None:
    """Give every line of the legend its own dash, every marker its own symbol, every bar its name.

    A dash or symbol that a trace already has stays.
    """
    traces = [trace for trace in fig.data if trace.showlegend is not False]
    free = {"dash": list(DASHES), "symbol": list(SYMBOLS)}
    styles = [style for trace in traces for style in line_styles(trace)]
    for part, key in styles:
        if part[key] in free[key]:
            free[key].remove(part[key])
    for part, key in styles:
        if part[key] is None and free[key]:
            part[key] = free[key].pop(0)
    bars = [trace for trace in traces if trace.type == "bar" and trace.name]
    for trace in bars if len(bars) > 1 else []:
        if trace.text is None and trace.width is None:
            trace.update(text=trace.name, textangle=0, showlegend=False)


def line_styles(trace) -> list[tuple]:
    """Return (part of the trace, attribute) for each style besides color that identifies it."""
    if trace.type != "scatter":
        return []
    mode = trace.mode or "lines+markers"
    lines = [(trace.line, "dash")] if "lines" in mode else []
    return lines + ([(trace.marker, "symbol")] if "markers" in mode else [])


def wrap_axis_titles(fig: go.Figure) -> None:
    """Wrap the title of each vertical axis so that no line is longer than the panel is high."""
    room = int((fig.layout.height - PANEL_MARGIN) / CHARACTER_WIDTH)
    for axis in fig.select_yaxes():
        if axis.title.text:
            axis.title.text = "<br>".join(textwrap.wrap(axis.title.text, max(room, 10)))


def separate_thousands(fig: go.Figure) -> None:
    """Write a chosen tick of 1,000 or more with a comma, as plotly writes the ticks it chooses."""
    for axis in (*fig.select_xaxes(), *fig.select_yaxes()):
        ticks = axis.tickvals
        if ticks is not None and axis.ticktext is None and max(ticks, default=0) >= 1000:
            axis.ticktext = [f"{tick:,.10g}" for tick in ticks]


def tick_log_axes(fig: go.Figure) -> None:
    """Label 2 and 5 too on a log axis of less than two decades, where powers of ten are too few."""
    values: dict[str, list] = {}
    for trace, name in itertools.product(fig.data, ("x", "y")):
        axis, row = f"{name}axis{(trace[f'{name}axis'] or name)[1:]}", trace[name]
        values.setdefault(axis, []).extend(filter(None, row) if are_numbers(row) else ())
    for axis, row in ((fig.layout[name], row) for name, row in values.items() if row):
        is_free = axis.tickvals is None and axis.dtick is None
        if axis.type == "log" and is_free and max(row) < 100 * min(row):
            axis.dtick = "D2"


def round_readings(fig: go.Figure) -> None:
    """Show values under the pointer with three digits and the trace's name in one box.

    Several lines are read together, at one x.
    """
    lines = [trace for trace in fig.data if trace.type == "scatter" and trace.name]
    are_lines = len(lines) > 1 and all(trace.type == "scatter" for trace in fig.data)
    if are_lines and fig.layout.hovermode is None:
        fig.update_layout(hovermode="x unified")
    for trace in fig.data:
        if trace.hovertemplate is not None or trace.type not in ("scatter", "bar"):
            continue
        values, positions = ("x", "y") if trace.orientation == "h" else ("y", "x")
        reading = f"%{{{values}{number_format(trace[values])}}}"
        if are_lines:
            trace.hovertemplate = f"{reading}<extra>{trace.name or ''}</extra>"
        else:
            name = f"<b>{trace.name}</b><br>" if trace.name else ""
            position = f"%{{{positions}{number_format(trace[positions])}}}"
            trace.hovertemplate = f"{name}{position}: {reading}<extra></extra>"


def number_format(values) -> str:
    """Return plotly's format of three digits if a value is a fraction, else an empty string."""
    is_fraction = lambda value: isinstance(value, (float, np.floating)) and value % 1
    return ":.3~r" if values is not None and any(map(is_fraction, values)) else ""


def can_name_ends(fig: go.Figure) -> bool:
    """Return whether the legend holds two to five lines of one panel and nothing else."""
    traces = legend_traces(fig)
    if any(trace.type != "scatter" for trace in traces):
        return False
    single = all(trace.xaxis in (None, "x") and trace.yaxis in (None, "y") for trace in fig.data)
    has_lines = any("lines" in (trace.mode or "lines") for trace in traces)
    has_numbers = all(are_numbers(trace.x) and are_numbers(trace.y) for trace in traces)
    return single and has_lines and has_numbers and 2 <= len(traces) <= MAX_NAMED_LINES


def legend_traces(fig: go.Figure) -> list:
    """Return the traces that the legend lists."""
    return [trace for trace in fig.data if trace.name and trace.showlegend is not False]


def are_numbers(values) -> bool:
    """Return whether there are values and each of them is a number or None."""
    kinds = (int, float, np.number, NoneType)
    return values is not None and all(isinstance(value, kinds) for value in values)


def name_ends(fig: go.Figure) -> None:
    """Write each line's name after its last point, in its color, without overlap; no legend."""
    traces, yaxis = legend_traces(fig), fig.layout.yaxis
    fix_range(fig.layout.xaxis, [x for trace in fig.data for x in trace.x])
    fix_range(yaxis, [y for trace in fig.data for y in values_with_errors(trace)])
    low, high = yaxis.range
    height = lambda y: (y - low) / ((high - low) or 1) * (fig.layout.height - PANEL_MARGIN)
    ends = [last_point(fig, trace) for trace in traces]
    names = [textwrap.wrap(trace.name, NAME_WIDTH) for trace in traces]
    default = {id(trace): color for trace, color in zip(fig.data, itertools.cycle(COLORWAY))}
    ink = dict(zip(map(str.lower, PALETTE.values()), INKS.values()))
    boxes = [(height(y), LINE_HEIGHT * len(lines)) for (_, y), lines in zip(ends, names)]
    edge = max(x for x, _ in ends)
    groups: dict[float, list[int]] = {}  # lines that end beside each other share their room
    for i, (x, _) in enumerate(ends):
        groups.setdefault(edge if x >= edge - 0.15 * abs(edge) else x, []).append(i)
    crossing = [
        height(np.nan_to_num(positions(yaxis, [line.y0])[0]))
        for line in fig.layout.shapes
        if line.type == "line" and line.y0 == line.y1 and line.yref in (None, "y")
    ]
    shift = {
        i: by
        for group in groups.values()
        for i, by in zip(group, spread_out([boxes[i] for i in group]))
    }
    for i, (trace, (x, y), lines) in enumerate(zip(traces, ends, names)):
        color = trace.line.color or trace.marker.color or default[id(trace)]
        middle, size = boxes[i]
        is_crossed = any(abs(middle + shift[i] - line) < size / 2 for line in crossing)
        fig.add_annotation(
            name=END,
            text="<br>".join(lines),
            **dict(x=x, y=y, xshift=8, yshift=shift[i], xanchor="left", align="left"),
            showarrow=False,
            # hides the lines under the name
            bgcolor=None if i in groups[edge] and not is_crossed else LIGHT["background"],
            font={"size": 13, "color": ink.get(str(color).lower(), LIGHT["text"])},
        )
    longest = max(len(line) for i in groups[edge] for line in names[i])
    fig.update_layout(showlegend=False, margin_r=24 + round(7.2 * longest))


def positions(axis, values: Sequence) -> np.ndarray:
    """Return values in the units of their axis (log10 on a log axis); NaN for one without a
    position."""
    numbers = np.array(values, dtype=float)
    return np.log10(np.where(numbers > 0, numbers, np.nan)) if axis.type == "log" else numbers


def last_point(fig: go.Figure, trace) -> tuple[float, float]:
    """Return the last point of a trace inside the range of y, in the units of an annotation."""
    low, high = fig.layout.yaxis.range
    order = np.argsort(np.array(trace.x, dtype=float), kind="stable")
    x, y = positions(fig.layout.xaxis, trace.x)[order], positions(fig.layout.yaxis, trace.y)[order]
    inside = ~np.isnan(x) & (low <= y) & (y <= high)
    return float(x[inside][-1]), float(y[inside][-1])


def fix_range(axis, values: list[float]) -> None:
    """Set the range that plotly would choose for these values, so that names do not widen it."""
    if axis.range is None:
        known = positions(axis, values)
        low, high = float(np.nanmin(known)), float(np.nanmax(known))
        room = 0.05 * (high - low)
        axis.range = (min(low, 0) if axis.rangemode == "tozero" else low - room, high + room)


def values_with_errors(trace) -> np.ndarray:
    """Return both ends of the error bar of each of a trace's values."""
    y, bars = np.array(trace.y, dtype=float), trace.error_y
    if bars.array is None or bars.visible is False:
        return y
    down = bars.array if bars.arrayminus is None else bars.arrayminus
    return np.concatenate([y - np.array(down, dtype=float), y + np.array(bars.array, dtype=float)])


def spread_out(boxes: list[tuple[float, float]]) -> list[float]:
    """Return how far to move each box so that no two overlap.

    Boxes that would overlap form a group, which stays centered on the mean of its middles.
    """
    groups: list[list[int]] = []
    size = lambda group: sum(boxes[i][1] for i in group)
    middle = lambda group: sum(boxes[i][0] for i in group) / len(group)
    for box in sorted(range(len(boxes)), key=lambda i: boxes[i][0]):
        groups.append([box])
        while len(groups) > 1:
            below, above = groups[-2:]
            if middle(above) - middle(below) >= (size(above) + size(below)) / 2:
                break
            groups[-2:] = [below + above]
    moves = [0.0] * len(boxes)
    for group in groups:
        bottom = middle(group) - size(group) / 2
        for i in group:
            moves[i] = bottom + boxes[i][1] / 2 - boxes[i][0]
            bottom += boxes[i][1]
    return moves
