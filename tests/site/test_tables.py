"""A figure's data as a table: its headings and cells for every type of trace that the book draws."""

import json

import numpy as np
import plotly.graph_objects as go
import pytest
from bs4 import BeautifulSoup
from plotly.subplots import make_subplots
from specdec_site.outputs import figure_html
from specdec_site.tables import MAX_ROWS, figure_table

from specdec_book.viz import cells, figure


def tables(fig: go.Figure) -> list[list[str]]:
    """Return the rows of each table of a figure, the headings first, as "cell | cell".

    The figure is converted to plotly's JSON, as the book's renderer receives it.
    """
    soup = BeautifulSoup(figure_table(json.loads(fig.to_json())), "html.parser")
    text = lambda row: " | ".join(cell.get_text() for cell in row.select("th, td"))
    return [[text(row) for row in table.select("tr")] for table in soup.select("table")]


def spans(along: str = "x", **changed) -> go.Bar:
    """Return bars that do not begin at 0."""
    across = {"x": "y", "y": "x"}[along]
    bars = {
        "name": "weights",
        along: [2.5, 4.0],
        across: ["target", "draft"],
        "base": [0.0, 100.25],
    }
    return go.Bar(bars | {"orientation": {"x": "h", "y": "v"}[along]} | changed)


def panels() -> go.Figure:
    """Return two panels that each have a series of the same name."""
    fig = make_subplots(1, 2, subplot_titles=["agree", "at least"])
    for col in (1, 2):
        fig.add_bar(name="emitted", x=["tea"], y=[col / 4], row=1, col=col)
    return fig


def grid() -> go.Figure:
    words = [["<b>a</b>", "b"], ["&", ""]]
    fig = cells([[1, 0], [0, None]], ["s", "t"], ["p", "q"], words=words)
    return fig.update_layout(xaxis_title="token", yaxis_title="rule")


H = {"xaxis_title": "µs", "yaxis_title": "model"}
V = {"yaxis_title": "µs", "xaxis_title": "model"}
K = {"xaxis_title": "k", "yaxis_title": "T(k)"}
PLAIN = go.Scatter(name="plain", x=[1, 2], y=[1.0, 0.5])
POINTS = {"name": "plain", "x": [1, 2, 3], "y": np.array([1.0, 2.5, np.nan])}
UP = [0.5, 0.25, 0]
LOPSIDED = {"array": UP, "arrayminus": np.array([0.125, 1.0, 0]), "symmetric": False}
TYPED = json.loads(go.Figure(go.Bar(x=np.array([7.0, 7.0]))).to_json())["data"][0]["x"]
DIGITS = [0.123456, 1e-7, 123456.0, 123456, 2.0]
SPAN = "series | model | start (µs) | length (same unit)"
BARS = [SPAN, "weights | target | 0 | 2.5", "weights | draft | 100.2 | 4"]
OTHER = ["other | target | 3 | 2.5", "other | draft |  | 4"]
SEVEN = [SPAN, "weights | target | 7 | 2.5", "weights | draft | 7 | 4"]
CASES = {
    "bars with a base": (([spans(), spans(name="other", base=[3, None])], H), [BARS + OTHER]),
    "upright bars with a base": (([spans("y")], V), [BARS]),
    "one base for all bars": (([spans(base=7)], H), [SEVEN]),
    "a base as a typed array": (([spans(base=TYPED)], H), [SEVEN]),
    "bars and lines have separate tables": (
        ([spans(), go.Scatter(name="mean", x=[1], y=["target"])], H),
        [BARS, ["µs | model", "1 | target"]],
    ),
    "lines that share their x are columns": (
        ([PLAIN, go.Scatter(x=[1, 2], y=np.array([1.0, 2.0]))], K),
        [["k | plain | series 2", "1 | 1 | 1", "2 | 0.5 | 2"]],
    ),
    "one line has the name of its axis": (([PLAIN], K), [["k | T(k)", "1 | 1", "2 | 0.5"]]),
    "lines with different x follow one another": (
        ([PLAIN, go.Scatter(name="ours", y=[5])], K),
        [["series | k | T(k)", "plain | 1 | 1", "plain | 2 | 0.5", "ours | 0 | 5"]],
    ),
    "equal names are told apart by their panels": (
        panels(),
        [["x | agree: emitted | at least: emitted", "tea | 0.25 | 0.5"]],
    ),
    "an error bar is its two ends": (
        ([go.Scatter(POINTS, error_y=LOPSIDED), go.Scatter(x=[1, 2, 3], y=[4, 5, 6])],),
        [
            ["x | plain | series 2", "1 | 1 (0.875 to 1.5) | 4"]
            + ["2 | 2.5 (1.5 to 2.75) | 5", "3 |  | 6"]
        ],
    ),
    "an even error bar": (
        ([go.Scatter(POINTS, error_y={"array": UP})],),
        [["x | y", "1 | 1 (0.5 to 1.5)", "2 | 2.5 (2.25 to 2.75)", "3 | "]],
    ),
    "categories are text and no markup": (
        ([go.Bar(name=name, x=["A", "<b>&"], y=[0.25, 1]) for name in ("p", "q < p")],),
        [["x | p | q < p", "A | 0.25 | 0.25", "<b>& | 1 | 1"]],
    ),
    "a missing value is an empty cell": (
        ([go.Scatter(x=[1, 2, 3], y=[None, float("nan"), 0.0])],),
        [["x | y", "1 | ", "2 | ", "3 | 0"]],
    ),
    "floats have four digits, integers all": (
        ([go.Bar(x=["a"] * 5, y=DIGITS)],),
        [["x | y", "a | 0.1235", "a | 1e-07", "a | 1.235e+05", "a | 123456", "a | 2"]],
    ),
    "a grid has a row for every y": (grid(), [["rule \\ token | s | t", "p | a | b", "q | & | "]]),
}


@pytest.mark.parametrize("fig, expected", CASES.values(), ids=CASES)
def test_a_figure_is_a_table(fig, expected: list[list[str]]):
    assert tables(fig if isinstance(fig, go.Figure) else go.Figure(*fig)) == expected


def test_a_grid_keeps_bold_text():
    assert "<td><b>a</b></td>" in figure_table(grid().to_plotly_json())


@pytest.mark.parametrize("trace", [go.Heatmap(z=[[1]]), go.Histogram(x=[1])])
def test_a_trace_that_pages_cannot_draw_is_an_error(trace):
    fig = figure(go.Figure(trace), alt="a grid")
    with pytest.raises(ValueError, match="traces of type"):
        figure_html(fig.to_plotly_json())


def test_a_long_table_is_thinned_and_has_a_note():
    fig = go.Figure(go.Scatter(x=np.arange(1000), y=np.arange(1000)))
    (rows,) = tables(fig)
    assert len(rows) == 1 + MAX_ROWS and (rows[1], rows[-1]) == ("0 | 0", "999 | 999")
    assert f"{MAX_ROWS} of 1000 rows" in figure_table(fig.to_plotly_json())
