"""The published measurements are shown as the sources print them."""

from specdec_book.recordings import forecasts
from specdec_book.viz import published
from specdec_book.viz.captions import spaced_percent


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
