"""A plotly figure's own data as an HTML table, for readers who cannot or would rather not read it off the drawing."""

import base64
import html
from collections.abc import Iterable

import numpy as np

MAX_ROWS = 60


def values(column: object) -> list:
    """A trace's column as a list; plotly ships long ones as base64 of a typed array."""
    if isinstance(column, dict) and "bdata" in column:
        array = np.frombuffer(base64.b64decode(column["bdata"]), dtype=np.dtype(column["dtype"]))
        shape = [int(n) for n in str(column["shape"]).split(",")] if "shape" in column else [-1]
        return array.reshape(shape).tolist()
    return list(column) if column is not None else []


def cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return html.escape(text)


def thinned(rows: list) -> list:
    """At most MAX_ROWS rows, evenly spaced, first and last kept."""
    if len(rows) <= MAX_ROWS:
        return rows
    keep = np.linspace(0, len(rows) - 1, MAX_ROWS).round().astype(int)
    return [rows[i] for i in keep]


def axis_title(layout: dict, axis: str, fallback: str) -> str:
    title = (layout.get(axis) or {}).get("title") or {}
    return (title if isinstance(title, str) else title.get("text")) or fallback


def table(head: Iterable[str], rows: list) -> str:
    shown = thinned(rows)
    note = f"<p>{len(shown)} of {len(rows)} rows, evenly spaced.</p>" if len(shown) < len(rows) else ""
    heads = "".join(f'<th scope="col">{cell(h)}</th>' for h in head)
    body = "".join("<tr>" + "".join(f"<td>{cell(v)}</td>" for v in row) + "</tr>" for row in shown)
    return f'<div class="sdl-scroll" tabindex="0" role="group" aria-label="Data"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{note}'


def grid_table(trace: dict, layout: dict) -> str:
    """A heatmap: one row per y, one column per x."""
    grid = values(trace.get("z"))
    columns = values(trace.get("x")) or list(range(len(grid[0]) if grid else 0))
    names = values(trace.get("y")) or list(range(len(grid)))
    corner = f"{axis_title(layout, 'yaxis', 'y')} \\ {axis_title(layout, 'xaxis', 'x')}"
    return table([corner, *columns], [[name, *row] for name, row in zip(names, grid)])


def series_table(traces: list[dict], layout: dict) -> str:
    """Curves and bars: one column per series where they share their x, else one row per point."""
    named = [(t.get("name") or f"series {i}", values(t.get("x")), values(t.get("y"))) for i, t in enumerate(traces, 1)]
    x_title, y_title = axis_title(layout, "xaxis", "x"), axis_title(layout, "yaxis", "y")
    first = named[0][1]
    if first and all(x == first and len(y) == len(first) for _, x, y in named):
        heads = [y_title] if len(named) == 1 else [name for name, _, _ in named]
        return table([x_title, *heads], [list(row) for row in zip(first, *(y for _, _, y in named))])
    rows = []
    for name, x, y in named:
        size = max(len(x), len(y))
        rows += list(zip([name] * size, x or range(size), y or [None] * size))
    return table(["series", x_title, y_title], rows)


def figure_table(figure: dict) -> str:
    """HTML of all the data in `figure` (plotly's JSON form), thinned to at most 60 rows a table."""
    layout = figure.get("layout", {})
    grids = [t for t in figure["data"] if t.get("z") is not None]
    series = [t for t in figure["data"] if t.get("z") is None and (t.get("x") is not None or t.get("y") is not None)]
    parts = [grid_table(t, layout) for t in grids]
    if series:
        parts.append(series_table(series, layout))
    return "".join(parts)
