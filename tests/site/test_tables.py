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


def tables(*traces, **layout) -> list[list[list[str]]]:
    """Return the rows of each table of a figure, the headings first.

    The figure is converted to plotly's JSON, as the book's renderer receives it.
    """
    soup = BeautifulSoup(
        figure_table(json.loads(go.Figure(traces, layout).to_json())), "html.parser"
    )
    return [
        [[cell.get_text() for cell in row.select("th, td")] for row in table.select("tr")]
        for table in soup.select("table")
    ]


def spans(orientation: str, **changed) -> go.Bar:
    along, across = ("x", "y") if orientation == "h" else ("y", "x")
    return go.Bar(
        **(
            {
                "name": "weights",
                "orientation": orientation,
                along: [2.5, 4.0],
                across: ["target", "draft"],
                "base": [0.0, 100.25],
            }
            | changed
        )
    )


@pytest.mark.parametrize(
    "orientation, titles",
    [
        ("h", {"xaxis_title": "µs", "yaxis_title": "model"}),
        ("v", {"yaxis_title": "µs", "xaxis_title": "model"}),
    ],
)
def test_bars_with_a_base_show_start_and_length(orientation: str, titles: dict):
    assert tables(
        spans(orientation), spans(orientation, name="other", base=[3, None]), **titles
    ) == [
        [
            ["series", "model", "start (µs)", "length (same unit)"],
            ["weights", "target", "0", "2.5"],
            ["weights", "draft", "100.2", "4"],
            ["other", "target", "3", "2.5"],
            ["other", "draft", "", "4"],
        ]
    ]


def test_one_base_for_all_bars_and_one_as_a_typed_array():
    typed = json.loads(go.Figure(go.Bar(x=np.array([7.0, 7.0]))).to_json())["data"][0]["x"]
    assert set(typed) == {"dtype", "bdata"}
    for base in (7, typed):
        assert [row[2] for row in tables(spans("h", base=base))[0][1:]] == ["7", "7"]


def test_spans_and_lines_of_one_figure_have_separate_tables():
    both = tables(
        spans("h"),
        go.Scatter(name="mean", x=[1], y=["target"]),
        xaxis_title="µs",
        yaxis_title="model",
    )
    assert [table[0] for table in both] == [
        ["series", "model", "start (µs)", "length (same unit)"],
        ["µs", "model"],
    ]


def test_lines_that_share_their_x_are_columns_of_one_table():
    lines = (
        go.Scatter(name="plain", x=[1, 2], y=[1.0, 0.5]),
        go.Scatter(x=[1, 2], y=np.array([1.0, 2.0])),
    )
    assert tables(*lines, xaxis_title="k") == [
        [["k", "plain", "series 2"], ["1", "1", "1"], ["2", "0.5", "2"]]
    ]
    assert tables(lines[0], xaxis_title="k", yaxis_title="T(k)") == [
        [["k", "T(k)"], ["1", "1"], ["2", "0.5"]]
    ]


def test_series_with_the_same_name_are_labeled_by_their_panel():
    fig = make_subplots(1, 2, subplot_titles=["agree", "at least"])
    for col in (1, 2):
        fig.add_bar(name="emitted", x=["tea"], y=[col / 4], row=1, col=col)
    (rows,) = tables(*fig.data, **fig.layout.to_plotly_json())
    assert rows[0] == ["x", "agree: emitted", "at least: emitted"]


def test_lines_with_different_x_follow_one_another():
    lines = go.Scatter(name="plain", x=[1, 2], y=[3, 4]), go.Scatter(name="ours", y=[5])
    assert tables(*lines, xaxis_title="k", yaxis_title="T(k)") == [
        [["series", "k", "T(k)"], ["plain", "1", "3"], ["plain", "2", "4"], ["ours", "0", "5"]]
    ]


def test_error_bars_are_shown_as_their_two_ends():
    points = {"name": "plain", "x": [1, 2, 3], "y": np.array([1.0, 2.5, np.nan])}
    lopsided = go.Scatter(
        **points,
        error_y={
            "array": [0.5, 0.25, 0],
            "arrayminus": np.array([0.125, 1.0, 0]),
            "symmetric": False,
        },
    )
    even = go.Scatter(**points, error_y={"array": [0.5, 0.25, 0]})
    assert [row[1] for row in tables(lopsided)[0][1:]] == [
        "1 (0.875 to 1.5)",
        "2.5 (1.5 to 2.75)",
        "",
    ]
    assert [row[1] for row in tables(even)[0][1:]] == ["1 (0.5 to 1.5)", "2.5 (2.25 to 2.75)", ""]
    assert tables(lopsided, go.Scatter(x=[1, 2, 3], y=[4, 5, 6]))[0][1] == [
        "1",
        "1 (0.875 to 1.5)",
        "4",
    ]


def test_categories_are_shown_as_text_and_not_as_markup():
    bars = [go.Bar(name=name, x=["A", "<b>&"], y=[0.25, 1]) for name in ("p", "q < p")]
    assert tables(*bars) == [[["x", "p", "q < p"], ["A", "0.25", "0.25"], ["<b>&", "1", "1"]]]


def test_a_missing_value_is_an_empty_cell():
    assert tables(go.Scatter(x=[1, 2, 3], y=[None, float("nan"), 0.0]))[0][1:] == [
        ["1", ""],
        ["2", ""],
        ["3", "0"],
    ]


def test_floats_have_four_digits_and_integers_have_all():
    shown = tables(go.Bar(x=["a"] * 5, y=[0.123456, 1e-7, 123456.0, 123456, 2.0]))[0][1:]
    assert [number for _, number in shown] == ["0.1235", "1e-07", "1.235e+05", "123456", "2"]


def test_a_grid_has_a_row_for_every_y_and_keeps_bold_text():
    words = [["<b>a</b>", "b"], ["&", ""]]
    fig = cells([[1, 0], [0, None]], ["s", "t"], ["p", "q"], words=words)
    fig.update_layout(xaxis_title="token", yaxis_title="rule")
    (rows,) = tables(*fig.data, **fig.layout.to_plotly_json())
    assert rows == [["rule \\ token", "s", "t"], ["p", "a", "b"], ["q", "&", ""]]
    assert "<td><b>a</b></td>" in figure_table(fig.to_plotly_json())


@pytest.mark.parametrize("trace", [go.Heatmap(z=[[1]]), go.Histogram(x=[1])])
def test_a_trace_that_pages_cannot_draw_is_an_error(trace):
    fig = figure(go.Figure(trace), alt="a grid")
    with pytest.raises(ValueError, match="traces of type"):
        figure_html(fig.to_plotly_json())


def test_a_long_table_is_thinned_and_has_a_note():
    line = go.Scatter(x=np.arange(1000), y=np.arange(1000))
    (rows,) = tables(line)
    assert len(rows) == 1 + MAX_ROWS and (rows[1], rows[-1]) == (["0", "0"], ["999", "999"])
    assert f"{MAX_ROWS} of 1000 rows" in figure_table(go.Figure(line).to_plotly_json())
