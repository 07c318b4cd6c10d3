"""Grids of colored cells: one value or one label for every pair of a row and a column.

The cells are bars, which the smaller of plotly's two libraries can draw.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specdec_book.viz.figure import PANEL_MARGIN
from specdec_book.viz.theme import BLACK, DEEP, LIGHT

SIDE = 0.94  # side of a cell; 1 leaves no gap between cells
ROW_HEIGHT = 30  # px
GRID_GAP = 64  # px between two grids, for the lower grid's title and the upper grid's column names
TITLE_SIZE = 14  # px, font size of a grid's title
LIGHT_TEXT_DEPTH = 0.75  # part of the color scale from which on a cell's text is light
MIN_FONT_SIZE = 9  # px; a cell that has room only for a smaller font shows no text


class ColorScale(NamedTuple):
    """The values that the colors of a figure stand for.

    Attributes:
        low: Value of the first color.
        high: Value of the last color.
        middle: Value at which the two colors of a diverging scale meet; None for one color.
    """

    low: float
    high: float
    middle: float | None

    def depth(self, value: float) -> float:
        """Return how far a value is from the palest color: 0 at the palest, 1 at the deepest."""
        palest = self.low if self.middle is None else self.middle
        return abs(value - palest) / (self.high - palest or 1)


def cells(
    grids: Mapping[str, Sequence] | Sequence,
    columns: Iterable,
    rows: Iterable,
    *,
    words: Mapping[str, Sequence] | Sequence | None = None,
    ends: tuple[float, float] | None = None,
    middle: float | None = None,
    scale: str = "",
    across: int = 2,
) -> go.Figure:
    """Draw one cell for each row and column, with its value inside it and under the pointer.

    Shapes: grids [rows, columns].
    """
    titled = grids if isinstance(grids, Mapping) else {"": grids}
    labels = words if isinstance(words, Mapping) else {"": words}
    columns, rows = list(map(str, columns)), list(map(str, rows))
    colors = color_scale(titled, ends, middle)
    wide = min(across, len(titled))
    tall = math.ceil(len(titled) / wide)
    height = tall * (ROW_HEIGHT * len(rows) + GRID_GAP) - GRID_GAP
    fig = empty_grids(list(titled), tall, wide, height)
    for number, (title, grid) in enumerate(titled.items()):
        bars = grid_bars(grid, columns, rows, labels.get(title), colors)
        fig.add_trace(bars.update(name=title), row=number // wide + 1, col=number % wide + 1)
    fig.update_layout(
        barmode="overlay",
        height=PANEL_MARGIN + height,
        uniformtext=dict(minsize=MIN_FONT_SIZE, mode="hide"),
        coloraxis=color_axis(colors, scale),
    )
    fig.update_annotations(font_size=TITLE_SIZE)
    fig.update_xaxes(type="category", range=[-0.5, len(columns) - 0.5], showgrid=False)
    fig.update_yaxes(range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False)
    fig.update_yaxes(tickvals=list(range(len(rows))), ticktext=rows)
    return fig


def empty_grids(titles: list[str], tall: int, wide: int, height: float) -> go.Figure:
    """Return a figure with one empty panel per title, `wide` of them in each of `tall` rows."""
    return make_subplots(
        *(tall, wide),
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=GRID_GAP / height if tall > 1 else None,
        specs=[
            [{} if row * wide + i < len(titles) else None for i in range(wide)]
            for row in range(tall)
        ],
        subplot_titles=titles,
    )


def grid_bars(
    grid: Sequence, columns: list[str], rows: list[str], words: Sequence | None, colors: ColorScale
) -> go.Bar:
    """Return the cells of one grid as bars.

    Shapes: grid [rows, columns].
    """
    entries = [
        (column, i, float(value), f"{value:.2f}" if words is None else words[i][j])
        for i, row in enumerate(grid)
        for j, (column, value) in enumerate(zip(columns, row, strict=True))
        if value is not None
    ]
    x, y, values, labels = map(list, zip(*entries))
    is_deep = [colors.depth(value) > LIGHT_TEXT_DEPTH for value in values]
    return go.Bar(
        x=x,
        y=[SIDE] * len(y),
        base=[i - SIDE / 2 for i in y],
        width=SIDE,
        marker=dict(color=values, coloraxis="coloraxis", line_width=0),
        text=labels,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont_color=[LIGHT["background"] if deep else BLACK for deep in is_deep],
        customdata=[[rows[i], label] for i, label in zip(y, labels)],
        hovertemplate="%{customdata[0]}, %{x}: %{customdata[1]}<extra></extra>",
        showlegend=False,
    )


def color_axis(colors: ColorScale, title: str) -> dict:
    """Return plotly's settings of the color scale that all grids share."""
    tones = [LIGHT["grid"], DEEP["blue"]]
    return dict(
        colorscale=tones if colors.middle is None else [DEEP["orange"], *tones],
        cmin=colors.low,
        cmax=colors.high,
        showscale=bool(title),
        colorbar_title=title,
    )


def color_scale(
    grids: Mapping[str, Sequence], ends: tuple[float, float] | None, middle: float | None
) -> ColorScale:
    """Return the values of the first and the last color, centered on `middle` if it is given.

    Shapes: grids [rows, columns].
    """
    if ends is not None:
        return ColorScale(*ends, middle)
    values = list(grid_values(grids))
    if middle is None:
        return ColorScale(min(values), max(values), None)
    reach = max(abs(value - middle) for value in values)
    return ColorScale(middle - reach, middle + reach, middle)


def grid_values(grids: Mapping[str, Sequence]) -> Iterator[float]:
    """Yield the values of all cells that are not empty."""
    for grid in grids.values():
        for row in grid:
            yield from (float(value) for value in row if value is not None)
