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
    missing = value is None or value != value  # nan
    return (
        "" if missing else html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))
    )


def thin(rows: list) -> list:
    """Return at most MAX_ROWS evenly spaced rows, with the first and the last."""
    if len(rows) <= MAX_ROWS:
        return rows
    keep = np.linspace(0, len(rows) - 1, MAX_ROWS).round().astype(int)
    return [rows[i] for i in keep]


def axis_title(layout: dict, axis: str, fallback: str) -> str:
    """Return the title of an axis such as "xaxis"; `fallback` if it has none."""
    title = (layout.get(axis) or {}).get("title") or {}
    return (title if isinstance(title, str) else title.get("text")) or fallback


def table(head: Iterable[str], rows: list) -> str:
    """Return a table as HTML, with a note if rows were left out."""
    shown = thin(rows)
    note = (
        f"<p>{len(shown)} of {len(rows)} rows, evenly spaced.</p>" if len(shown) < len(rows) else ""
    )
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
    columns = list(dict.fromkeys(values(trace["x"])))
    rows: dict[str, dict[str, str]] = {}
    for column, (name, word) in zip(values(trace["x"]), trace["customdata"]):
        rows.setdefault(name, {})[column] = word
    corner = f"{axis_title(layout, 'yaxis', 'row')} \\ {axis_title(layout, 'xaxis', 'column')}"
    body = [[name, *(row.get(column) for column in columns)] for name, row in rows.items()]
    return re.sub(r"&lt;(/?b)&gt;", r"<\1>", table([corner, *columns], body))


def readings(trace: dict) -> list:
    """Return a trace's y values, each with the two ends of its error bar if it has one."""
    middle, bars = values(trace.get("y")), trace.get("error_y") or {}
    up = values(bars.get("array"))
    down = values(bars.get("arrayminus")) or up
    return (
        [
            cell(y) and f"{cell(y)} ({cell(y - below)} to {cell(y + above)})"
            for y, below, above in zip(middle, down, up)
        ]
        if up
        else middle
    )


def panels(traces: list[dict], layout: dict) -> list[str]:
    """Return the title of each trace's panel; "" for all if a panel has no title."""
    axes = [(t.get("xaxis") or "x", t.get("yaxis") or "y") for t in traces]
    titles = [
        note["text"]
        for note in layout.get("annotations") or []
        if (note.get("xref"), note.get("yref")) == ("paper", "paper")
    ]
    order = list(dict.fromkeys(axes))
    return [titles[order.index(pair)] if len(titles) == len(order) else "" for pair in axes]


def series_table(traces: list[dict], layout: dict) -> str:
    """Return the table of curves and bars.

    It has a column per series if all series share their x, else a row per point.
    """
    names = [t.get("name") or f"series {i}" for i, t in enumerate(traces, 1)]
    if len(set(names)) < len(names):
        names = [
            f"{panel}: {name}" if panel else name
            for panel, name in zip(panels(traces, layout), names)
        ]
    named = [(name, values(t.get("x")), readings(t)) for name, t in zip(names, traces)]
    x_title, y_title = axis_title(layout, "xaxis", "x"), axis_title(layout, "yaxis", "y")
    first = named[0][1]
    if first and all(x == first and len(y) == len(first) for _, x, y in named):
        heads = [y_title] if len(named) == 1 else [name for name, _, _ in named]
        return table(
            [x_title, *heads], [list(row) for row in zip(first, *(y for _, _, y in named))]
        )
    rows = []
    for name, x, y in named:
        size = max(len(x), len(y))
        rows += list(zip([name] * size, x or range(size), y or [None] * size))
    return table(["series", x_title, y_title], rows)


def spans_table(traces: list[dict], layout: dict) -> str:
    """Return the table of bars that do not begin at 0: a row per bar, with its start and length."""
    along, across = ("x", "y") if traces[0].get("orientation") == "h" else ("y", "x")
    rows = []
    for i, trace in enumerate(traces, 1):
        lengths = values(trace.get(along))
        labels = values(trace.get(across))
        base = trace["base"]
        starts = values(base) if isinstance(base, list | dict) else [base] * len(lengths)
        rows += list(
            zip(
                [trace.get("name") or f"series {i}"] * len(lengths),
                labels or range(len(lengths)),
                starts,
                lengths,
            )
        )
    title = axis_title(layout, f"{along}axis", along)
    return table(
        [
            "series",
            axis_title(layout, f"{across}axis", across),
            f"start ({title})",
            "length (same unit)",
        ],
        rows,
    )


def figure_table(figure: dict) -> str:
    """Return all data of a figure as HTML tables, each with at most MAX_ROWS rows."""
    layout = figure.get("layout", {})
    points = [t for t in figure["data"] if t.get("x") is not None or t.get("y") is not None]
    spans = [t for t in points if t.get("base") is not None]
    grids = [t for t in spans if t.get("customdata") is not None]
    parts = [grid_table(t, layout) for t in grids]
    parts += [
        draw(traces, layout)
        for draw, traces in (
            (spans_table, [t for t in spans if t not in grids]),
            (series_table, [t for t in points if t.get("base") is None]),
        )
        if traces
    ]
    return "".join(parts)
