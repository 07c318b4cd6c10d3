"""Grids of coloured cells: a value, or a word, for every pair of a row and a column.

What lives here: the cells and their scale of colours. What does not: the helper that every figure
goes through (`figure`). Cells are bars, which the smaller of plotly's libraries can draw.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specdec_lite.viz.figure import ROUND_THE_PANEL
from specdec_lite.viz.theme import DEEP, LIGHT

SIDE = 0.94  # of a cell, where 1 leaves no gap
ROW_HEIGHT = 30  # px
BETWEEN = 64  # px, of one grid over another: names of columns, and a title
TITLE = 14  # px, of a grid's letters
TURN = 0.68  # of the scale: deeper cells have light words
LEAST_LETTERS = 9  # px: a cell with room for smaller ones only shows none


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
    """A cell for each row and column, its value in it where there is room, and under the pointer.

    Args:
        grids: [rows, columns] values, None where there is none; or several of them by title.
        columns, rows: their names.
        words: what stands in the cells, in the form of `grids`; the values to two places by default.
        ends: the values of the palest and the deepest colour, the least and the greatest by default.
        middle: what is less has another colour than what is more.
        scale: the title of the scale of colours, which is drawn beside the cells if it has one.
        across: how many grids stand side by side at most.
    """
    if not isinstance(grids, Mapping):
        grids, words = {"": grids}, {"": words}
    columns, rows = list(map(str, columns)), list(map(str, rows))
    low, high = ends_of(grids, ends, middle)
    wide = min(across, len(grids))
    tall = math.ceil(len(grids) / wide)
    panels = tall * (ROW_HEIGHT * len(rows) + BETWEEN) - BETWEEN
    fig = make_subplots(
        *(tall, wide),
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=BETWEEN / panels if tall > 1 else None,
        specs=[
            [{} if row * wide + i < len(grids) else None for i in range(wide)]
            for row in range(tall)
        ],
        subplot_titles=list(grids),
    )
    for place, (title, grid) in enumerate(grids.items()):
        said = (words or {}).get(title)
        shown = [
            (column, i, float(value), f"{value:.2f}" if said is None else said[i][j])
            for i, row in enumerate(grid)
            for j, (column, value) in enumerate(zip(columns, row, strict=True))
            if value is not None
        ]
        x, y, values, labels = map(list, zip(*shown))
        base = low if middle is None else middle
        depths = [abs(value - base) / (high - base or 1) for value in values]
        fig.add_bar(
            name=title,
            x=x,
            y=[SIDE] * len(y),
            base=[i - SIDE / 2 for i in y],
            width=SIDE,
            marker=dict(color=values, coloraxis="coloraxis", line_width=0),
            text=labels,
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont_color=[LIGHT["background" if d > TURN else "text"] for d in depths],
            customdata=[[rows[i], label] for i, label in zip(y, labels)],
            hovertemplate="%{customdata[0]}, %{x}: %{customdata[1]}<extra></extra>",
            showlegend=False,
            row=place // wide + 1,
            col=place % wide + 1,
        )
    tones = [LIGHT["grid"], DEEP["blue"]]
    fig.update_layout(
        barmode="overlay",
        height=ROUND_THE_PANEL + panels,
        uniformtext=dict(minsize=LEAST_LETTERS, mode="hide"),
        coloraxis=dict(
            colorscale=tones if middle is None else [DEEP["orange"], *tones],
            cmin=low,
            cmax=high,
            showscale=bool(scale),
            colorbar_title=scale,
        ),
    )
    fig.update_annotations(font_size=TITLE)
    fig.update_xaxes(tickangle=0, type="category", range=[-0.5, len(columns) - 0.5], showgrid=False)
    fig.update_yaxes(range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False)
    fig.update_yaxes(tickvals=list(range(len(rows))), ticktext=rows)
    return fig


def ends_of(
    grids: Mapping[str, Sequence], ends: tuple[float, float] | None, middle: float | None
) -> tuple[float, float]:
    """The values at the ends of the scale, as far from `middle` as each other."""
    if ends is not None:
        return ends
    values = [
        float(value)
        for grid in grids.values()
        for row in grid
        for value in row
        if value is not None
    ]
    if middle is None:
        return min(values), max(values)
    reach = max(abs(value - middle) for value in values)
    return middle - reach, middle + reach
