"""A grid of colored cells: one value or one label for every pair of a row and a column.

The cells are bars, which the smaller of plotly's two libraries can draw.
"""

from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from specdec_book.viz.figure import PANEL_MARGIN
from specdec_book.viz.theme import BLACK, DEEP, LIGHT

SIDE = 0.94  # side of a cell; 1 leaves no gap between cells
ROW_HEIGHT = 30  # px
LIGHT_TEXT_DEPTH = 0.75  # part of the color scale from which on a cell's text is light
MIN_FONT_SIZE = 9  # px; a cell that has room only for a smaller font shows no text


def cells(
    grid: Sequence[Sequence],
    columns: Iterable,
    rows: Iterable,
    *,
    words: Sequence[Sequence[str]] | None = None,
    ends: tuple[float, float] | None = None,
    middle: float | None = None,
) -> go.Figure:
    """Draw one cell for each row and column, with its value inside it and under the pointer.

    Shapes: grid, words [rows, columns].

    Args:
        grid: A value for each cell; None leaves it empty.
        columns: Names of the columns.
        rows: Names of the rows.
        words: Texts in place of the values.
        ends: Values of the first and the last color; without them those of the values.
        middle: Value at which the two colors of a diverging scale meet; None for one color.
    """
    columns, rows = list(map(str, columns)), list(map(str, rows))
    entries = [
        (column, i, float(value), f"{value:.2f}" if words is None else words[i][j])
        for i, row in enumerate(grid)
        for j, (column, value) in enumerate(zip(columns, row, strict=True))
        if value is not None
    ]
    x, y, values, labels = map(list, zip(*entries))
    low, high = ends or color_ends(values, middle)
    palest = low if middle is None else middle
    depths = [abs(value - palest) / (high - palest or 1) for value in values]
    inks = [LIGHT["background"] if depth > LIGHT_TEXT_DEPTH else BLACK for depth in depths]
    bars = go.Bar(
        x=x,
        y=[SIDE] * len(y),
        base=[i - SIDE / 2 for i in y],
        width=SIDE,
        marker=dict(color=values, coloraxis="coloraxis", line_width=0),
        text=labels,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont_color=inks,
        customdata=[[rows[i], label] for i, label in zip(y, labels)],
        hovertemplate="%{customdata[0]}, %{x}: %{customdata[1]}<extra></extra>",
        showlegend=False,
    )
    tones = [LIGHT["grid"], DEEP["blue"]]
    scale = tones if middle is None else [DEEP["orange"], *tones]
    fig = go.Figure(bars)
    fig.update_layout(
        barmode="overlay",
        height=PANEL_MARGIN + ROW_HEIGHT * len(rows),
        uniformtext=dict(minsize=MIN_FONT_SIZE, mode="hide"),
        coloraxis=dict(colorscale=scale, cmin=low, cmax=high, showscale=False),
    )
    fig.update_xaxes(type="category", range=[-0.5, len(columns) - 0.5], showgrid=False)
    fig.update_yaxes(range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False)
    fig.update_yaxes(tickvals=list(range(len(rows))), ticktext=rows)
    return fig


def color_ends(values: Sequence[float], middle: float | None) -> tuple[float, float]:
    """Return the values of the first and the last color, centered on `middle` if it is given."""
    if middle is None:
        return min(values), max(values)
    reach = max(abs(value - middle) for value in values)
    return middle - reach, middle + reach
