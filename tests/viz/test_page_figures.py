"""Figures and tables of the pages show what was recorded or published, and their titles hold."""

import numpy as np
import pytest

from specdec_book import recordings
from specdec_book.recordings import forecasts
from specdec_book.viz import estimates, published
from specdec_book.viz.captions import spaced_percent
from specdec_book.viz.pictures import HEADS, coordinates, learning_curve, merged_tree, points
from specdec_lite.tree import TokenTree


def test_a_measured_round_cuts_the_error_and_a_datasheet_alone_is_never_too_low():
    """As the text above the table says."""
    sheet, held, own = map(estimates.median_error, ("datasheet", "held_out", "calibrated"))
    assert own < held < sheet and min(estimates.errors("datasheet")) >= 0


def test_the_table_of_the_fit_has_every_source():
    text = estimates.fit_table().data
    sources = {row["source"] for row in estimates.rows()}
    assert text.count("\n| ") == len(sources) + 2
    assert "nan" not in text and "| – |" in text, "one source has no other row to predict"


def test_two_heads_lie_on_one_line():
    fig = published.one_cost()
    lines = [trace for trace in fig.data if trace.mode == "lines"]
    assert [line.name.split(":")[0] for line in lines] == ["γ = 3", "γ = 5", "γ = 7"]
    costs = [float(line.name.split()[-1]) for line in lines]
    assert costs == sorted(costs), "longer drafts cost more"
    points = [trace for trace in fig.data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in points) == 42
    for cost, pair in zip(costs, zip(points[::2], points[1::2])):
        own = [np.array(trace.x) / np.array(trace.y) for trace in pair]
        assert np.median(own[0]) == pytest.approx(np.median(own[1]), rel=0.02)
        assert np.median(own[0]) == pytest.approx(cost, rel=0.02)


def test_the_laptops_cost_rises_with_every_draft():
    tokens, costs, gains = published.laptop().data
    steps = np.diff(costs.y)
    assert min(steps) > 0.4 and max(steps) < 0.6, "nearly linear, as the title says"
    assert list(gains.y) == pytest.approx([t / c for t, c in zip(tokens.y, costs.y)])
    assert int(np.argmax(gains.y)) == 1 and list(tokens.y) == sorted(tokens.y)


def test_the_table_has_every_row_with_its_forecast():
    text = published.forecast_table().data
    assert text.count("\n| ") == len(published.ROWS) + 2
    worst = max(forecasts.all_forecasts(), key=lambda each: abs(each.error))
    assert spaced_percent(f"{worst.error:+.0%}") in text, "the largest error is among the rows"
    assert "not by us" in text


def test_the_figure_has_the_recorded_speedups():
    lines = {trace.name: trace for trace in published.by_batch().data}
    eagle = lines["dense 8B, EAGLE"]
    assert list(eagle.x)[:4] == [2, 4, 8, 16] and list(eagle.y)[:4] == [1.4, 1.38, 1.23, 1.02]
    mixture = lines["mixture 295B-A21B, MTP"]
    assert mixture.y[-1] > mixture.y[0], "the title's claim"
    measured, estimated = lines["dense 8B, EAGLE-3"], lines["estimate, 8B, EAGLE-3"]
    assert measured.y[-1] < measured.y[0] and estimated.y[-1] < 0.8 * estimated.y[0]
    inside = [
        published.eagle3_estimate(batch).low <= speedup <= published.eagle3_estimate(batch).high
        for batch, speedup in zip(measured.x, measured.y)
    ]
    assert sum(inside) >= 7, "nearly all measurements of this engine are in the band"


def test_the_figure_has_every_forecast():
    fig = published.forecast_figure()
    every = forecasts.all_forecasts()
    assert len(fig.data[0].x) == len(every)
    assert f"{forecasts.within(every, 0.1)} of {len(every)}" in fig.layout.title.text


def test_every_point_of_the_recording_is_drawn():
    record = recordings.load("gpu-heads-smollm2")
    fig = learning_curve(record)
    assert [trace.name for trace in fig.data] == [*HEADS.values()]
    for key, trace in zip(HEADS, fig.data):
        head = record.data["heads"][key]
        assert len(trace.x) == len(head["curve"]) + 1 and list(trace.x) == sorted(trace.x)
        assert trace.x[-1] == pytest.approx(head["seen"] / 1e6)
        assert trace.y[-1] == head["held_out"]["all"]["agrees"]["mean"][0]


def test_every_head_improves_until_the_end():
    for head in recordings.load("gpu-heads-smollm2").data["heads"].values():
        (_, before, alpha_before), (_, last, alpha) = points(head)[-2:]
        error = head["held_out"]["all"]["agrees"]["error"][0]
        assert last - before > error and alpha > alpha_before


TREE = TokenTree([5, 6, 7, 8], [-1, 0, 0, -1])


def test_leaves_are_one_apart_and_parents_between_them():
    places = coordinates(TREE)
    assert [places[node] for node in (1, 2, 3)] == [(2, 0.0), (2, 1.0), (1, 2.0)]
    assert places[0] == (1, 0.5) and places[-1] == (0, 1.25)


def test_each_draft_has_rings_of_its_own_size():
    fig = merged_tree(TREE, ["a", "b", "c", "d"], "It", {"one": [0, 1], "two": [0, 2, 3]})
    rings = [trace for trace in fig.data if trace.mode == "markers"]
    assert [(ring.name, len(ring.x)) for ring in rings] == [("one", 2), ("two", 3)]
    assert rings[0].marker.size < rings[1].marker.size
    assert [note.text for note in fig.layout.annotations] == ["a", "b", "c", "d", "It"]
