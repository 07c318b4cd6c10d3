"""A plotly figure's data as an HTML table, for readers who cannot or do not want to see the plot."""

import base64
import html
import re
from collections.abc import Iterable

import numpy as np

MAX_ROWS = 60


def values(column: object) -> list:
    """Return a trace's column as a list; plotly encodes a long one as base64 of a typed array."""
    if isinstance(column, dict) and "bdata" in column:
        array = np.frombuffer(base64.b64decode(column["bdata"]), dtype=np.dtype(column["dtype"]))
        shape = [int(n) for n in str(column["shape"]).split(",")] if "shape" in column else [-1]
        return array.reshape(shape).tolist()
    return list(column) if column is not None else []


def cell(value: object) -> str:
    """Return a value as HTML text with at most four digits; "" for None and NaN."""
    if value is None or value != value:  # nan
        return ""
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def axis_title(layout: dict, axis: str, fallback: str) -> str:
    """Return the title of an axis such as "xaxis"; `fallback` if it has none."""
    title = (layout.get(axis) or {}).get("title") or {}
    return (title if isinstance(title, str) else title.get("text")) or fallback


def table(head: Iterable[str], rows: list) -> str:
    """Return a table as HTML; of many rows it has MAX_ROWS evenly spaced ones, and says so."""
    note, shown = "", rows
    if len(rows) > MAX_ROWS:
        keep = np.linspace(0, len(rows) - 1, MAX_ROWS).round().astype(int)
        shown = [rows[i] for i in keep]
        note = f"<p>{MAX_ROWS} of {len(rows)} rows, evenly spaced.</p>"
    heads = "".join(f'<th scope="col">{cell(h)}</th>' for h in head)
    body = "".join("<tr>" + "".join(f"<td>{cell(v)}</td>" for v in row) + "</tr>" for row in shown)
    return (
        '<div class="sdl-scroll" tabindex="0" role="group"'
        f' aria-label="Data"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{note}'
    )


def grid_table(trace: dict, layout: dict) -> str:
    """Return the table of a grid from `specdec_book.viz.cells`: a row per y, a column per x.

    Bold text remains bold.
    """
    rows: dict[str, dict[str, str]] = {}
    for column, (name, word) in zip(values(trace["x"]), trace["customdata"]):
        rows.setdefault(name, {})[column] = word
    columns = list(dict.fromkeys(values(trace["x"])))
    corner = f"{axis_title(layout, 'yaxis', 'row')} \\ {axis_title(layout, 'xaxis', 'column')}"
    body = [[name, *(row.get(column) for column in columns)] for name, row in rows.items()]
    return re.sub(r"&lt;(/?b)&gt;", r"<\1>", table([corner, *columns], body))


def readings(trace: dict) -> list:
    """Return a trace's y values, each with the two ends of its error bar if it has one."""
    middle, bars = values(trace.get("y")), trace.get("error_y") or {}
    if not (up := values(bars.get("array"))):
        return middle
    down = values(bars.get("arrayminus")) or up
    return [
        cell(y) and f"{cell(y)} ({cell(y - below)} to {cell(y + above)})"
        for y, below, above in zip(middle, down, up)
    ]


def names(traces: list[dict], layout: dict) -> list[str]:
    """Return the name of each trace, after the title of its panel if two traces have one name."""
    own = [t.get("name") or f"series {i}" for i, t in enumerate(traces, 1)]
    axes = [(t.get("xaxis") or "x", t.get("yaxis") or "y") for t in traces]
    titles = [
        note["text"]
        for note in layout.get("annotations") or []
        if (note.get("xref"), note.get("yref")) == ("paper", "paper")
    ]
    panels = list(dict.fromkeys(axes))
    if len(set(own)) == len(own) or len(titles) != len(panels):
        return own
    return [f"{titles[panels.index(pair)]}: {name}" for pair, name in zip(axes, own)]


def series_table(traces: list[dict], layout: dict) -> str:
    """Return the table of curves and bars.

    It has a column per series if all series share their x, else a row per point.
    """
    named = [(values(t.get("x")), readings(t)) for t in traces]
    heads, first = names(traces, layout), named[0][0]
    x_title, y_title = axis_title(layout, "xaxis", "x"), axis_title(layout, "yaxis", "y")
    if first and all(x == first and len(y) == len(first) for x, y in named):
        heads = [y_title] if len(named) == 1 else heads
        return table([x_title, *heads], [*zip(first, *(y for _, y in named))])
    rows = []
    for name, (x, y) in zip(heads, named):
        size = max(len(x), len(y))
        rows += zip([name] * size, x or range(size), y or [None] * size)
    return table(["series", x_title, y_title], rows)


def spans_table(traces: list[dict], layout: dict) -> str:
    """Return the table of bars that do not begin at 0: a row per bar, with its start and length."""
    along, across = ("x", "y") if traces[0].get("orientation") == "h" else ("y", "x")
    rows = []
    for i, trace in enumerate(traces, 1):
        lengths, base = values(trace.get(along)), trace["base"]
        labels = values(trace.get(across)) or range(len(lengths))
        starts = values(base) if isinstance(base, list | dict) else [base] * len(lengths)
        name = trace.get("name") or f"series {i}"
        rows += zip([name] * len(lengths), labels, starts, lengths)
    label, title = (
        axis_title(layout, f"{across}axis", across),
        axis_title(layout, f"{along}axis", along),
    )
    return table(["series", label, f"start ({title})", "length (same unit)"], rows)


def figure_table(figure: dict) -> str:
    """Return all data of a figure as HTML tables, each with at most MAX_ROWS rows."""
    layout = figure.get("layout", {})
    points = [t for t in figure["data"] if t.get("x") is not None or t.get("y") is not None]
    spans = [t for t in points if t.get("base") is not None]
    grids = [t for t in spans if t.get("customdata") is not None]
    bars = [t for t in spans if t not in grids]
    series = [t for t in points if t.get("base") is None]
    tables = [grid_table(t, layout) for t in grids]
    tables += [spans_table(bars, layout)] if bars else []
    tables += [series_table(series, layout)] if series else []
    return "".join(tables)
