"""The figure helper: names at the ends of lines, rounded readings, names on bars."""

import itertools

import plotly.graph_objects as go
import pytest
from specdec_site.outputs import figure_html

from specdec_book.viz import PALETTE, figure
from specdec_book.viz.theme import BRIGHT, INKS, LIGHT, dark_data

# from the module: in the package, the name `figure` is the function
from specdec_book.viz.figure import END, LINE_HEIGHT, SOURCE, spread_out  # isort: skip


def lines(count: int, **layout) -> go.Figure:
    """Return a figure of lines whose last points are close together."""
    fig = go.Figure(layout=layout)
    for i in range(count):
        fig.add_scatter(x=[1, 2, 3], y=[i, 0, 5 + i / 100], name=f"line {i}")
    return fig


def names(fig: go.Figure) -> list:
    return [note for note in fig.layout.annotations if note.name == END]


@pytest.mark.parametrize("count, named", [(1, 0), (2, 2), (5, 5), (6, 0)])
def test_up_to_five_lines_have_their_names_at_their_ends(count, named):
    fig = figure(lines(count), alt="lines")
    assert len(names(fig)) == named and (fig.layout.showlegend is False) == bool(named)
    for note, i in zip(names(fig), range(named)):
        assert (note.text, note.x, note.y) == (f"line {i}", 3, 5 + i / 100)
    if named:
        assert fig.layout.margin.r > 7 * len("line 0"), "room for the names"


def test_names_are_at_the_ends_of_lines_on_log_axes():
    fig = lines(2)
    fig.update_xaxes(type="log").update_yaxes(type="log", range=[0, 1])
    fig.data[1].update(x=[1, 10, 100], y=[1, 5, 1000])  # leaves the range after its second point
    first, second = names(figure(fig, alt="lines"))
    assert (second.x, second.y) == pytest.approx((1, 0.69897), abs=1e-4)
    assert first.x == pytest.approx(0.4771, abs=1e-4)


def test_names_do_not_overlap():
    fig = figure(lines(5), alt="lines")
    low, high = fig.layout.yaxis.range
    scale = (fig.layout.height - 120) / (high - low)
    feet = sorted((note.y - low) * scale + note.yshift for note in names(fig))
    assert all(b - a >= LINE_HEIGHT - 1e-6 for a, b in itertools.pairwise(feet))


def test_a_reference_line_does_not_cross_a_name():
    fig = lines(2).add_hline(y=5)
    fig.data[1].y = [1, 0, 1]
    crossed, free = names(figure(fig, alt="lines"))
    assert (crossed.bgcolor, free.bgcolor) == (LIGHT["background"], None)


def test_names_of_lines_that_end_early_do_not_overlap_either():
    fig = lines(2)
    fig.data[0].x = fig.data[1].x = [1, 1.5, 2]
    fig.add_scatter(x=[1, 2, 4], y=[1, 1, 1], name="longest")
    fig = figure(fig, alt="lines")
    low, high = fig.layout.yaxis.range
    scale = (fig.layout.height - 120) / (high - low)
    early = [(note.y - low) * scale + note.yshift for note in names(fig) if note.x == 2]
    assert len(early) == 2 and abs(early[0] - early[1]) >= LINE_HEIGHT - 1e-6


def test_names_move_no_further_than_they_must():
    assert spread_out([(0, 10), (50, 10)]) == [0, 0]
    assert spread_out([(0, 10), (4, 10)]) == [-3, 3]
    assert spread_out([(4, 10), (0, 10), (100, 10)]) == [3, -3, 0]


@pytest.mark.parametrize(
    "fig",
    [
        lines(3, showlegend=False),
        go.Figure([go.Scatter(x=["a", "b"], y=[1, 2], name=name) for name in "pq"]),
        go.Figure([go.Scatter(x=[1], y=["a"], name=name) for name in "pq"]),
        go.Figure([go.Bar(x=[1], y=[2], name=name) for name in "pq"]),
    ],
    ids=["no legend", "words along x", "words along y", "bars"],
)
def test_figures_without_line_ends_stay_unchanged(fig):
    assert names(figure(fig, alt="others")) == []


def test_text_colors_are_readable_in_both_themes():
    from test_viz import contrast

    for role, ink in INKS.items():
        assert contrast(ink, LIGHT["background"]) >= 4.5, role
        assert dark_data()[ink.lower()] == dark_data()[PALETTE[role].lower()] == BRIGHT[role]


def test_readings_have_three_digits_in_one_box():
    fig = figure(lines(2), alt="lines")
    assert fig.layout.hovermode == "x unified"
    assert fig.data[1].hovertemplate == "%{y:.3~r}<extra>line 1</extra>"
    whole = figure(go.Figure(go.Bar(x=["a"], y=[12_345])), alt="a bar")
    assert whole.data[0].hovertemplate == "%{x}: %{y}<extra></extra>"
    own = go.Figure(go.Scatter(x=[1], y=[2], hovertemplate="mine"))
    assert figure(own, alt="a point").data[0].hovertemplate == "mine"


def test_bars_show_their_names_and_have_no_hatches():
    fig = figure(go.Figure([go.Bar(name=name, x=["a"], y=[1]) for name in "pq"]), alt="bars")
    assert [trace.text for trace in fig.data] == ["p", "q"]
    assert all(trace.marker.pattern.shape is None for trace in fig.data)
    assert all(trace.showlegend is False for trace in fig.data)


def test_a_name_must_be_a_valid_anchor():
    assert figure(lines(1), alt="a line", name="one-line").layout.meta["name"] == "one-line"
    with pytest.raises(ValueError, match="name='A B'"):
        figure(lines(1), alt="a line", name="A B")


def test_a_vertical_axis_title_fits_its_panel():
    long = "acceptance of the first tokens of rounds, at temperature 0"
    fig = figure(lines(1, yaxis_title=long, height=380), alt="a line")
    parts = fig.layout.yaxis.title.text.split("<br>")
    assert " ".join(parts) == long and max(map(len, parts)) * 7.5 <= 380 - 120


def test_a_source_is_a_note_that_a_page_moves_into_the_caption():
    fig = figure(lines(2), alt="lines", source="12 texts <b> & one machine")
    (note,) = [note for note in fig.layout.annotations if note.name == SOURCE]
    assert note.text == "ⓘ" and note.hovertext == "12 texts &lt;b&gt; &amp; one machine"
    page = figure_html(fig.to_plotly_json())
    caption = page[page.index("<figcaption>") : page.index("</figcaption>")]
    assert "<span>12 texts &lt;b&gt; &amp; one machine</span></details>" in caption
    assert page.count("ⓘ") == 1
    assert "ⓘ" not in figure_html(lines(2, meta={"alt": "a"}).to_plotly_json())


def test_error_bars_of_points_in_several_colors_have_one():
    """The page's plots warn of a list of colors there."""
    points = dict(x=[1, 2], y=[1, 2], mode="markers", marker_color=["#111111", "#222222"])
    fig = figure(go.Figure(go.Scatter(error_x_array=[0.1, 0.1], **points)), alt="Two points.")
    assert isinstance(fig.data[0].error_x.color, str)


def test_ticks_separate_thousands():
    fig = go.Figure(go.Scatter(x=[64, 33_000], y=[1, 2]))
    fig.update_xaxes(type="log", tickvals=[64, 1024, 33_000])
    figure(fig, alt="x")
    assert fig.layout.xaxis.ticktext == ("64", "1,024", "33,000")
    assert fig.layout.yaxis.ticktext is None


def test_the_subject_of_the_title_is_thick_and_colored_and_the_rest_is_pale():
    fig = figure(lines(3), alt="lines", subject={"line 1": "accepted"})
    first, chosen, last = fig.data
    assert {first.line.color, last.line.color} == {PALETTE["other"]}
    assert chosen.line.color == PALETTE["accepted"] and chosen.line.dash == "solid"
    assert chosen.line.width > 2 * first.line.width and chosen.zorder > (first.zorder or 0)
    assert [note.font.color for note in names(fig)][1] == INKS["accepted"]
    bars = go.Figure(go.Bar(x=["a", "b"], y=[1, 2]))
    bars = figure(bars, alt="bars", subject="b")
    assert list(bars.data[0].marker.color) == [PALETTE["other"], PALETTE["subject"]]


@pytest.mark.parametrize("subject", ["line 9", {"line 1": "red"}, ["line 0", "line 1", "line 2"]])
def test_a_subject_that_the_figure_or_the_palette_lacks_is_rejected(subject):
    with pytest.raises(ValueError, match="subject="):
        figure(lines(3), alt="lines", subject=subject)


def test_a_log_axis_of_less_than_two_decades_has_more_labels_than_its_powers_of_ten():
    both = go.Scatter(x=[1, 1000], y=[12, 505]), go.Scatter(x=[2, 3], y=[20, 30])
    fig = figure(go.Figure(both, dict(xaxis_type="log", yaxis_type="log")), alt="two lines")
    assert (fig.layout.xaxis.dtick, fig.layout.yaxis.dtick) == (None, "D2")
